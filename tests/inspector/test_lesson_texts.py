"""What the texts of the lessons say is true of their recordings."""

from pathlib import Path

import numpy as np

from engine.trace.trace import Trace
from inspector.lessons.choices import DLLM_CHOICES
from inspector.lessons.lesson_checks import commit_call, final

FOLDER = Path(__file__).parents[2] / "assets" / "examples" / "lessons"


def load(name):
    return Trace.load(FOLDER / f"{name}.npz")


def test_equal_confidences_are_committed_from_left_to_right_after_the_text():
    arrays = load("plain").arrays()
    equal = arrays["commit_confidence"] == 1
    last_block = arrays["block"][arrays["commit_step"]] == 1
    places = arrays["commit_position"][equal & last_block]
    assert len(places) > 20
    assert (places[:-1] < places[1:]).all()


def test_lane_a_commits_a_token_a_step_and_lane_b_those_above_the_threshold():
    assert (np.bincount(load("plain").arrays()["commit_step"]) == 1).all()
    arrays = load("threshold_95").arrays()
    counts = np.bincount(arrays["commit_step"])
    assert counts.max() > 1
    sure = arrays["commit_confidence"] >= 0.95
    assert sure[counts[arrays["commit_step"]] > 1].all()


def test_the_commit_call_is_the_last_step_that_the_card_of_answer_token_1_shows():
    lanes = {"a": load("block_frozen"), "b": load("block_sub_block")}
    first = int(lanes["a"].arrays()["prompt_mask"].sum())
    computed = lanes["a"].recompute_map()[..., first].any((1, 2))
    assert commit_call(lanes, str(int(np.flatnonzero(computed)[-1]) + 1), {})[0]


def test_the_setting_that_refreshes_the_answer_least_does_not_change_the_most_tokens():
    plain = final(load("plain"))
    interval, changed = {}, {}
    for one in DLLM_CHOICES:
        trace = load(one.name)
        interval[one.name] = trace.meta["spec"]["knobs"].get("dllm_cache.response_interval", 5)
        changed[one.name] = int((final(trace) != plain).sum())
    assert changed[max(interval, key=interval.get)] < max(changed.values())


def test_layer_1_recomputes_the_answer_and_the_layers_above_it_choose():
    trace = load("spa_cache")
    prompt = int(trace.arrays()["prompt_mask"].sum())
    done = trace.recompute_map()[:, :, 2, prompt:].all(2)
    assert done[:, 0].all()
    refreshed = done[:, 1:].all(1)
    assert 1 < refreshed.sum() < len(refreshed)
    assert not done[~refreshed, 1:].any()
