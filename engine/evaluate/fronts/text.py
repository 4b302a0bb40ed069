"""The fronts of the methods as a Markdown section and as an SVG chart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from engine.advise.advisor import ORIGINS
from engine.bench.chart import COLOURS, STYLE
from engine.core.tables import markdown_table

Row = Mapping[str, Any]
HEAD = (
    "method", "chosen", "speed-up", "kept", "to default", "to published", "to random",
    "share of the grid's runs", "bar met",
)  # fmt: skip
ORIGIN_COLOURS = dict(zip(ORIGINS, COLOURS, strict=False))
SIZE, MARGIN, ACROSS = 240, 42, 4
FRONT = 'class="l" stroke="#8888" stroke-dasharray="4 3"'  # a line, since colours are origins


def section(document: Row) -> str:
    """The section of assets/results/README.md: a table with one row per method, and the chart."""
    table = markdown_table(HEAD, [_cells(one) for one in document["methods"]])
    where = document["environment"]
    judged, timed = document["held_out"] + document["further"], ""
    if document["further"]:
        timed = f", the first {document['held_out']} of them timed"
    return (
        f"{judged} held-out problems{timed}, of `{document['family']}` after {document['shots']} "
        f"worked examples, `{document['model']}`, {where['device_name']}; {document['searched']} "
        f"other problems for the search; at least {document['keep']:.0%} of plain decoding's right "
        "answers kept.\n\n"
        f"{table}\n![Speed-up and kept accuracy of every method's settings]"
        f"(fronts-{document['model']}.svg)\n"
    )


def _cells(row: Row) -> list[str]:
    judged = row["bar"]
    met, budget = "yes" if judged["met"] else "no", f"{judged['budget']:.0%}"
    own = next((one for one in row["held_back"] if one["chosen"]), None)
    if own is None:
        return [row["cache"], "none accepted", *[""] * 5, budget, met]
    return [
        row["cache"], f"{own['name'].partition(': ')[2]} ({own['from']})",
        f"{own['speed_up']:.2f}x ({own['speed_up_low']:.2f} to {own['speed_up_high']:.2f})",
        f"{own['kept']['share']:.1%} (p {own['kept']['p']:.2g})",
        *(_against(judged[name]) for name in ("default", "published", "random")), budget, met,
    ]  # fmt: skip


def _against(one: Row | None) -> str:
    if one is None:
        return "not accepted"
    return f"{one['ratio']:.2f}x ({one['low']:.2f} to {one['high']:.2f}), p {one['p']:.2g}"


def svg(document: Row) -> str:
    """One panel per method: kept accuracy (across) and speed-up (up) of the settings tested."""
    methods = document["methods"]
    points = [one for row in methods for one in row["held_back"] if one["kept"]]
    kept, speeds = [p["kept"]["share"] for p in points], [p["speed_up"] for p in points]
    x_range = (max(0.0, min([*kept, document["keep"]]) - 0.02), max([*kept, 1.0]) + 0.02)
    y_range = (0.0, 1.1 * max([*speeds, 1.0]))
    across = min(ACROSS, len(methods))
    end = MARGIN + 110 * len(ORIGIN_COLOURS)  # of the legend's circles
    width, height = max(SIZE * across, end + 110), SIZE * -(-len(methods) // across) + 24
    body = [
        _panel(row, SIZE * (i % across), SIZE * (i // across), x_range, y_range)
        for i, row in enumerate(methods)
    ]
    legend = [
        f'<circle cx="{MARGIN + 110 * i}" cy="{height - 11}" r="4" fill="{colour}"/>'
        f'<text x="{MARGIN + 110 * i + 9}" y="{height - 7}">{name}</text>'
        for i, (name, colour) in enumerate(ORIGIN_COLOURS.items())
    ]
    legend.append(
        f'<path {FRONT} d="M{end - 4} {height - 11}h20"/><text x="{end + 21}" y="{height - 7}">'
        "front</text>"
    )
    title = "Speed-up over plain decoding (up) by share of accuracy kept (across)"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'width="{width}" height="{height}"><title>{title}</title><style>{STYLE}</style>\n'
        + "\n".join([*body, *legend])
        + "\n</svg>\n"
    )


def _panel(
    row: Row, left: int, top: int, x_range: tuple[float, float], y_range: tuple[float, float]
) -> str:
    start, end, high, low = left + MARGIN, left + SIZE - 10, top + 28, top + SIZE - 28

    def place(one: Row) -> tuple[float, float]:
        x = (one["kept"]["share"] - x_range[0]) / (x_range[1] - x_range[0])
        y = (one["speed_up"] - y_range[0]) / (y_range[1] - y_range[0])
        return start + x * (end - start), low - y * (low - high)

    shown = [one for one in row["held_back"] if one["kept"]]
    front = sorted(place(one) for one in shown if one["name"] in row["front"])
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in front)
    marks = [(*place(one), one) for one in shown]
    return "\n".join([
        f'<text class="t" x="{start}" y="{top + 16}">{escape(row["cache"])}</text>',
        f'<path class="g" fill="none" d="M{start} {high}V{low}H{end}"/>',
        f'<text x="{start - 4}" y="{high + 6}" text-anchor="end">{y_range[1]:.1f}x</text>',
        f'<text x="{start - 4}" y="{low}" text-anchor="end">{y_range[0]:g}</text>',
        f'<text x="{start}" y="{low + 15}">{x_range[0]:.0%}</text>',
        f'<text x="{end}" y="{low + 15}" text-anchor="end">{x_range[1]:.0%}</text>',
        f'<polyline {FRONT} points="{path}"/>',
        *(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{5 if one["chosen"] else 3.5}" '
            f'fill="{ORIGIN_COLOURS[one["from"]]}"><title>{escape(one["name"])}</title></circle>'
            for x, y, one in marks
        ),
    ])  # fmt: skip
