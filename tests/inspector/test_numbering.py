"""People read layers, steps and positions counted from 1; code counts them from 0."""

import csv
import re

import pytest

from inspector.files.tables import steps_table, tokens_table
from inspector.lessons.lessons import LESSONS
from tests.support.browser import ROOT

SCRIPTS = sorted((ROOT / "inspector" / "web" / "src").rglob("*.ts"))
TEMPLATES = sorted((ROOT / "inspector" / "static").rglob("*.html"))
SHOWN = re.compile(r"\b([Ll]ayer|[Ss]tep|[Pp]osition) (?:\$\{|\" \+ )([^}]{1,60})")
PLUS_ONE = re.compile(r"(?:[\w.[\]]+ \+ )+1$")
NUMBER = re.compile(r"(?:[\w[\]]+\.)+(?:stepNumber|number)\(")  # of a lane, counted from 1
# Counts of the steps done, and labels.
COUNTED = {
    "frame", "lane.before + frame", "steps", "tick(x)", "tick(y)",
    "stepNumber",
}  # fmt: skip


def counted_from_one(expression):
    known = expression in COUNTED or NUMBER.match(expression)
    return bool(known or PLUS_ONE.match(expression))


def test_scripts_show_indices_plus_one():
    shown = [(path.name, *found) for path in SCRIPTS for found in SHOWN.findall(path.read_text())]
    assert len(shown) > 20
    assert [one for one in shown if not counted_from_one(one[2])] == []


@pytest.mark.parametrize("text", ["`Step ${step}`", '"layer " + layer', "`position ${x + 10}`"])
def test_an_index_that_is_shown_as_it_is_is_found(text):
    ((_, expression),) = SHOWN.findall(text)
    assert not counted_from_one(expression)


def test_no_text_of_the_page_names_a_layer_0():
    texts = [path.read_text() for path in (*SCRIPTS, *TEMPLATES)]
    texts += [path.read_text() for path in (ROOT / "inspector").rglob("*.py")]
    assert not [found for text in texts for found in re.findall(r"\b[Ll]ayer 0\b", text)]


def test_lessons_count_from_one_where_they_are_read():
    drift = next(lesson for lesson in LESSONS if lesson.key == "drift")
    assert drift.start["layer"] == 4
    assert "layer 5" in drift.ask


def test_tables_count_from_one(recorded):
    trace = recorded[1]
    steps = list(csv.DictReader(steps_table(trace).splitlines()))
    assert [int(row["step"]) for row in steps] == list(range(1, trace.steps + 1))
    assert {int(row["block"]) for row in steps} == {1}
    assert int(steps[0]["block_step"]) == 1
    tokens = list(csv.DictReader(tokens_table(trace).splitlines()))
    assert int(tokens[0]["position"]) == 1
    assert min(int(row["step"]) for row in tokens if row["step"]) == 1
