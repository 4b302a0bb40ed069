"""Markdown tables: printed by commands, or written into README.md between two marker lines.

No library: tabulate and rich pad every cell to the longest of its column, so one cell of prose
widens every line of README.md by hundreds of blanks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

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


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """`markdown_table` of lines whose second one is the rule."""
    return markdown_table(lines[0], lines[2:])


def section_marks(name: str) -> tuple[str, str]:
    """The lines before and after the table `name` in README.md."""
    return f"<!-- {name} -->\n", f"<!-- end of {name} -->"


def replace_section(document: str, text: str, name: str) -> str:
    """`document` with `text` between the marks of `name`; ValueError if a mark is missing."""
    start, end = section_marks(name)
    before, found, rest = document.partition(start)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(
            f"README.md: {(end if found else start).strip()} is missing; add the marks"
        )
    return before + start + text + end + after


def update_readme(text: str, name: str) -> None:
    """Replace the section `name` of README.md in the working directory."""
    path = Path("README.md")
    path.write_text(replace_section(path.read_text("utf-8"), text, name), "utf-8")


def table_command(
    name: str,
    about: str,
    table: Callable[[], str],
    section: str,
    arguments: Sequence[str] | None = None,
) -> None:
    """Command line that prints a table or writes it into README.md.

    Args:
        name: the command, as in `python -m engine NAME`.
        about: its description for `--help`.
        table: makes the Markdown.
        section: the name of its marks in README.md.
        arguments: the command line; None takes that of the process.
    """
    parser = argparse.ArgumentParser(prog=f"python -m engine {name}", description=about)
    parser.add_argument("--write-readme", action="store_true", help="update README.md's table")
    if parser.parse_args(arguments).write_readme:
        update_readme(table(), section)
    else:
        print(table(), end="")
