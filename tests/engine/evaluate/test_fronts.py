"""The fronts of the methods: the bar on made-up figures, and the command on a micro checkpoint."""

import json

import pytest

from engine.advise.advisor import CacheAdvice
from engine.advise.kept import kept
from engine.advise.measuring import Measured
from engine.advise.request import LEAST_CANDIDATES, runs_of_rounds
from engine.advise.search import CacheSearch
from engine.advise.space import grid, searchable
from engine.batch import outcome
from engine.batch.outcome import Outcome
from engine.batch.settings import NamedSpec, with_fields
from engine.config.spec import RunSpec
from engine.evaluate import fronts
from engine.evaluate.fronts_text import section, svg
from tests.support.micro import model_of


def measured(name, ms, right=(True, True, True, True)):
    pairs = tuple((Outcome("done", right=True, ms=12), Outcome("done", right=r, ms=ms))
                  for r in right)  # fmt: skip
    return Measured(NamedSpec(name, RunSpec(cache="dual")), pairs, kept("accuracy", pairs))


def found(random_ms=6.0, runs=10):
    search = CacheSearch("dual", 20, ("default", "preset"), runs=runs)
    search.measured = {"own": measured("own", 4)}
    held = {"default": measured("default", 8), "preset": measured("preset", 6),
            "own": measured("own", 4), "drawn": measured("drawn", random_ms)}  # fmt: skip
    return CacheAdvice(search, None, held, frozenset(held), "own")


def test_the_bar_compares_with_the_best_of_each_kind():
    judged = fronts.bar(found(), 5)
    assert judged["met"]
    assert judged["budget"] == 0.1
    assert judged["default"]["ratio"] == pytest.approx(2)
    assert judged["published"]["name"] == "preset"
    assert judged["random"]["ratio"] == pytest.approx(1.5)


@pytest.mark.parametrize("changes", [{"random_ms": 3.0}, {"runs": 20}])
def test_the_bar_is_not_met_by_a_slower_setting_or_too_many_runs(changes):
    assert not fronts.bar(found(**changes), 5)["met"]


def test_answers_gained_and_lost_are_paired():
    own, other = measured("own", 4, (True, False, True, True)), measured("b", 4, (False, True) * 2)
    row = fronts.compared(own, other)
    assert (row["gained"], row["lost"]) == (2, 1)


def test_no_chosen_setting_does_not_meet_the_bar():
    none = found()
    none.chosen = None
    assert fronts.bar(none, 5) == {"budget": 0.1, "met": False}


@pytest.mark.parametrize("cache", searchable(model_of("mha").info))
def test_a_search_can_need_less_than_its_budget(cache):
    settings = len(grid(with_fields(RunSpec(), fronts.LENGTHS), cache))
    count = fronts.affordable(12, settings, 24)
    assert LEAST_CANDIDATES <= count <= 12
    assert runs_of_rounds(count, 24) < fronts.BUDGET * settings * 24


def document():
    rows = []
    for name, origin, chosen in (("dual: a<b", "searched", True), ("dual: b", "published", False)):
        share = {"share": 0.99, "p": 1.0}
        rows.append({"name": name, "from": origin, "chosen": chosen, "speed_up": 2, "kept": share,
                     "speed_up_low": 1.5, "speed_up_high": 2.5})  # fmt: skip
    row = {"cache": "dual", "held_back": rows, "front": ["dual: a<b"]}
    return {
        "held_out": 4, "family": "f", "shots": 0, "model": "m", "searched": 2, "keep": 0.95,
        "environment": {"device_name": "cpu"}, "methods": [row | {"bar": fronts.bar(found(), 5)}],
    }  # fmt: skip


def test_table_and_chart_show_the_chosen_setting():
    text = section(document())
    assert "2.00x" in text
    assert "1.50x (1.50 to 1.50), p 1" in text
    assert "a&lt;b" in svg(document())


def test_the_command_continues_from_its_runs(checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fronts, "LENGTHS", {"gen_length": 8, "block_length": 4, "steps": 8})
    monkeypatch.setattr(outcome, "is_right", lambda text, answer: True)  # of a random model
    flags = ["--model", str(checkpoint), "--out", str(tmp_path), "--caches", "dual",
             "--held-out", "4", "--candidates", "4"]  # fmt: skip
    fronts.main([*flags, "--estimate"])
    assert "1 methods, at most" in capsys.readouterr().out
    assert not (tmp_path / "runs.jsonl").exists()
    fronts.main(flags)
    lines = (tmp_path / "runs.jsonl").read_text()
    (row,) = json.loads((tmp_path / "fronts.json").read_text())["methods"]
    assert row["cache"] == "dual"
    fronts.main(flags)
    assert (tmp_path / "runs.jsonl").read_text() == lines
