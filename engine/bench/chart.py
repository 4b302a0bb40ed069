"""Line charts with logarithmic axes, as one SVG with light and dark colours.

No plotly: it writes SVG only through kaleido and a browser, and its colours cannot follow
`prefers-color-scheme`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 240, 260, 38, 16, 30, 40
COLOURS = ("#7a7f87", "#d9730d", "#2f7fd1", "#2b9a66")  # readable on white and on near-black
STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#333}.t{font-weight:600}"
    ".g{stroke:#8884;stroke-width:1}.l{fill:none;stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}}"
)


@dataclass(frozen=True)
class Line:
    """A named line of points (x, y), all greater than 0."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """Lines that share their axes; `title` names the x axis."""

    title: str
    lines: Sequence[Line]


def svg(panels: Sequence[Panel], unit: str) -> str:
    """Panels side by side with a common y axis in `unit` and one legend.

    The y axis has grid lines at 1, 2 and 5 times powers of ten, the x axes ticks at the points.
    """
    values = [y for panel in panels for line in panel.lines for _, y in line.points]
    width, height = WIDTH * len(panels), HEIGHT + 20
    ticks = _ticks(min(values), max(values))
    body = [_panel(panel, index, ticks, unit) for index, panel in enumerate(panels)]
    names = [line.name for line in panels[0].lines]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'width="{width}" height="{height}"><title>{escape(unit)}</title><style>{STYLE}</style>\n'
        + "\n".join([*body, _legend(names, height - 8)])
        + "\n</svg>\n"
    )


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten, from the last one below `low` to the first above `high`."""
    first, last = math.floor(math.log10(low)), math.floor(math.log10(high)) + 1
    ticks = [lead * 10.0**power for power in range(first, last + 1) for lead in (1, 2, 5)]
    start = max(i for i, tick in enumerate(ticks) if tick <= low)
    return ticks[start : next(i for i, tick in enumerate(ticks) if tick > high) + 1]


def _panel(panel: Panel, index: int, ticks: Sequence[float], unit: str) -> str:
    y_range = (ticks[0], ticks[-1])
    xs = sorted({x for line in panel.lines for x, _ in line.points})
    x_range = (xs[0], xs[-1] if len(xs) > 1 else 2 * xs[0])
    left, right = index * WIDTH + LEFT, (index + 1) * WIDTH - RIGHT
    top, bottom = TOP, HEIGHT - BOTTOM
    parts = [_text(left, TOP - 12, f"{unit}, by {panel.title}", "start", "t")]
    for tick in ticks:
        y = _scale(tick, y_range, bottom, top)
        parts.append(f'<line class="g" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(left - 4, y + 4, f"{tick:g}", "end"))
    for x in xs:
        parts.append(_text(_scale(x, x_range, left, right), bottom + 15, f"{x:g}", "middle"))
    for line, colour in zip(panel.lines, COLOURS, strict=False):
        points = [
            (_scale(x, x_range, left, right), _scale(y, y_range, bottom, top))
            for x, y in line.points
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="l" stroke="{colour}" points="{path}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    return "\n".join(parts)


def _legend(names: Sequence[str], y: float) -> str:
    parts = []
    for index, (name, colour) in enumerate(zip(names, COLOURS, strict=False)):
        x = LEFT + 120 * index
        parts.append(f'<line x1="{x}" x2="{x + 18}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" '
                     'stroke-width="3"/>')  # fmt: skip
        parts.append(_text(x + 24, y, name, "start"))
    return "\n".join(parts)


def _scale(value: float, bounds: tuple[float, float], start: float, end: float) -> float:
    """Map `value` from `bounds` to the pixels from `start` to `end`, logarithmically."""
    share = math.log(value / bounds[0]) / math.log(bounds[1] / bounds[0])
    return start + share * (end - start)


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    extra = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(text)}</text>'
