"""The engine against recorded runs of the public implementations."""

import json
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from engine.cache.methods.freecache import FreeCache
from engine.generate.capture.capturers import TapeCapturer
from engine.guider.model import GuiderReader
from engine.record.recorder import Recorder
from engine.unmask.methods.guided import Guided
from tests.conformance import flashdlm, guided, guider_calls
from tests.conformance.__main__ import main
from tests.conformance.cases import FOLDERS, Case, UnknownCaseError, read_cases
from tests.conformance.compare import FORWARDS, compare, observe, observed_differences
from tests.conformance.runs import decode
from tests.support.fixed_kernels import FixedKernels

CASES = {case.id: case for folder in FOLDERS for case in read_cases(folder)}
DUAL, ONE_STEP = "fast-dual-fixed-2tok", "free-dream-b8-1step"
SLIDING = "guided-slide16-rel2-0.5"
# Decoded by the command alone: other cases decode so too, with fewer rows. What it has alone, an
# image of more crops than its rows may show, is compared in test_conformance_llada_v.py.
LARGE = "v-capped-none-fixed"
FAMILY_CASES = (
    DUAL,
    ONE_STEP,
    "llada2-forward",
    "lladamoe-forward",
    "mmada-forward",
    "fdv2-forward",
)
CHUNKS, SWAP = "guided-top1-c4", "guided-eos-swap-top1"


@pytest.mark.parametrize("name", [name for name in CASES if name != LARGE])
def test_a_recorded_run_is_reproduced(name):
    outcome = compare(CASES[name])
    assert outcome.differences == []
    assert outcome.unread == []


@pytest.mark.parametrize("routine", ["transposed", "onednn", "packed", "by_head", "two_products"])
@pytest.mark.parametrize("name", FAMILY_CASES)
def test_a_recorded_run_is_reproduced_with_every_routine(name, routine):
    assert compare(replace(CASES[name], kernels=FixedKernels(routine))).differences == []


@pytest.mark.parametrize(
    ("name", "double"),
    [
        (DUAL, True),
        ("dkv-decode-reload4", True),
        ("free-llada-b16", True),
        ("v-text-none-fixed", True),
        ("llada-vanilla-block16", False),
        ("spa-r16-thr0.8", False),
    ],
)
def test_confidences_are_as_precise_as_those_of_the_recorded_sampler(name, double):
    assert CASES[name].load_adapter().info.double_confidence == double


def changed(name, array, change):
    """A case with one recorded array modified."""
    case = Case(CASES[name].entry, CASES[name].folder)
    case.arrays[array] = change(case.arrays[array].copy())
    return case


def add(delta, place=-1):
    """Adds to one element; the last one by default."""

    def change(array):
        array.reshape(-1)[place] += delta
        return array

    return change


def swap_ends(array):
    array[[0, -1]] = array[[-1, 0]]
    return array


def last_call(delta):
    """Changes the first row of the last call's cache."""

    def change(array):
        array[-1, 0] += delta
        return array

    return change


