"""Both lanes beside each other in Drift and Similarity: titles, differences, one cursor."""

from dataclasses import replace

import numpy as np
import pytest

from engine.core.drift_codes import decode
from engine.trace.trace import Trace
from tests.support.browser import PROMPT, ROOT
from tests.support.looking import bring, cell_colour, drawn, point, recorded, show, show_at

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
EXAMPLES = ROOT / "assets" / "examples"
LAYER, V = 4, 1
A, B = "A: Plain decoding", "B: Fast-dLLM dual cache + Threshold 0.9"
SWEEP = "Measured sweep"  # of the embedded model, not of a lane


@pytest.fixture(scope="module")
def race(example):
    """The bundled example at a layer; in the end its views show one lane again."""
    show(example, "drift")
    example.page.locator("#ds-race [data-inspect-layer]").fill(str(LAYER))
    yield example
    for view in ("drift", "similarity"):
        choose(example, view, "one")


def choose(race, view, lanes):
    show(race, view)
    control = f"#ds-race .ds-view[data-view={view}] [data-control=lanes]"
    race.page.locator(control).select_option(lanes)
    drawn(race)


def titles(race, view):
    shown = f"#ds-race .ds-view[data-view={view}] figcaption:visible"
    return race.page.locator(shown).all_inner_texts()


def test_a_title_names_the_lane_and_its_method(race):
    choose(race, "drift", "one")
    for lane, lead in (("a", A), ("b", B)):
        race.page.locator(f"#ds-race [data-inspect-lane-{lane}]").click()
        show(race, "drift")
        assert titles(race, "drift")[0] == f"{lead} · Drift of V in layer 5: step by position"
        for view in ("counts", "schedule", "time", "compare", "candidates"):
            show(race, view)
            leads = (A, B, SWEEP) if view == "time" else ("A: Plain", lead)
            assert all(title.startswith(leads) for title in titles(race, view))
    show(race, "time")
    race.page.locator("[data-figure=rho]").get_by_text(SWEEP).wait_for()
    assert titles(race, "time")[-1].startswith(SWEEP)
    saved = race.page.locator('#ds-race [data-figure="candidates"] [data-save=png]')
    assert B in saved.get_attribute("aria-label")


def test_a_difference_has_the_colour_of_the_ratio(race):
    choose(race, "drift", "both")
    assert [title[:2] for title in titles(race, "drift")] == ["A:", "B:", "A:", "B:", "A:", "A:"]
    a, b = (
        decode(Trace.load(EXAMPLES / f"{lane}-recorded.npz").arrays()["drift"][:, LAYER, V])
        for lane in "ab"
    )
    steps = min(len(a), len(b))
    apart = np.log10(np.maximum(b[:steps], 1e-4) / np.maximum(a[:steps], 1e-4))
    inside = np.zeros_like(apart, bool)
    inside[2:-1, 2:-2] = True
    for pick in (np.nanargmax, np.nanargmin):
        step, position = np.unravel_index(pick(np.where(inside, apart, np.nan)), apart.shape)
        red, _, blue = cell_colour(race, "drift-steps-difference", int(position), int(step))
        assert (red > blue) == (apart[step, position] > 0)


def test_a_click_in_a_lane_takes_the_cursor_there(race):
    choose(race, "drift", "both")
    race.page.locator("#ds-race [data-inspect-lane-a]").click()
    canvas = race.page.locator('#ds-race [data-figure="drift-steps-b"] canvas')
    canvas.focus()
    for key in ("ArrowDown", "ArrowRight", "Enter"):
        race.page.keyboard.press(key)
    assert race.page.locator("#ds-race [data-inspect]").get_attribute("data-lane") == "b"


def test_similarity_shows_both_lanes_and_their_difference(race):
    choose(race, "similarity", "both")
    found = titles(race, "similarity")
    assert found[0].startswith(f"{A} · V of layer 5")
    assert found[1].startswith(f"{B} · V of layer 5")
    assert found[2].startswith(f"{A} / {B} · V of layer 5")
    canvas = race.page.locator('#ds-race [data-figure="similarity-steps-difference"] canvas')
    steps = min(Trace.load(EXAMPLES / f"{lane}.npz").steps for lane in "ab")
    assert canvas.get_attribute("data-cells") == f"{steps},{steps}"
    choose(race, "similarity", "one")
    assert len(titles(race, "similarity")) == 3


def test_a_place_that_one_lane_lacks_is_read_without_a_fault(viewer, shipped, tmp_path):
    """Lane B has a longer answer; beyond A's there is no difference, and a readout says why."""
    base = replace(shipped.default_race().a, prompt=PROMPT, block_length=8, record="layers")
    lanes = {
        lane: replace(base, gen_length=length, steps=length)
        for lane, length in {"a": 16, "b": 24}.items()
    }
    traces = {lane: recorded(shipped, spec) for lane, spec in lanes.items()}
    bring(viewer, traces, tmp_path)
    show_at(viewer, "drift", "b", LAYER, 3)
    viewer.page.locator("#ds-race .ds-view[data-view=drift] [data-control=lanes]").select_option(
        "both"
    )
    drawn(viewer)
    said = point(viewer, "drift-steps-difference", 0.999)
    assert f"Position {len(traces['b'].arrays()['prompt_mask'])}, " in said
    assert "A not in this lane, B " in said
    assert said.endswith("not known in both lanes")
    viewer.page.locator("#ds-race [data-lane=b] .ds-cell").nth(23).click()
    show(viewer, "compare")
    strip = viewer.page.locator("#ds-race [data-figure=compare-strip] svg > g").nth(1)
    assert strip.locator("rect").count() == 0, "the strip ends with the shorter answer"
    viewer.page.locator("#ds-race [data-lane=b] .ds-cell").nth(15).click()
    drawn(viewer)
    assert strip.locator("rect").count() == 2
    check_groups(viewer)
    for view in ("drift", "similarity"):  # as the next module expects them
        choose(viewer, view, "one")


def check_groups(viewer):
    """A group of tokens that the other lane has under another name, and one that it lacks."""
    choose(viewer, "similarity", "both")
    view = "#ds-race .ds-view[data-view=similarity] "
    viewer.page.locator(view + "[data-control=kind]").select_option("v")
    group = viewer.page.locator(view + "[data-control=group]")
    assert group.locator("option").all_inner_texts()[2:] == ["block 2", "block 3 (last)"]
    group.select_option("2")
    drawn(viewer)
    assert "V of layer 5, block 2 (last)" in titles(viewer, "similarity")[0]
    difference = viewer.page.locator(view + '[data-figure="similarity-steps-difference"]')
    assert difference.locator("canvas").is_visible()
    group.select_option("3")
    drawn(viewer)
    assert group.input_value() == "3"
    assert "other groups of tokens" in difference.locator(".ds-waiting").inner_text()
