"""Parsers shared by the commands of `python -m engine`."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.core.tables import update_section


def command_parser(name: str, description: str | None) -> ArgumentParser:
    """The parser of `python -m engine NAME`; `--help` prints the description unchanged."""
    return ArgumentParser(
        prog=f"python -m engine {name}",
        description=description,
        formatter_class=RawDescriptionHelpFormatter,
    )


def table_command(
    name: str,
    about: str,
    table: Callable[[], str],
    section: str,
    file: Path,
    arguments: Sequence[str] | None = None,
) -> None:
    """Run a command that prints a table or writes it into a Markdown file.

    Args:
        name: the command, as in `python -m engine NAME`.
        about: its description for `--help`.
        table: makes the Markdown.
        section: the name of its marks in the file.
        file: README or RESULTS_README, relative to the repository root.
        arguments: the command line; None takes that of the process.
    """
    parser = command_parser(name, about)
    parser.add_argument("--write-readme", action="store_true", help=f"update the table in {file}")
    if not parser.parse_args(arguments).write_readme:
        print(table(), end="")
        return
    try:
        update_section(file, table(), section)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None
