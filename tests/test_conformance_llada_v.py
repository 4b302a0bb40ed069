"""A changed recording of LLaDA-V is detected, and the released quirks are not the engine's."""

import numpy as np
import pytest

from engine.generate.loop import Denoiser
from engine.unmask.methods.factor import Factor
from tests.compat.llada_v import ListedStops
from tests.conformance import llada_v
from tests.conformance.cases import GOLDENS, Case, UnknownCaseError, read_cases
from tests.conformance.compare import compare
from tests.conformance.recorders import ObservedRecorder
from tests.conformance.runs import Decoded, decode
from tests.test_conformance import LARGE

CASES = {case.id: case for case in read_cases(GOLDENS / "llada-v")}
PAD, TEXT = "v-pad-refresh8-fixed-2tok", "v-text-refresh4-factor1"
IMAGE_ARRAYS = {
    "crops_small": 1, "pixel_lut": 1e-5, "tower_rows": 1e-2, "projector_rows": 1e-2,
    "embed_rows": 1e-2, "embed_sum": 1e-1, "newline_rows": 1,
}  # fmt: skip


def changed(whole, array, delta):
    """A loaded case with one number of a recorded array changed: the largest, which is a number.

    It shares the rows of the image with `whole`, the case itself.
    """
    case = Case(whole.case.entry, whole.case.folder)
    own = case.arrays[array].copy()
    flat = own.reshape(-1)
    place = int(np.nanargmin(flat)) if own.dtype == np.uint8 else int(np.nanargmax(flat))
    flat[place] += delta
    case.arrays[array] = own
    loaded = llada_v.LoadedCase(case)
    loaded.encoder, loaded.given = whole.encoder, whole.given
    return loaded


@pytest.fixture(scope="module")
def whole():
    """A case that agrees, and its image as rows; tests must not change them."""
    loaded = llada_v.LoadedCase(CASES[PAD])
    assert list(llada_v.image_differences(loaded)) == []
    assert list(llada_v.prompt_differences(loaded)) == []
    return loaded


def test_an_image_of_many_crops_has_the_rows_of_the_release():
    loaded = llada_v.LoadedCase(CASES[LARGE])
    assert len(loaded.case.arrays["crops_small"]) == 17
    assert list(llada_v.prompt_differences(loaded)) == []
    assert list(llada_v.image_differences(loaded)) == []


@pytest.mark.parametrize("array", IMAGE_ARRAYS)
def test_a_changed_recording_of_an_image_is_detected(whole, array):
    found = list(llada_v.image_differences(changed(whole, array, IMAGE_ARRAYS[array])))
    assert len(found) == 1
    assert found[0].startswith(array)


def test_changed_ids_of_a_prompt_are_detected(whole):
    other = changed(whole, "prompt_ids", 1)
    assert list(llada_v.prompt_differences(other)) == ["prompt_ids differ"]


@pytest.fixture(scope="module")
def decoded():
    loaded, recorder = llada_v.LoadedCase(CASES[TEXT]), ObservedRecorder(CASES[TEXT].arrays)
    found = decode(loaded.setup(released=True), loaded.prompt, recorder)
    return loaded, found, recorder.fed


@pytest.mark.parametrize(
    "array", ["final_ids", "returned_ids", "nfe", "unmask_call", "fed_first", "fed_count"]
)
def test_a_changed_recording_of_a_run_is_detected(decoded, array):
    loaded, found, fed = decoded
    golden = loaded.case.arrays
    assert list(llada_v.run_differences(loaded, found, golden, fed)) == []
    own = golden[array].copy()
    own.reshape(-1)[0] += 1
    other = golden | {array: own}
    named = [one for one in llada_v.run_differences(loaded, found, other, fed) if array in one]
    assert named


def test_the_run_that_ships_follows_the_paper_and_the_release_does_not(decoded):
    loaded, found, _ = decoded
    paper = llada_v.paper_arrays(loaded.case.arrays)
    assert list(llada_v.run_differences(loaded, found, paper))
    setup = loaded.setup(released=False)
    assert type(setup.make_unmasker()) is Factor


def test_several_stops_follow_the_release_in_both_runs():
    settings = CASES[TEXT].settings | {"stop_ids": [[9], [82, 7]]}
    case = Case(CASES[TEXT].entry | {"settings": settings}, CASES[TEXT].folder)
    made = [llada_v.LoadedCase(case).setup(released).make_denoiser for released in (True, False)]
    assert made == [ListedStops, ListedStops]
    one = llada_v.LoadedCase(CASES[TEXT])
    assert [one.setup(released).make_denoiser for released in (True, False)] == [
        ListedStops, Denoiser
    ]  # fmt: skip


def test_masks_behind_a_stop_that_fill_the_last_call_are_not_compared(decoded):
    """The text ends at place 5, and call 3 is the last."""
    golden = {"returned_ids": np.zeros(7), "nfe": np.array(4)}
    golden["unmask_call"] = np.array([3, 0, 3, 1, 2, 3, 3, 2, -1, 3, -1, -1])
    order = np.array([-1, 0, 3, 1, 2, 3, -1, -1, -1, -1, -1, -1])
    assert np.flatnonzero(llada_v.surplus(golden, order, 10)).tolist() == [6, 9]

    loaded, found, _ = decoded
    state, last = found.state, found.state.step_index - 1
    whole = dict(loaded.case.arrays)
    early = np.flatnonzero(whole["unmask_call"] == last)[:1]
    order = found.order.copy()
    order[early] = -1
    short = Decoded(state, order, found.events)
    named = list(llada_v.run_differences(loaded, short, whole))
    assert named == ["unmask_call differs at 1 positions"]


def test_unknown_settings_and_modes_are_reported():
    for change in ({"aspect": "highres"}, {"settings": {"rho": 0.5}}):
        entry = dict(CASES[TEXT].entry)
        settings = dict(entry["settings"]) | change.get("settings", {})
        with pytest.raises(UnknownCaseError, match=r"is unknown|unknown value"):
            compare(Case(entry | change | {"settings": settings}, CASES[TEXT].folder))