PERTURBED = [
    ("llada2-forward", "logits", add(0.05), "logits"),
    ("llada2-forward", "x_router_logits", add(1e-3), "router logits of layer 3"),
    ("llada2-thr0.6", "final_ids", add(1), "final_ids"),
    ("llada2-thr0.6", "nfe", add(1), "nfe"),
    ("llada2-thr0.6", "in_pos_mask", lambda bits: bits ^ np.uint8(128), "fed positions"),
    ("lladamoe-forward", "logits", add(0.01), "logits"),
    ("lladamoe-forward", "x_router_logits", add(1e-3), "router logits of layer 3"),
    ("lladamoe-forward", "x_router_layer", add(1), "routers of the layers"),
    ("lladamoe-vanilla-2tok", "final_ids", add(1), "final_ids"),
    ("lladamoe-vanilla-2tok", "canvas", add(1), "canvas of 62 positions"),
    ("lladamoe-vanilla-2tok", "call_kind", add(1), "call_kind"),
    ("lladamoe-vanilla-2tok", "in_pos_mask", lambda bits: bits ^ np.uint8(128), "fed positions"),
    ("mmada-forward", "logits", add(0.01), "logits"),
    ("mmada-text-2tok", "final_ids", add(1), "final_ids"),
    ("mmada-text-2tok", "canvas", add(1), "canvas of 62 positions"),
    ("mmada-text-2tok", "call_kind", add(1), "call_kind"),
    ("mmada-text-2tok", "in_pos_mask", lambda bits: bits ^ np.uint8(128), "fed positions"),
    (DUAL, "final_ids", add(1), "final_ids"),
    (DUAL, "nfe", add(1), "nfe"),
    (DUAL, "unmask_call", swap_ends, "unmask_call"),
    (DUAL, "in_pos_mask", lambda bits: bits ^ np.uint8(128), "fed positions"),
    (DUAL, "logits", add(0.01), "logits"),
    (ONE_STEP, "in_pos_mask", lambda bits: bits ^ np.uint8(128), "fed positions"),
    (ONE_STEP, "out_rows", add(-1), "out_rows"),
    *((ONE_STEP, name, add(1), name) for name in ("fed_start", "rope_start", "n_keys")),
    (ONE_STEP, "write_start", add(1, 1), "write_start"),
    (ONE_STEP, "key_token", last_call(1), "key_token"),
    (ONE_STEP, "key_call", last_call(1), "key_token or key_call"),
    (SLIDING, "write_start", add(1, 1), "write_start"),
    (SLIDING, "rope_start", add(1, 1), "rope_start"),
    (SLIDING, "key_token", last_call(1), "key_token"),
]  # fmt: skip


AFTER_THE_RUN = ("final_ids", "nfe", "unmask_call", "in_pos_mask", "canvas", "call_kind")


@lru_cache
def observed(name):
    """The run of a case as released, and its recorder; a test may not change them."""
    return observe(CASES[name])


@pytest.mark.parametrize(
    ("name", "array", "change", "named"), PERTURBED, ids=lambda x: x if isinstance(x, str) else ""
)
def test_a_perturbed_recording_is_detected(name, array, change, named):
    """Arrays that are read after the run alone are compared with one run for all of them."""
    case = changed(name, array, change)
    if case.method in FORWARDS:
        found = compare(case).differences
    else:
        ran = observed(name) if array in AFTER_THE_RUN else observe(case)
        found = observed_differences(case, *ran)
    assert [one for one in found if one.startswith(named)]


GUIDER = {
    **dict.fromkeys((
        "step_prefix", "step_drafts", "step_chosen", "accept_len", "committed", "guider_calls",
        "guider_step", "guider_verify", "guider_fed", "cache_ids", "cache_kv", "judged_step",
        "judged_index", "judged_rank",
    ), add(1, 0)),
    **dict.fromkeys(("judged_p", "judged_pmax", "g_logits"), add(0.03, 0)),
    **dict.fromkeys(("guider_key_pos", "guider_key_id"), last_call(1)),
    "guider_kv_before": add(1),
}  # fmt: skip


@pytest.fixture(scope="module")
def chunks():
    """A guided run as released, and its recorder."""
    case = CASES[CHUNKS]
    recorder = flashdlm.FlashRecorder(case.arrays)
    return decode(guided.released_setup(case), case.prompt, recorder), recorder


def test_every_array_of_the_guider_is_perturbed(chunks):
    assert list(guider_calls.differences(CASES[CHUNKS], *chunks)) == []
    assert set(GUIDER) == guided.ARRAYS - flashdlm.ARRAYS - {"g_logit_call", "g_logit_row"}


@pytest.mark.parametrize("array", GUIDER)
def test_a_perturbed_recording_of_the_guider_is_detected(chunks, array):
    found = list(guider_calls.differences(changed(CHUNKS, array, GUIDER[array]), *chunks))
    assert [one for one in found if one.startswith(array)] == found
    assert len(found) == 1


@pytest.mark.parametrize("array", ["final_ids", "unmask_call", "logits"])
def test_the_run_that_ships_is_compared_too(array):
    """Ids, order and logits, here of a row that the shipped run computes: the first mask."""
    case = CASES[DUAL]
    first = int(np.argmax(case.arrays["logit_pos"] == len(case.arrays["prompt"])))
    place = first * case.arrays["logits"].shape[1] if array == "logits" else -1
    found = compare(changed(DUAL, array, add(1, place))).differences
    assert [one for one in found if one.startswith(f"as shipped: {array}")]


