"""Markdown tables: printed by commands, or written into a file between two marker lines.

No library: tabulate and rich pad every cell to the longest of its column, so one cell of prose
widens every line by hundreds of blanks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

README, RESULTS_README = Path("README.md"), Path("assets/results/README.md")
MAX_PADDING = 24  # characters that a cell is padded to; longer columns are left ragged


def markdown_table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table, one line per row, each ended by a newline.

    Cells are converted with `str`; narrow columns are padded so that the text also reads in a
    terminal. Raises ValueError if a row has another number of cells than `head`.
    """
    lines = [[str(cell) for cell in line] for line in (head, *rows)]
    widths = [min(max(map(len, column)), MAX_PADDING) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * max(width, 3) for width in widths])
    return "".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |\n"
        for line in lines
    )


def section_marks(name: str) -> tuple[str, str]:
    """The lines before and after the section `name` of a Markdown file."""
    return f"<!-- {name} -->\n", f"<!-- end of {name} -->"


def replace_section(document: str, text: str, name: str) -> str:
    """`document` with `text` between the marks of `name`; ValueError if a mark is missing."""
    start, end = section_marks(name)
    before, found, rest = document.partition(start)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{(end if found else start).strip()} is missing; add the mark")
    return before + start + text + end + after


def update_section(file: Path, text: str, name: str) -> None:
    """Replace the section `name` of a file; ValueError names the file if a mark is missing."""
    try:
        changed = replace_section(file.read_text("utf-8"), text, name)
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: {error}") from None
    file.write_text(changed, "utf-8")
