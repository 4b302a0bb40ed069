"""Runs of other engines in a real headless Chromium: the race plays, Compare names the split."""

import json

import pytest

from engine.core.files import ASSETS
from engine.trace.trace import Trace
from tests.support.looking import bring_files, show

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser

MARKUP = "<img src=x onerror=window.hit=1>"
CHANGED = 5  # the answer token that differs in the second file


def foreign_files(folder, other_prompt=False):
    """A recorded run as two files of other engines, which differ at one answer token."""
    trace = Trace.load(ASSETS / "examples" / "b.npz")
    answer = ~trace.arrays()["prompt_mask"]
    texts = [trace.pieces[int(i)].decode() for i in trace.canvas_at(trace.steps)[answer]]
    when = (trace.step_map()[answer] + 1).tolist()
    texts[0] = MARKUP
    viewer = {
        "pieces": [*texts[:CHANGED], " other", *texts[CHANGED + 1 :]], "step_map": when,
        "is_special": [False] * len(texts),
    }  # fmt: skip
    run = {
        "format": "driftscope-run", "version": 1, "method": "Engine one", "prompt": "A question",
        "canvases": [
            [text if at <= step else None for text, at in zip(texts, when, strict=True)]
            for step in range(1, max(when) + 1)
        ],
        "seconds": [0.1] * max(when), "block_length": 32,
    }  # fmt: skip
    second = run | {"prompt": "Something else"} if other_prompt else viewer
    for name, document in (("a", run), ("b", second)):
        (folder / f"{name}.json").write_text(json.dumps(document))
    return [folder / "a.json", folder / "b.json"]


def test_two_files_of_other_engines_race_and_are_compared(viewer, tmp_path):
    race = viewer
    bring_files(race, foreign_files(tmp_path))
    assert race.text("[data-lane=a] [data-title]") == "Engine one"
    assert race.text("[data-lane=b] [data-title]") == "dLLM-RL on JetEngine"
    assert "Speed is not compared" in race.text("[data-note]")
    assert "fast" not in race.text("[data-headline]")
    bar = race.page.locator("#ds-race [data-scrub]")
    bar.focus()
    race.page.keyboard.press("Home")
    assert race.shown("a") == race.shown("b") == 0
    for _ in range(3):
        race.page.keyboard.press("ArrowRight")
    assert race.data("frame-a") == race.data("frame-b") == "3"
    assert race.shown("a") >= 3
    stats = race.page.locator("#ds-race [data-lane=b] [data-stats]").inner_text()
    assert "–" in stats
    assert "ms" not in stats
    race.page.keyboard.press("End")
    show(race, "compare")
    split = race.page.locator("#ds-race [data-block=parting]", has_text="answers first differ")
    split.wait_for()
    assert f"first differ at answer token {CHANGED + 1}: A committed" in split.inner_text()
    assert race.page.locator("#ds-race [data-record]:enabled").count() == 0
    race.page.locator("#ds-race [data-tab=drift]").click()
    drift = race.page.locator("#ds-race .ds-view[data-view=drift]")
    drift.get_by_text("decoded by another engine: its file has no drifts").first.wait_for()
    assert race.page.evaluate("window.hit ?? null") is None
    assert race.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_lanes_of_different_prompts_are_not_compared(viewer, tmp_path):
    race = viewer
    bring_files(race, foreign_files(tmp_path, other_prompt=True))
    assert race.text("[data-headline]") == "The lanes are not compared: their prompts differ."
    show(race, "compare")
    compared = race.page.locator("#ds-race .ds-view[data-view=compare]")
    compared.get_by_text("their prompts differ. The numbers of each lane").first.wait_for()
