"""People read layers, steps and positions counted from 1; code counts them from 0."""

import csv
import re

import pytest

from inspector.files.tables import steps_table, tokens_table
from inspector.lessons.lessons import LESSONS
from tests.support.browser import ROOT

STATIC = ROOT / "inspector" / "static"
SCRIPTS = sorted(STATIC.rglob("*.js"))
SHOWN = re.compile(r'\b([Ll]ayer|[Ss]tep|[Pp]osition) " \+ (.{1,60})')
PLUS_ONE = re.compile(r"\([^()]*(?:\([^()]*\)[^()]*)* \+ 1\)")
COUNTED = {"when": "const when = lane.rows.length", "frame": "frame counts the steps done"}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_show_indices_plus_one(path):
    for noun, expression in SHOWN.findall(path.read_text()):
        plain = PLUS_ONE.match(expression) or expression.split(" ")[0].rstrip(";,") in COUNTED
        assert plain, f"{path.name}: {noun} {expression}"


def test_no_text_of_the_page_names_a_layer_0():
    texts = [path.read_text() for path in STATIC.rglob("*") if path.suffix in (".js", ".html")]
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
