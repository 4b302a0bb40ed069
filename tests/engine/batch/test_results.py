"""Figures of a batch from outcomes made by hand."""

import pytest

from engine.batch.outcome import Outcome
from engine.batch.prompts import Prompt
from engine.batch.results import BatchResults
from engine.batch.settings import NamedSpec
from engine.config.spec import RunSpec

SETTINGS = (NamedSpec("plain", RunSpec()), NamedSpec("dual", RunSpec(cache="dual")))


def outcome(ids, number, right, ms, forwards=8):
    return Outcome(
        "done", ids=tuple(ids), number=number, right=right, ms=ms, text_ms=ms / 2,
        forwards=forwards, text_forwards=forwards // 2, recomputed=0.5, gflops=2.0,
    )  # fmt: skip


@pytest.fixture
def results():
    found = BatchResults(SETTINGS, [Prompt("a", "1"), Prompt("b", "2"), Prompt("c")])
    for prompt, (a, b) in enumerate((
        (outcome([1, 2], 1, True, 100), outcome([1, 3], 1, True, 50)),
        (outcome([1, 2, 3, 4], 2, True, 100), outcome([1, 2, 3], 5, False, 25, forwards=4)),
        (outcome([7], None, None, 100), outcome([7], None, None, 100)),
    )):  # fmt: skip
        found.add(0, prompt, a)
        found.add(1, prompt, b)
    return found


def test_agreement_answers_and_right_ones(results):
    row = results.summary()[1]
    assert row["agreement"] == pytest.approx((0.5 + 0.75 + 1) / 3)
    assert row["quantiles"] == pytest.approx([0.5, 0.625, 0.75, 0.875, 1])
    low, high = row["interval"]
    assert 0.5 <= low < row["agreement"] < high <= 1
    assert row["same_answer"] == pytest.approx(2 / 3)
    assert (row["known"], row["right"], row["gained"], row["lost"], row["p"]) == (2, 1, 0, 1, 1)


def test_a_text_is_the_same_answer_if_it_is_the_same_or_both_are_right():
    """Its last number says nothing, so such outcomes have no number."""
    found = BatchResults(SETTINGS, [Prompt(str(n), "7, 8") for n in range(3)])
    for prompt, (ids, right) in enumerate((([1], (False, False)), ([2], (True, True)),
                                           ([9], (False, True)))):  # fmt: skip
        found.add(0, prompt, outcome([9], None, right[0], 100))
        found.add(1, prompt, outcome(ids, None, right[1], 100))
    assert found.summary()[1]["same_answer"] == pytest.approx(2 / 3)


def test_means_and_ratios(results):
    row = results.summary()[1]
    assert row["speed_up"] == row["text_speed_up"] == 2
    assert row["forwards"] == pytest.approx(20 / 3)
    assert row["tokens"] == 2
    assert row["tokens_per_s"] == pytest.approx(6 / 0.175)


def test_a_setting_without_runs_has_no_figures():
    row = BatchResults(SETTINGS, [Prompt("a")]).summary()[1]
    assert (row["runs"], row["pairs"]) == (0, 0)
    for name in ("agreement", "interval", "p", "speed_up", "forwards", "tokens_per_s"):
        assert row[name] is None


def test_each_prompt_has_a_row_with_its_runs(results):
    first = results.table()[0]
    assert (first["prompt"], first["answer"]) == ("a", "1")
    assert [run["agreement"] for run in first["runs"]] == [1, 0.5]
    assert [run["tokens"] for run in first["runs"]] == [2, 2]
    assert "ids" not in first["runs"][0]


def test_tokens_of_two_vocabularies_are_not_compared():
    """The same ids in another vocabulary agree in nothing; the same text is the same answer."""
    ours = Outcome("done", text="so it is", ids=(1, 2), vocabulary="x", ms=1.0)
    theirs = Outcome("done", text="so it is", ids=(1, 2), vocabulary="y", ms=1.0)
    found = BatchResults(SETTINGS, [Prompt("a")])
    found.add(0, 0, ours)
    found.add(1, 0, theirs)
    row = found.summary()[1]
    assert row["agreement"] is row["interval"] is row["quantiles"] is None
    assert row["same_answer"] == 1
    assert found.run(0, 1)["agreement"] is None
    found.add(1, 0, Outcome("done", text="so it is", ids=(1, 2), vocabulary="x", ms=1.0))
    row = found.summary()[1]
    assert (row["agreement"], row["interval"]) == (1, None), "a single pair has no interval"
