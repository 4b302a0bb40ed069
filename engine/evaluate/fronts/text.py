"""The fronts of the methods as a Markdown section and as an SVG chart."""

from __future__ import annotations

from xml.sax.saxutils import escape

from engine.advise.advisor import ORIGINS
from engine.bench.chart import COLOURS, STYLE
from engine.core.tables import markdown_table, percentage
from engine.evaluate.fronts.criterion import BASELINES, Row

HEAD = (
    "method", "chosen", "speed-up", "kept", "to default", "to published", "to random",
    "share of the grid's runs", "criterion met",
)  # fmt: skip
ORIGIN_COLOURS = dict(zip(ORIGINS, COLOURS, strict=False))
SIZE, MARGIN, ACROSS = 240, 42, 4
STRIDE = 110  # from one entry of the legend to the next
FRONT = 'class="l" stroke="#8888" stroke-dasharray="4 3"'  # a line, since colours are origins


def section(document: Row) -> str:
    """The section of assets/results/README.md: a table with one row per method, and the chart."""
    table = markdown_table(HEAD, [_cells(one) for one in document["methods"]])
    where = document["environment"]
    timed, keep = "", percentage(document["keep"], 0)
    if document["further"]:
        timed = f", the first {document['held_out']} of them timed"
    return (
        f"{_judged(document)} held-out problems{timed}, of `{document['family']}` after "
        f"{document['shots']} worked examples, `{document['model']}`, {where['device_name']}; "
        f"{document['searched']} other problems for the search; at least {keep} of plain "
        "decoding's right answers kept.\n\n"
        f"{table}\n![Speed-up and kept accuracy of every method's settings]"
        f"(fronts-{document['model']}.svg)\n"
    )


def _judged(document: Row) -> str:
    """On how many problems the chosen settings are judged.

    They are fewer than all for a method beside which plain decoding failed on some.
    """
    tested = [one for row in document["methods"] for one in row["held_back"]]
    counts = {one["kept"]["pairs"] for one in tested if one["chosen"]}
    counts = counts or {document["held_out"] + document["further"]}
    return " to ".join(map(str, sorted({min(counts), max(counts)})))


def _cells(row: Row) -> list[str]:
    judged = row["criterion"]
    met, budget = "yes" if judged["met"] else "no", percentage(judged["budget"], 0)
    own = next((one for one in row["held_back"] if one["chosen"]), None)
    if own is None:
        return [row["cache"], "none accepted", *[""] * 5, budget, met]
    return [
        row["cache"], f"{own['name'].partition(': ')[2]} ({own['from']})",
        f"{own['speed_up']:.2f}x ({own['speed_up_low']:.2f} to {own['speed_up_high']:.2f})",
        f"{percentage(own['kept']['share'])} (p {own['kept']['p']:.2g})",
        *(_against(judged[name]) for name in BASELINES), budget, met,
    ]  # fmt: skip


def _against(one: Row | None) -> str:
    if one is None:
        return "not accepted"
    return f"{one['ratio']:.2f}x ({one['low']:.2f} to {one['high']:.2f}), p {one['p']:.2g}"


def svg(document: Row) -> str:
    """One panel per method: kept accuracy (across) and speed-up (up) of the settings tested.

    Panels share the scale of speed-ups. Each has its own scale of accuracy.
    """
    methods, keep = document["methods"], document["keep"]
    speeds = [one["speed_up"] for row in methods for one in row["held_back"] if one["kept"]]
    most, across = 1.1 * max([*speeds, 1.0]), min(ACROSS, len(methods))
    legend = [
        *(f'<circle cx="0" cy="-4" r="4" fill="{colour}"/>{_text(9, 0, name)}'
          for name, colour in ORIGIN_COLOURS.items()),
        f'<path {FRONT} d="M-4 -4h20"/>{_text(21, 0, "front")}',
        f'<path class="g" d="M0 -10v12"/>{_text(9, 0, f"least to keep, {percentage(keep, 0)}")}',
    ]  # fmt: skip
    width = max(SIZE * across, MARGIN + STRIDE * len(legend))
    height = SIZE * -(-len(methods) // across) + 24
    body = [
        f'<g transform="translate({SIZE * (i % across)} {SIZE * (i // across)})">\n'
        f"{_panel(row, keep, most)}\n</g>"
        for i, row in enumerate(methods)
    ]
    body += [
        f'<g transform="translate({MARGIN + STRIDE * i} {height - 7})">{one}</g>'
        for i, one in enumerate(legend)
    ]
    title = "Speed-up over plain decoding (up) by share of accuracy kept (across)"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'width="{width}" height="{height}"><title>{title}</title><style>{STYLE}</style>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _panel(row: Row, keep: float, most: float) -> str:
    """The settings of a method, and lines at `keep` and at plain decoding's speed."""
    shown = [one for one in row["held_back"] if one["kept"]]
    kept = [one["kept"]["share"] for one in shown]
    least, largest = max(0.0, min([*kept, keep]) - 0.02), max([*kept, 1.0]) + 0.02
    start, end, high, low = MARGIN, SIZE - 10, 28, SIZE - 28

    def place(share: float, speed: float) -> tuple[float, float]:
        x = (share - least) / (largest - least)
        return start + x * (end - start), low - speed / most * (low - high)

    marks = [(*place(one["kept"]["share"], one["speed_up"]), one) for one in shown]
    front = sorted((x, y) for x, y, one in marks if one["name"] in row["front"])
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in front)
    enough, plain = place(keep, 1.0)
    return "\n".join([
        _text(start, 16, escape(row["cache"]), 'class="t"'),
        f'<path class="g" fill="none" d="M{start} {high}V{low}H{end}"/>',
        f'<path class="g" d="M{enough:.1f} {high}V{low}M{start} {plain:.1f}H{end}"/>',
        _text(start - 4, high + 6, f"{most:.1f}x", 'text-anchor="end"'),
        _text(start - 4, plain + 4, "1x", 'text-anchor="end"'),
        _text(start - 4, low, "0", 'text-anchor="end"'),
        _text(start, low + 15, percentage(least, 0)),
        _text(end, low + 15, percentage(largest, 0), 'text-anchor="end"'),
        f'<polyline {FRONT} points="{path}"/>',
        *(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{5 if one["chosen"] else 3.5}" '
            f'fill="{ORIGIN_COLOURS[one["from"]]}"><title>{escape(one["name"])}</title></circle>'
            for x, y, one in marks
        ),
    ])  # fmt: skip


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x:g}" y="{y:.1f}" {attributes}>{text}</text>'
