"""The search in rounds, with an engine whose speed and answers are set by the test."""

import numpy as np
import pytest

from engine.advise.advisor import CacheAdvice, finalists
from engine.advise.kept import kept
from engine.advise.measuring import Measured, Measuring
from engine.advise.prediction import Prediction
from engine.advise.request import AdviceRequest
from engine.advise.search import (
    CacheSearch,
    NoSettingError,
    better,
    promising,
    search_at_random,
    search_cache,
    spread,
)
from engine.advise.search_space import grid, published, with_cache, without_repeats
from engine.batch.journal import Journal
from engine.batch.outcome import Outcome
from engine.batch.prompts import Prompt
from engine.batch.settings import NamedSpec
from engine.config.spec import RunSpec
from engine.core.control import Control
from engine.core.events import RunFinished, RunStarted, Waiting

BASE = RunSpec(gen_length=16, block_length=16, steps=16)
PROMPTS = tuple(Prompt(f"prompt {i}", "4") for i in range(24))
STOP = 9


class Engine:
    """dLLM-Cache whose time falls, and whose answers get worse, with the update ratio.

    A ratio of 0.25 and more keeps every answer. `stop_at`: the run in which the user stops;
    `wrong`: plain decoding has no answer right either.
    """

    def __init__(self, stop_at=None, wrong=False):
        self.runs, self.control, self.stop_at, self.wrong = [], Control(), stop_at, wrong

    def run(self, spec):
        self.runs.append(spec)
        if len(self.runs) == self.stop_at:
            self.control.stop()
        ratio = 1.0 if spec.cache == "none" else spec.knobs.get("dllm_cache.recompute_ratio", 0.25)
        index = int(spec.prompt.split()[1])
        right = not self.wrong and (ratio >= 0.25 or index % 4 == 0)
        canvas = np.array([[1, 5, 6 if right else 7, STOP]], np.int32)
        mask = np.array([[True, False, False, False]])
        yield RunStarted(
            spec=spec.to_dict(), model={"stop_ids": [STOP], "vocabulary": "v"}, environment={},
            canvas=canvas, prompt_mask=mask, fixed_mask=~mask, pad_mask=mask,
        )  # fmt: skip
        metrics = {
            "nfe": 16, "text_nfe": 8, "total_ms": 10 + 90 * ratio, "text_ms": 5.0,
            "gflops": ratio, "recomputed": ratio, "cache_bytes": 0,
        }  # fmt: skip
        reason = "stopped" if self.control.state == "stopped" else "done"
        answer = (5, 6 if right else 7)
        yield RunFinished(reason, canvas, ("so 4" if right else "so 5",), metrics, answer=answer)


def setup(engine, path=None, **changes):
    asked = {"keep": 0.95, "kind": "accuracy", "candidates": 8} | changes
    request = AdviceRequest(BASE, ("dllm_cache",), PROMPTS, **asked)
    plain = NamedSpec("plain decoding", request.plain)
    where = {"checkpoint": "abc"}
    measuring = Measuring(
        engine.run, lambda spec: where, plain, request.kind, Journal(path), engine.control
    )
    return request, measuring


def predict(spec):
    ratio = spec.knobs.get("dllm_cache.recompute_ratio", 0.25)
    return Prediction(np.full(16, ratio / 16), ratio, 0, 1 - ratio)


def searched(engine, path=None, derived=(), **changes):
    request, measuring = setup(engine, path, **changes)
    settings = grid(BASE, "dllm_cache")
    found = CacheSearch("dllm_cache", len(settings))
    progress = list(search_cache(request, found, settings, derived, "llada", predict, measuring))
    return request, found, progress


def test_the_fastest_setting_that_keeps_enough_is_found():
    engine = Engine()
    request, found, _ = searched(engine)
    whole = {n: found.measured[n] for n in found.whole if n not in found.references}
    best = max((m for m in whole.values() if m.kept.share >= 0.95), key=lambda m: m.speed_up)
    assert best.named.spec.knobs["dllm_cache.recompute_ratio"] == 0.25
    assert found.runs < found.grid * len(request.search_prompts) / 5
    names = finalists(CacheAdvice(found), request.keep)
    assert names[0] == "dllm_cache: defaults"
    assert best.speed_up == max(
        found.measured[n].speed_up for n in names if found.measured[n].kept.share >= 0.95
    )


