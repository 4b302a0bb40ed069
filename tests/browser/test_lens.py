"""The logit lens: what the page says of layers and tokens, against the trace."""

from dataclasses import replace

import numpy as np
import pytest

from engine.core.events import NOT_COMPUTED, PROBABILITY_SCALE
from engine.trace.trace import Trace
from inspector.views.lens import codes_of, layers_of
from tests.browser.test_inspect_b import block, cell
from tests.support.browser import PROMPT
from tests.support.looking import (
    bring,
    bring_once,
    drawn,
    recorded,
    recorded_lanes,
    show,
    show_at,
)

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser

BOX = "#ds-race [data-inspect]"
VIEW = f"{BOX} .ds-view[data-view=lens]"


@pytest.fixture(scope="module")
def lanes(shipped):
    return recorded_lanes(shipped, "probe", None, a="none", b="dual")


@pytest.fixture(scope="module")
def apart(shipped, lanes):
    """Lanes that predict different tokens in some steps."""
    return {"a": lanes["a"], **recorded_lanes(shipped, "probe", None, b="dllm_cache")}


@pytest.fixture(scope="module")
def known():
    """The runs that the lanes became on the page."""
    return set()


@pytest.fixture
def race(viewer, lanes, tmp_path, known):
    """The lanes, with no token pinned and the figures of the tokens most likely in each pass."""
    bring_once(viewer, lanes, tmp_path, known)
    show(viewer, "lens")
    viewer.page.locator(f"{VIEW} [data-control=of]").select_option(index=0)
    viewer.page.keyboard.press("Escape")
    return viewer


def text_of(trace, token):
    return "“" + trace.pieces[int(token)].decode().replace("\n", "↵") + "”"


def test_readouts_are_the_tokens_and_probabilities_of_the_trace(race, lanes):
    trace = lanes["b"]
    arrays, plan = trace.arrays(), trace.recompute_map()
    kinds = arrays["kind"][arrays["probe_step"]]
    probe = int(np.flatnonzero(kinds == 1)[-1])  # a step that reuses
    step, layers = int(arrays["probe_step"][probe]), trace.layers
    show_at(race, "lens", "b", 0, step)
    codes = arrays["lens_prob"][probe]
    place = int(np.flatnonzero(codes[0, -1] != NOT_COMPUTED)[0])
    row = int(arrays["lens_position"][place])
    for side, figure in enumerate(("lens-run", "lens-exact")):
        for layer in (0, layers - 1):
            found = cell(race, figure, place, layer)
            share = f"{codes[side, layer, place] / PROBABILITY_SCALE:.3f}".rstrip("0").rstrip(".")
            assert f"Answer token {place + 1}, layer {layer + 1}, step {step + 1}" in found
            assert (
                f"{text_of(trace, arrays['lens_id'][probe, side, layer, place])} {share}" in found
            )
            done = plan[step, layer, 2:, row].all()
            assert ("recomputed" in found) == (side == 0 and bool(done))
    outside = int(np.flatnonzero(codes[0, 0] == NOT_COMPUTED)[0])
    assert "no hidden state, not computed in this step" in cell(race, "lens-run", outside, 0)
    said = cell(race, "lens-exact", outside, 0)
    assert text_of(trace, arrays["lens_id"][probe, 1, 0, outside]) in said


def test_the_sentences_name_the_tokens_that_reuse_turned(race, lanes):
    trace = lanes["b"]
    arrays = trace.arrays()
    known = (arrays["lens_prob"][:, :, -1] != NOT_COMPUTED).all(1)
    wrong = known & (arrays["lens_id"][:, 0, -1] != arrays["lens_id"][:, 1, -1])
    probe = int(wrong.sum(1).argmax())
    show_at(race, "lens", "b", 0, int(arrays["probe_step"][probe]))
    assert f"{wrong.sum()} of {known.sum()} predictions" in block(race, "lens", "sum")
    said = block(race, "lens", "turns")
    assert f": {known[probe].sum()} prediction" in said
    turned = layers_of(trace, probe)["turned"]
    assert (turned >= 0).sum() == wrong[probe].sum()
    for place in np.flatnonzero(turned >= 0)[:8]:
        run, exact = (text_of(trace, arrays["lens_id"][probe, i, -1, place]) for i in (0, 1))
        words = f"answer token {place + 1}: {run} in place of {exact}"
        assert f"{words}, different from layer {turned[place] + 1} on" in said


def test_plain_decoding_differs_nowhere_and_a_click_pins_the_cell(race, lanes):
    show_at(race, "lens", "a", 0, 0)
    assert "0 of " in block(race, "lens", "sum")
    assert "Reuse changed no token." in block(race, "lens", "turns")
    said = cell(race, "lens-difference", 3, 2, click=True)
    assert "in both; probability of the exact pass's prediction 0.000" in said
    assert race.page.locator(f"{BOX} [data-inspect-layer]").input_value() == "2"
    choose = race.page.locator(f"{VIEW} [data-control=of]")
    choose.select_option("token")
    drawn(race)
    assert "the exact pass's prediction" in cell(race, "lens-run", 3, 2)


