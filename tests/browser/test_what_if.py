"""The view What if: a step with another threshold, back again, and a branch from it."""

import numpy as np
import pytest

from engine.config.spec import RunSpec
from engine.generate.what_if import what_if
from tests.support.looking import bring, drawn, show
from tests.support.traces import trace_of

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser

STEP = 2
PROMPT = "Tom has 3 apples. Tom buys 4 apples. How many apples does Tom have?"


def recorded(session):
    """A run that commits several tokens in its third step."""
    knobs = {"threshold.threshold": 0.9}
    spec = RunSpec(prompt=PROMPT, gen_length=32, block_length=16, unmasker="threshold",
                   knobs=knobs, record="steps")  # fmt: skip
    return trace_of(session.run(spec))


def ids_of(found, name):
    return sorted(found["positions"][np.asarray(found[name]) > 0].tolist())


def positions(page, column):
    """The positions that a column of the table says were committed."""
    rows = page.locator("#ds-race .ds-what-if-result tr[data-position]").all()
    return sorted(
        int(row.get_attribute("data-position"))
        for row in rows
        if row.locator("td").nth(column).inner_text() != "–"
    )


def test_another_threshold_is_seen_at_once_and_one_click_branches_with_it(
    viewer, shipped, tmp_path
):
    trace, race, page = recorded(shipped), viewer, viewer.page
    bring(race, {"a": trace, "b": trace}, tmp_path)
    page.locator("#ds-race [data-inspect-lane-b]").click()
    show(race, "what_if")
    page.locator("#ds-race [data-inspect-step]").fill(str(STEP))
    drawn(race)
    own = what_if(trace, STEP, {})
    said = page.locator("#ds-race .ds-what-if-said")
    said.get_by_text(f"that step {STEP + 1} committed").wait_for()
    assert "the run's own settings" in said.inner_text()
    assert positions(page, 4) == positions(page, 5) == ids_of(own, "did")
    field = page.get_by_role("spinbutton", name="Threshold, as a number")
    field.fill("2")
    other = what_if(trace, STEP, {"threshold.threshold": "2"})
    said.get_by_text("would have committed 1 token").wait_for()
    assert positions(page, 5) == ids_of(other, "would")
    assert positions(page, 4) == ids_of(own, "did")
    left = page.locator("#ds-race tr[data-difference=dropped]")
    assert left.count() == len(ids_of(own, "did")) - 1
    assert "− left out" in left.first.inner_text()
    reset = page.get_by_role("button", name="Back to this run's settings")
    reset.press("Enter")
    said.get_by_text("the run's own settings").wait_for()
    assert field.input_value() == "0.9"
    page.get_by_role("combobox", name="Unmasker", exact=True).select_option("guided")
    box = page.get_by_role("checkbox", name="Multi chunk")
    box.wait_for()
    assert box.evaluate("e => getComputedStyle(e).appearance") == "auto"  # its mark is seen
    reset.press("Enter")
    said.get_by_text("the run's own settings").wait_for()
    slider = page.get_by_role("slider", name="Threshold")
    slider.press("End")
    said.get_by_text("would have committed 1 token").wait_for()
    page.get_by_role("button", name=f"Branch from before step {STEP + 1}").press("Enter")
    page.locator("#ds-race [data-parent]").wait_for()
    race.wait_state("done")
    prompt = int(trace.arrays()["prompt_mask"].sum())
    known = (trace.canvas_at(STEP)[prompt:] != trace.meta["model"]["mask_id"]).sum()
    assert race.text("[data-lane=b] [data-title]").endswith(f"from step {STEP + 1}")
    assert page.locator("#ds-race [data-lane=b] .ds-fixed").count() == known
    steps = page.locator("#ds-race [data-frame-b]").first.get_attribute("data-frame-b")
    assert int(steps) == 32 - known