def test_settings_that_follow_from_recorded_drifts_are_predicted_and_one_is_run():
    ratios = (0.3, 0.4, 0.45)
    derived = [with_cache(BASE, "dllm_cache", {"dllm_cache.recompute_ratio": r}) for r in ratios]
    _, found, _ = searched(Engine(), derived=derived)
    assert len(found.fitted) == len(ratios)
    assert set(found.fitted) <= set(found.predictions)
    run = [name for name in found.fitted if name in found.measured]
    assert run
    assert {CacheAdvice(found).origin(name) for name in run} == {"fitted"}


def test_runs_are_counted_while_they_are_made_and_settings_beside_the_grid_are_told():
    ratios = (0.3, 0.4, 0.45)
    derived = [with_cache(BASE, "dllm_cache", {"dllm_cache.recompute_ratio": r}) for r in ratios]
    request, measuring = setup(Engine())
    settings = grid(BASE, "dllm_cache")
    found = CacheSearch("dllm_cache", len(settings))
    steps = search_cache(request, found, settings, derived, "llada", predict, measuring)
    counts = [found.runs for _ in steps]
    assert 0 in counts
    assert len(set(counts)) > 3
    assert found.runs == counts[-1] > 0
    known = [found.measured[name].named.spec for name in found.references]
    assert len(settings) + found.others == len(without_repeats([*settings, *known, *derived]))
    assert found.others > len(ratios)


def test_accuracy_that_plain_decoding_lacks_is_named_and_the_runs_are_kept(tmp_path):
    path = tmp_path / "runs.jsonl"
    with pytest.raises(ValueError, match="answer: plain decoding gives none of the 8 known"):
        searched(Engine(wrong=True), path)
    assert path.read_text().count("\n") > 8


def test_the_prediction_ranks_the_settings():
    _, found, _ = searched(Engine())
    ranks = found.correlations()
    assert ranks["time"] == pytest.approx(1)
    assert ranks["kept"] > 0.5
    assert ranks["settings"] >= 8


def test_each_run_has_one_of_plain_decoding_in_its_turn():
    engine = Engine()
    searched(engine)
    plain = [i for i, spec in enumerate(engine.runs) if spec.cache == "none"]
    assert plain[0] == 0
    for start, end in zip(plain, [*plain[1:], len(engine.runs)], strict=True):
        assert len({spec.prompt for spec in engine.runs[start:end]}) == 1
        assert end > start + 1


def test_the_time_left_counts_no_waiting(monkeypatch):
    """A run waits 100 s and computes for 1 s; beside each there is one of plain decoding."""
    now, engine = [0.0], Engine()
    monkeypatch.setattr("engine.batch.runner.time.perf_counter", lambda: now[0])

    def run(spec):
        yield Waiting("lock")
        now[0] += 100
        yield Waiting("warmup")
        yield from engine.run(spec)
        now[0] += 1

    plain = NamedSpec("plain decoding", BASE)
    measuring = Measuring(run, lambda spec: {}, plain, "tokens", Journal(), engine.control)
    one = NamedSpec("one", with_cache(BASE, "dllm_cache", {}))
    assert [x.seconds_left for x in measuring.measure("stage", [one], PROMPTS[:3])] == [4, 2, 0]


def test_a_stopped_search_keeps_what_it_has_and_goes_on_from_there(tmp_path):
    path = tmp_path / "runs.jsonl"
    first = Engine(stop_at=40)
    _, found, _ = searched(first, path)
    assert len(first.runs) == 40
    assert found.measured
    again, whole = Engine(), Engine()
    _, continued, _ = searched(again, path)
    _, want, _ = searched(whole)
    assert len(again.runs) < len(whole.runs)
    assert set(continued.measured) == set(want.measured)
    for name, one in continued.measured.items():
        assert one.speed_up == want.measured[name].speed_up


def test_two_names_of_one_spec_share_their_runs(tmp_path):
    spec = with_cache(BASE, "dllm_cache", {})
    both, speed_ups = [NamedSpec("preset", spec), NamedSpec("drawn", spec)], []
    for runs in (2 * 3, 0):  # the second search continues the first
        engine = Engine()
        _, measuring = setup(engine, tmp_path / "runs.jsonl")
        list(measuring.measure("stage", both, PROMPTS[:3]))
        assert len(engine.runs) == runs
        figures = measuring.figures(both, PROMPTS[:3])
        assert figures["preset"].pairs == figures["drawn"].pairs
        speed_ups.append(figures["preset"].speed_ups)
    assert speed_ups[0] == speed_ups[1]


def test_runs_of_another_version_of_the_code_are_made_again(tmp_path, monkeypatch):
    runs = []
    for version in ("old", "new", "new"):
        monkeypatch.setattr("engine.batch.journal.code_version", lambda *names, v=version: v)
        engine = Engine()
        searched(engine, tmp_path / "runs.jsonl")
        runs.append(len(engine.runs))
    assert runs[0] == runs[1] > runs[2] == 0


