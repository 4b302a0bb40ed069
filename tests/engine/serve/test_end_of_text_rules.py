"""The end-of-text rule of a race: one for both lanes, also if one is guided."""

from dataclasses import replace

import numpy as np
import pytest

from engine import catalog
from engine.config.spec import RaceSpec, RunSpec
from engine.core.events import RunFinished, RunStarted, StepEvent

PROMPT = "Nuts cost 9 dollars each. Lily buys 5 nuts. How much does she pay?"
PLAIN = RunSpec(prompt=PROMPT, gen_length=64, block_length=32, steps=64)
GUIDED = replace(PLAIN, unmasker="guided", cache="dual")


def rules(*specs):
    return [spec.eos for spec in catalog.with_end_of_text_rules(specs)]


def test_runs_without_a_guider_keep_their_rule():
    for rule in ("official", "fill_safe", "fill_eager"):
        one = replace(PLAIN, eos=rule)
        assert rules(one) == [rule]
        assert rules(one, replace(one, cache="dual")) == [rule, rule]


def test_a_guided_run_gives_its_rule_to_the_run_it_is_compared_with():
    assert rules(GUIDED) == ["fill_safe"]
    assert rules(PLAIN, GUIDED) == ["fill_safe", "fill_safe"]
    assert rules(GUIDED, PLAIN) == ["fill_safe", "fill_safe"]
    eager = [replace(one, eos="fill_eager") for one in (PLAIN, GUIDED)]
    assert rules(*eager) == ["fill_eager", "fill_eager"]


def test_runs_that_ask_for_different_rules_get_them():
    assert rules(PLAIN, replace(GUIDED, eos="fill_safe")) == ["official", "fill_safe"]
    assert rules(PLAIN, replace(PLAIN, eos="fill_eager")) == ["official", "fill_eager"]


def test_the_rule_is_part_of_the_plan(shipped):
    assert shipped.plan(PLAIN)["end_of_text"] == "official"
    assert shipped.plan(GUIDED)["end_of_text"] == "fill_safe"
    both = shipped.resolve(RaceSpec(PLAIN, GUIDED))
    plans = [shipped.plan(spec) for spec in (both.a, both.b)]
    assert [plan["end_of_text"] for plan in plans] == ["fill_safe", "fill_safe"]
    assert [plan["min_forwards"] for plan in plans] == [1, 1]
    assert shipped.plan(PLAIN)["min_forwards"] == 64


def lanes_of(session, race):
    lanes = {"a": [], "b": []}
    for lane, event in session.race(race):
        lanes[lane].append(event)
    return lanes


def find(events, kind):
    return [event for event in events if isinstance(event, kind)]


def test_both_lanes_of_a_race_with_a_guided_run_stop_at_the_end_of_the_text(shipped):
    lanes = lanes_of(shipped, RaceSpec(PLAIN, GUIDED))
    alone = find(shipped.run(PLAIN), StepEvent)
    for events in lanes.values():
        (started,) = find(events, RunStarted)
        assert started.spec["eos"] == "fill_safe"
    assert len(find(lanes["a"], StepEvent)) < len(alone) == 64


def test_the_time_of_the_text_leaves_out_what_follows_it(shipped):
    finished = {}
    for rule in ("official", "fill_safe"):
        events = list(shipped.run(replace(PLAIN, eos=rule)))
        (end,) = find(events, RunFinished)
        steps, metrics = find(events, StepEvent), end.metrics
        answer = end.canvas[0, -64:]
        stops = find(events, RunStarted)[0].model["stop_ids"]
        tokens = int(np.flatnonzero(np.isin(answer, stops))[0])
        start = end.canvas.shape[1] - 64
        last = max(
            step.step for step in steps
            if ((step.positions >= start) & (step.positions < start + tokens)).any()
        )  # fmt: skip
        assert metrics["tokens"] == tokens
        assert metrics["text_nfe"] == last + 1
        spent = sum(step.step_ms for step in steps[: last + 1])
        assert metrics["text_ms"] == pytest.approx(spent)
        assert metrics["text_ms"] <= metrics["total_ms"]
        finished[rule] = metrics
    assert finished["official"]["text_nfe"] < finished["official"]["nfe"] == 64
    assert finished["official"]["text_nfe"] == finished["fill_safe"]["text_nfe"]
    assert finished["fill_safe"]["nfe"] < 64


def test_a_text_that_ends_at_once_took_no_step(shipped):
    stop = find(shipped.run(PLAIN), RunStarted)[0].model["eos_id"]
    ended = replace(PLAIN, gen_length=32, steps=32, fixed=((0, stop),))
    (end,) = find(shipped.run(ended), RunFinished)
    assert end.metrics["text_nfe"] == 0
    assert end.metrics["text_ms"] == 0
    assert end.metrics["tokens"] == 0