class CountingCapturer(TapeCapturer):
    """Counts replays, and adds `error` to the residual stream that each returns."""

    def __init__(self, error=0.0):
        self.error, self.replays = error, 0

    def capture(self, call):
        out, replay = super().capture(call)
        assert replay is not None

        def counted():
            self.replays += 1
            h, *noted = replay()
            return [h + self.error, *noted]

        return out, counted


@pytest.mark.parametrize("name", [DUAL, "llada-vanilla-block16", "free-llada-b16"])
def test_the_run_that_ships_replays_captured_forwards(name):
    capturer = CountingCapturer()
    assert compare(CASES[name], lambda *_: capturer).differences == []
    assert capturer.replays > 0


def test_a_wrong_replay_is_detected():
    found = compare(CASES[DUAL], lambda *_: CountingCapturer(0.5)).differences
    assert found
    assert all(one.startswith("as shipped") for one in found)
    assert any("logits differ" in one for one in found)


GUIDED = [case for case in CASES.values() if case.method == "flashdlm_guided"]


@pytest.mark.parametrize("case", GUIDED, ids=lambda case: case.id)
def test_the_defects_of_a_recording_are_found_where_they_are_listed(case):
    calls = guider_calls.misplaced_calls(case)
    assert len(calls) == case.entry["misplaced_guider_calls"]
    assert [*calls, -1][0] == case.entry["first_misplaced_guider_call"]
    moved = np.flatnonzero(case.arrays["write_start"] != case.arrays["fed_start"])
    assert len(moved) == case.entry["misplaced_calls"]


@pytest.mark.parametrize("name", [SLIDING, CHUNKS, SWAP])
def test_a_run_without_the_defects_differs_from_a_recording_with_them(name):
    case = CASES[name]
    setup = guided.shipped_setup(case)
    found = decode(setup, case.prompt, Recorder())
    assert not np.array_equal(found.order, case.arrays["unmask_call"])


def test_freecache_itself_differs_from_the_release_with_one_step_a_block():
    case = CASES[ONE_STEP]
    recorder = flashdlm.FlashRecorder(case.arrays)
    own = replace(flashdlm.setup(case), make_policy=lambda: FreeCache(block=8, freeze="stale"))
    found = decode(own, case.prompt, recorder)
    assert {"write_start", "n_keys"} <= recorder.audit.wrong
    assert "fed_start" not in recorder.audit.wrong
    assert not np.array_equal(found.state.ids[0], case.arrays["final_ids"])


def test_the_shipped_guided_runs_use_the_engines_own_classes():
    setup = guided.shipped_setup(CASES[SLIDING])
    assert type(setup.make_policy()) is FreeCache
    assert type(setup.run_guider.open_reader()) is GuiderReader
    assert type(setup.make_unmasker()) is Guided


UNKNOWN = {
    "method": {"method": "another_sampler"},
    "setting": {"settings": {"shift": 2}},
    "value": {"settings": {"alg": "another"}},
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_case_of_an_unknown_kind_is_reported(tmp_path, capsys, kind):
    entry = dict(CASES[ONE_STEP].entry)
    change = dict(UNKNOWN[kind])
    entry |= {"settings": entry["settings"] | change.pop("settings", {})} | change
    with pytest.raises(UnknownCaseError, match="unknown"):
        compare(Case(entry, CASES[ONE_STEP].folder))
    (tmp_path / "cases.json").write_text(json.dumps([entry]))
    np.savez(tmp_path / f"{entry['id']}.npz", **CASES[ONE_STEP].arrays)
    assert main([str(tmp_path)]) == 1
    assert "0 passed, 0 failed, 1 unknown" in capsys.readouterr().out


def test_a_case_that_cannot_run_fails_and_the_others_still_run(tmp_path, capsys):
    case = CASES[ONE_STEP]
    (tmp_path / "cases.json").write_text(json.dumps([dict(case.entry)] * 2))
    assert main([str(tmp_path)]) == 1
    assert "0 passed, 2 failed, 0 unknown" in capsys.readouterr().out
