"""Method documents: the Markdown file beside a method's module.

A file has one section `# NAME` for each method of the module. A section holds the description,
paragraphs separated by blank lines, and may hold two subsections:

- `## Knobs`: background, one item a knob: "- `NAME`: text."
- `## Published figures`: a table with the columns of COLUMNS. `a → b` in a figure is without the
  method, then with it. The GPU, lengths and shots are those of the measurement, "not stated" if
  the source does not give them and "none" for settings, which are not measured. `table` is the
  number of the source's table. `transcript` holds the source's own cells: those of the figure,
  then ` // ` and those of the lengths and shots ("none" if there are none). Passages are separated
  by ` … `, and `¦` is the edge of a column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

COLUMNS = ["figure", "conditions", "GPU", "lengths", "shots", "table", "source", "transcript"]
KNOB = re.compile(r"- `(\w+)`: (.+)")
RULE = re.compile(r"[-:| ]+")


@dataclass(frozen=True)
class PublishedFigure:
    """A figure that the authors of a method report, its conditions and its source.

    Every field is text; the module's docstring describes them.
    """

    figure: str
    conditions: str
    gpu: str
    lengths: str
    shots: str
    table: str
    source: str
    transcript: str


@dataclass(frozen=True)
class MethodDoc:
    """What the Markdown file says of a method; everything is empty if there is none.

    `description` is one line a paragraph, separated by blank lines; `knobs` has the background of
    knobs by name.
    """

    description: str = ""
    knobs: dict[str, str] = field(default_factory=dict)
    published: tuple[PublishedFigure, ...] = ()


@cache
def read_method_docs(path: Path) -> dict[str, MethodDoc]:
    """The documents of a file by method name; empty if the file does not exist.

    Raises ValueError that names the file, the method and the line that cannot be read.
    """
    if not path.exists():
        return {}
    before, *sections = re.split(r"(?m)^# +(.+)$", path.read_text("utf-8"))
    if before.strip() or not sections:
        raise ValueError(f"{path.name}: must begin with a section `# NAME` for a method")
    docs: dict[str, MethodDoc] = {}
    for name, text in zip(sections[::2], sections[1::2], strict=True):
        name = name.strip()
        if name in docs:
            raise ValueError(f"{path.name}: two sections `# {name}`; keep one")
        docs[name] = _read_section(f"{path.name}, {name}", text)
    return docs


def _read_section(where: str, text: str) -> MethodDoc:
    description, *parts = re.split(r"(?m)^## +(.+)$", text)
    found = dict(zip((title.strip() for title in parts[::2]), parts[1::2], strict=True))
    knobs, published = found.pop("Knobs", ""), found.pop("Published figures", "")
    for title in found:
        raise ValueError(f"{where}: unknown subsection {title!r}; use Knobs or Published figures")
    paragraphs = (" ".join(part.split()) for part in description.strip().split("\n\n"))
    return MethodDoc(
        "\n\n".join(paragraphs), _read_knobs(where, knobs), _read_table(where, published)
    )


def _read_knobs(where: str, text: str) -> dict[str, str]:
    knobs = {}
    for item in re.split(r"\n(?=- )", text.strip()) if text.strip() else ():
        match = KNOB.fullmatch(" ".join(item.split()))
        if match is None:
            raise ValueError(f'{where}: {item[:60]!r} is not of the form "- `knob`: text"')
        knobs[match[1]] = match[2]
    return knobs


def _read_table(where: str, text: str) -> tuple[PublishedFigure, ...]:
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in text.splitlines()
        if line.strip() and not RULE.fullmatch(line.strip())
    ]
    if rows and rows[0] != COLUMNS:
        raise ValueError(f"{where}: the table has the columns {', '.join(COLUMNS)}")
    for row in rows:
        if len(row) != len(COLUMNS) or not all(row):
            raise ValueError(f"{where}: {' | '.join(row)[:60]!r} has not {len(COLUMNS)} cells")
    return tuple(PublishedFigure(*row) for row in rows[1:])