def test_a_file_hands_over_the_tokens_of_its_cells(race, lanes):
    trace, step = lanes["b"], int(lanes["b"].arrays()["probe_step"][1])
    show_at(race, "lens", "b", 0, step)
    with race.page.expect_download() as download:
        race.page.locator(f"{BOX} [data-figure=lens-exact] [data-save=csv]").click()
    lines = download.value.path().read_text("utf-8").splitlines()
    assert lines[0] == "answer token,layer,probability,best token"
    ids, codes = (trace.arrays()[f"lens_{name}"][1, 1] for name in ("id", "prob"))
    assert len(lines) == 1 + ids.size
    token, layer, share, _ = lines[5].split(",", 3)
    assert (token, layer) == ("5", "1")
    assert float(share) == pytest.approx(codes[0, 4] / PROBABILITY_SCALE, abs=6e-4)
    assert trace.pieces[int(ids[0, 4])].decode().strip() in lines[5]


def test_a_run_without_a_lens_says_what_to_press(viewer, lanes, tmp_path):
    bare = {}
    for lane, trace in lanes.items():
        bare[lane] = Trace()
        bare[lane].meta, bare[lane]._pieces = trace.meta, dict(trace.pieces)
        arrays = trace.arrays()
        bare[lane]._arrays = {
            name: array[:0] if name.startswith("lens_") else array for name, array in arrays.items()
        }
    race = viewer
    bring(race, bare, tmp_path)
    tab = race.page.locator(f"{BOX} .ds-tab.ds-empty[data-tab=lens]")
    tab.wait_for()
    tab.click()
    note = race.page.locator(f"{VIEW} .ds-note")
    note.filter(has_text="Record and probe").wait_for()  # it says "Reading" first
    assert [error for error in race.watch.errors if "404" not in error] == []
    race.watch.errors.clear()  # the answer without a lens, of which the browser writes an error


def test_both_lanes_stand_side_by_side_and_b_turns_away_at_a_layer(viewer, apart, tmp_path):
    """Lane B's first tokens that differ from A's to the last layer, counted from the traces."""
    lanes, race = apart, viewer
    bring(race, lanes, tmp_path)
    arrays = {lane: trace.arrays() for lane, trace in lanes.items()}
    steps = {lane: one["probe_step"].tolist() for lane, one in arrays.items()}
    common = [step for step in steps["a"] if step in steps["b"]]
    every = {
        "ids": {lane: one["lens_id"] for lane, one in arrays.items()},
        "codes": {
            lane: [codes_of(trace, probe) for probe in range(len(steps[lane]))]
            for lane, trace in lanes.items()
        },
    }
    ids, known = (
        {s: [every[key][lane][steps[lane].index(s)][0] for lane in "ab"] for s in common}
        for key in ("ids", "codes")
    )
    both = {s: (np.array(known[s]) != NOT_COMPUTED).all(0) for s in common}
    differ = {s: both[s] & (ids[s][0] != ids[s][1]) for s in common}
    step = max(common, key=lambda s: differ[s][-1].sum())
    assert differ[step][-1].any()
    show_at(race, "lens", "b", 0, step)
    control = f"{VIEW} [data-control=lanes]"
    race.page.locator(control).select_option("both")
    drawn(race)
    shown = race.page.locator(f"{VIEW} figcaption:visible")
    titles = shown.all_inner_texts()
    assert [title[:2] for title in titles] == ["A:", "B:", "A:", "A:"]
    assert all(f"Step {step + 1}" in title for title in titles)
    assert "A: Plain decoding / B: dLLM-Cache" in titles[2]
    said = block(race, "lens", "sum")
    assert f"both lanes have {both[step][-1].sum()} prediction" in said
    assert f"another token than A in {differ[step][-1].sum()} of them" in said
    place = int(np.flatnonzero(differ[step][-1])[0])
    turned = lanes["b"].layers - int(np.cumprod(differ[step][::-1, place]).sum())
    a, b = (text_of(lanes[n], ids[step][i][-1, place]) for i, n in enumerate("ab"))
    words = f"answer token {place + 1}: {b} in place of {a}, different from layer {turned + 1} on"
    assert words in block(race, "lens", "turns")
    read = cell(race, "lens-lanes", place, lanes["b"].layers - 1)
    assert f"A {a}, B {b}; B differs to the end from layer {turned + 1} on" in read
    with race.page.expect_download() as download:
        race.page.locator(f"{BOX} [data-figure=lens-lanes] [data-save=csv]").click()
    lines = download.value.path().read_text("utf-8").splitlines()
    assert lines[0] == "answer token,layer,B compared with A,tokens of A / B"
    assert sum("another token in B" in line for line in lines) == differ[step].sum()
    race.page.locator(control).select_option("one")
    drawn(race)
    assert len(shown.all_inner_texts()) == 4


def test_the_keys_are_those_of_the_steps_that_both_lanes_have(viewer, shipped, tmp_path):
    """Side by side, a step that only one lane was probed at has no key."""
    base = replace(
        shipped.default_race().a, prompt=PROMPT, gen_length=8, block_length=8, steps=8,
        record="probe",
    )  # fmt: skip
    lanes = {"a": replace(base, probe_at=(1, 5)), "b": replace(base, probe_at=(3, 5))}
    race = viewer
    bring(race, {lane: recorded(shipped, spec) for lane, spec in lanes.items()}, tmp_path)
    show_at(race, "lens", "b", 0, 5)
    keys = race.page.locator(f"{VIEW} [data-probe]")
    assert keys.all_inner_texts() == ["4", "6"]
    control = race.page.locator(f"{VIEW} [data-control=lanes]")
    control.select_option("both")
    drawn(race)
    assert keys.all_inner_texts() == ["6"]
    assert keys.first.get_attribute("aria-pressed") == "true"
    control.select_option("one")
    drawn(race)
    assert keys.all_inner_texts() == ["4", "6"]
