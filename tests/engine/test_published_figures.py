"""The published figures in the documents of methods are those of their sources.

Every row carries a transcript of the source's cells (engine.core.method_docs). Neither the figure
nor the lengths and shots have a number that the transcript lacks, `a → b` is in the transcript's
order, and decimals in the conditions are in the transcript too.

The transcripts themselves are compared with the notes that they are taken from, a folder of
Markdown files named by the environment variable DRIFTSCOPE_SPEC; without it that test is skipped.
The notes have no cells of the sources in NOT_IN_NOTES: those were transcribed from the papers.
"""

import os
import re
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from engine.catalog import method_doc, policies, unmaskers

METHODS = policies() | unmaskers()
PUBLISHED = {name: method_doc(cls).published for name, cls in METHODS.items()}
ROWS = [row for rows in PUBLISHED.values() for row in rows]
NOTES = os.environ.get("DRIFTSCOPE_SPEC", "")
NOT_IN_NOTES = (
    "Fast-dLLM's paper",
    "paper, as a public summary quotes it",
    "paper, as two public summaries quote it",
)
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
DECIMAL = re.compile(r"(?<![\w.-])\d+\.\d+(?!\w)")
PAIR = re.compile(r"(\d+(?:\.\d+)?) → (\d+(?:\.\d+)?)")
TABLE = re.compile(r"Tables? \d+( and \d+)?|number not known|none")
each_method = pytest.mark.parametrize("name", [name for name, rows in PUBLISHED.items() if rows])


def numbers(text):
    """The numbers of a text as floats; digits inside a name (GSM8K) do not count."""
    return [float(found) for found in NUMBER.findall(THOUSANDS.sub("", text))]


def faults(row):
    """What a row says that its transcript does not: numbers, and pairs in the wrong order."""
    cells, _, settings = row.transcript.partition(" // ")
    printed, told = numbers(cells), numbers(f"{row.lengths}; {row.shots}")
    lacking = (
        Counter(numbers(row.figure))
        - Counter(printed)
        + (Counter(told) - Counter(numbers(settings)))
    )
    found = [f"{number:g} is not in the transcript" for number in lacking]
    known = set(numbers(row.transcript))
    found += [
        f"{n} of the conditions" for n in DECIMAL.findall(row.conditions) if float(n) not in known
    ]
    for before, after in PAIR.findall(row.figure):
        places = [[i for i, n in enumerate(printed) if n == float(one)] for one in (before, after)]
        if all(places) and before != after and places[0][0] > places[1][-1]:
            found.append(f"{before} is after {after}")
    return found


def normalised(text):
    """Text with single spaces and without the bars of a table, which a cell cannot hold."""
    return " ".join(text.replace("|", "¦").split())


def missing(row, notes):
    """The passages of a row's transcript that the notes do not have."""
    passages = re.split(r" … | // ", row.transcript.removesuffix(" // none"))
    return [part for part in passages if normalised(part) not in notes]


@pytest.fixture(scope="module")
def notes():
    if not NOTES:
        pytest.skip("DRIFTSCOPE_SPEC does not name a folder with the notes on the papers")
    found = sorted(Path(NOTES).glob("*.md"))
    assert found, f"DRIFTSCOPE_SPEC: no Markdown file in {NOTES}"
    return normalised("\n".join(path.read_text("utf-8") for path in found))


@each_method
def test_a_figure_is_that_of_its_transcript(name):
    assert [(row.figure, found) for row in PUBLISHED[name] if (found := faults(row))] == []


def raised(text, end):
    """The text with its digit before `end` raised by one."""
    return f"{text[: end - 1]}{(int(text[end - 1]) + 1) % 10}{text[end:]}"


@each_method
def test_an_altered_number_is_found(name):
    for row, field in product(PUBLISHED[name], ("figure", "lengths", "shots")):
        text = getattr(row, field)
        for match in NUMBER.finditer(text):
            altered = raised(text, match.end())
            assert faults(replace(row, **{field: altered})), altered


def test_swapped_numbers_are_found():
    """Of every pair whose numbers the transcript has once."""
    swapped = 0
    for row in ROWS:
        printed = Counter(numbers(row.transcript.partition(" // ")[0]))
        for match in PAIR.finditer(row.figure):
            if [printed[float(match[i])] for i in (1, 2)] == [1, 1]:
                figure = row.figure.replace(match[0], f"{match[2]} → {match[1]}")
                assert faults(replace(row, figure=figure)), figure
                swapped += 1
    assert swapped > 60


@each_method
def test_a_row_names_its_table_gpu_lengths_and_shots(name):
    for row in PUBLISHED[name]:
        assert TABLE.fullmatch(row.table)
        assert numbers(row.figure)
        assert numbers(row.lengths) or row.lengths == "not stated"
        assert numbers(row.shots) or row.shots in ("not stated", "none")
        measured = row.gpu != "none"
        assert measured != row.conditions.startswith("Settings, not measurements")
        assert (row.shots == "none") == (not measured)
        assert len(row.conditions) > 10
        assert len(row.source) >= len("paper")


@each_method
def test_a_transcript_stands_in_the_notes(name, notes):
    for row in PUBLISHED[name]:
        gone = missing(row, notes)
        if row.source in NOT_IN_NOTES:
            assert gone, "the notes have these cells now: take the source off NOT_IN_NOTES"
        else:
            assert gone == []
            assert row.gpu in ("none", "not stated") or row.gpu in notes


def test_a_transcript_that_is_altered_is_not_in_the_notes(notes):
    for row in ROWS:
        if row.source not in NOT_IN_NOTES:
            for match in re.finditer(r"\d+\.\d+", row.transcript):
                altered = raised(row.transcript, match.end())
                assert missing(replace(row, transcript=altered), notes), altered
