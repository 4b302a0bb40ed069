"""readme: tables that commands print, and renew in README.md between two marks."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Cells as Markdown, in columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rules = [["-" * width if cell == "---" else cell.ljust(width) for cell, width in
              zip(line, widths, strict=True)] for line in lines]  # fmt: skip
    return "".join("| " + " | ".join(line) + " |\n" for line in rules)


def marks(name: str) -> tuple[str, str]:
    """The lines between which a table of this name stands."""
    return f"<!-- {name} -->\n", f"<!-- end of {name} -->"


def renewed(readme: str, text: str, name: str) -> str:
    """A README with `text` between the marks of a name; ValueError names one that is missing."""
    start, end = marks(name)
    before, found, rest = readme.partition(start)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(
            f"README.md: {(end if found else start).strip()} is missing; add the marks"
        )
    return before + start + text + end + after


def write(text: str, name: str) -> None:
    """Renew the README.md of the folder that a command runs in."""
    path = Path("README.md")
    path.write_text(renewed(path.read_text("utf-8"), text, name), "utf-8")


def table_command(
    name: str,
    about: str,
    table: Callable[[], str],
    section: str,
    arguments: Sequence[str] | None = None,
) -> None:
    """Run a command that prints a table, or renews its section of README.md.

    `name` is the command as `python -m engine NAME`, `about` its description for --help, and
    `section` the name of the marks in README.md.
    """
    parser = argparse.ArgumentParser(prog=f"python -m engine {name}", description=about)
    parser.add_argument("--write-readme", action="store_true", help="renew README.md's table")
    if parser.parse_args(arguments).write_readme:
        write(table(), section)
    else:
        print(table(), end="")