class Refusing(Engine):
    """An engine on which plain decoding fails on a prompt, or settings on all of them."""

    def __init__(self, prompt=None, settings=()):
        super().__init__()
        self.prompt, self.settings = prompt, [one.knobs for one in settings]

    def run(self, spec):
        plain = spec.cache == "none"
        if spec.prompt == self.prompt if plain else spec.knobs in self.settings:
            raise ValueError("memory: none is left")
        yield from super().run(spec)


def test_a_prompt_on_which_plain_decoding_fails_is_left_out_of_the_search():
    _, found, _ = searched(Refusing(prompt=PROMPTS[0].prompt))
    assert found.whole
    assert {len(found.measured[name].pairs) for name in found.whole} == {7}
    assert finalists(CacheAdvice(found), 0.95)


def test_a_search_goes_on_without_defaults_that_cannot_be_run():
    defaults = with_cache(BASE, "dllm_cache", {})
    _, found, _ = searched(Refusing(settings=[defaults]))
    names = finalists(CacheAdvice(found), 0.95)
    assert names
    assert "dllm_cache: defaults" not in names


def test_a_search_goes_on_where_no_published_setting_can_be_run():
    known = [one.spec for one in published(BASE, "dllm_cache", "llada")]
    _, found, _ = searched(Refusing(settings=known))
    assert found.whole
    assert not found.whole & set(found.references)
    every = [*known, *grid(BASE, "dllm_cache")]
    with pytest.raises(NoSettingError, match="no setting of dllm_cache could be run"):
        searched(Refusing(settings=every))


def test_a_search_at_random_makes_as_many_runs_at_most():
    engine = Engine()
    request, measuring = setup(engine)
    settings = grid(BASE, "dllm_cache")
    drawn = CacheSearch("dllm_cache", len(settings))
    list(search_at_random(request, drawn, settings, measuring))
    _, found, _ = searched(Engine())
    assert 0 < drawn.runs <= found.runs
    assert drawn.whole


def measured(name, ms, right):
    pairs = tuple((Outcome("done", right=True, ms=100.0), Outcome("done", right=r, ms=ms))
                  for r in right)  # fmt: skip
    return Measured(NamedSpec(name, BASE), pairs, kept("accuracy", pairs))


def test_the_better_half_is_fast_and_may_keep_enough():
    names = ("fast but wrong", "fast", "slow", "unknown")
    found = {
        "fast but wrong": measured(names[0], 10, [False] * 8),
        "fast": measured(names[1], 20, [True] * 8),
        "slow": measured(names[2], 50, [True] * 8),
    }
    candidates = [NamedSpec(name, BASE) for name in names]
    assert [one.name for one in better(candidates, found, 0.9, 2)] == ["fast", "slow"]


def test_candidates_spread_over_the_predicted_front():
    rows = {f"s{i}": (i, 10 - i) for i in range(10)} | {"beaten": (5, 20)}
    predictions = {
        n: Prediction(np.ones(1), 1, 0, e, time=t, kept=0.5) for n, (t, e) in rows.items()
    }
    candidates = [NamedSpec(name, BASE) for name in rows]
    assert [one.name for one in spread(candidates, predictions, 4)] == ["s0", "s3", "s6", "s9"]


def test_the_second_half_is_fast_and_predicted_to_keep_enough():
    rows = {"a": (3, 0.99), "b": (2, 0.96), "c": (1, 0.90), "d": (0.5, 0.2)}
    predictions = {n: Prediction(np.ones(1), 1, 0, 1 - k, t, k) for n, (t, k) in rows.items()}
    candidates = [NamedSpec(name, BASE) for name in rows]
    assert [one.name for one in promising(candidates, predictions, 0.95, 3)] == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompts": PROMPTS[:3]}, "prompts: 3 are too few"),
        ({"prompts": (*PROMPTS, PROMPTS[0])}, "prompts: two are the same"),
        ({"candidates": 1}, "candidates: 1 is outside"),
        ({"caches": ()}, "cache: name each method once"),
        ({"caches": ("dual", "dual")}, "cache: name each method once"),
        ({"caches": ("none",)}, "cache: none has no settings to search"),
    ],
)
def test_a_request_that_cannot_be_searched_is_refused(changes, words):
    fields = {"base": BASE, "caches": ("dual",), "prompts": PROMPTS, "kind": "answers"}
    with pytest.raises(ValueError, match=f"^{words}"):
        AdviceRequest(**(fields | changes))
