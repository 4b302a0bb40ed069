"""Markdown tables: printed by commands, or written into a file between two marker lines.

Also the cells and notes of accuracies by family, for the results and for the Methods tab.

No library: tabulate and rich pad every cell to the longest of its column, so one cell of prose
widens every line by hundreds of blanks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from engine.core.files import write_atomically

README, RESULTS_README = Path("README.md"), Path("assets/results/README.md")
SIGNIFICANT = 0.05  # a p-value below it
DAGGER = "†"
DAGGER_NOTE = (
    f"{DAGGER} marks a difference from the first row with p < {SIGNIFICANT} (McNemar's exact test)."
)
MAX_PADDING = 24  # characters that a cell is padded to; longer columns are left ragged


def markdown_table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table, one line per row, each ended by a newline.

    Cells are converted with `str`; narrow columns are padded so that the text also reads in a
    terminal. Raises ValueError if a row has another number of cells than `head`.
    """
    lines = [[_cell(cell) for cell in line] for line in (head, *rows)]
    widths = [min(max(map(len, column)), MAX_PADDING) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * max(width, 3) for width in widths])
    return "".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |\n"
        for line in lines
    )


def _cell(value: object) -> str:
    """A cell's text, which neither ends its column nor its line."""
    return " ".join(str(value).splitlines()).replace("|", "\\|")


def percentage(share: float, digits: int = 1, sign: str = "") -> str:
    """A share of 1 as a percentage; `sign` `+` also marks one above 0."""
    return f"{100 * share:{sign}.{digits}f} %"


def percent(found: Mapping[str, Any]) -> str:
    """The accuracy in a family with its standard error."""
    return f"{100 * found['accuracy']:.1f} ± {100 * found['standard_error']:.1f} %"


def measured_on(results: Mapping[str, Any]) -> str:
    """The date of the measured results, and that of the accuracies if they are of a later run."""
    date, later = results["environment"]["date"], results.get("accuracy")
    return f"{date} (accuracies: {later['date']})" if later else f"{date}"


def marked(found: Mapping[str, Any], text: str) -> str:
    """The text, with a dagger if the accuracy differs significantly from the first row's."""
    return f"{text} {DAGGER}" if found["p"] < SIGNIFICANT else text


def mean_agreement(row: Mapping[str, Any]) -> str:
    """The share of tokens that equal those of the first row, mean over the families.

    Empty if the row has another vocabulary.
    """
    shares = [found["agreement"] for found in row["families"].values()]
    return "" if None in shares else percentage(fmean(shares))


def problem_counts(row: Mapping[str, Any]) -> str:
    """The numbers of problems of a row by family, or the one of all."""
    found = row["families"].values()
    if len({one["problems"] for one in found}) == 1:
        each = " of each family" * (len(found) > 1)
        return f"{next(iter(found))['problems']} problems{each}"
    return ", ".join(f"{one['problems']} of {family_in_words(one)}" for one in found)


def family_in_words(found: Mapping[str, Any]) -> str:
    """The label of a family within a sentence."""
    label = str(found["label"])
    return label[0].lower() + label[1:]


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


def check_section(file: Path, name: str) -> None:
    """Raise ValueError naming the file if it cannot be read or has no section `name`."""
    _replaced(file, "", name)


def update_section(file: Path, text: str, name: str) -> None:
    """Replace the section `name` of a file.

    Raises ValueError as `check_section`, OSError if the file cannot be written.
    """
    write_atomically(file, _replaced(file, text, name).encode())


def _replaced(file: Path, text: str, name: str) -> str:
    try:
        return replace_section(file.read_text("utf-8"), text, name)
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: {error}") from None
