"""A race with an autoregressive lane: from left to right, and what does not apply to it."""

from dataclasses import replace

import numpy as np
import pytest

from engine.config.spec import RaceSpec, RunSpec
from tests.support.browser import PROMPT
from tests.support.looking import bring, bring_race, recorded, show

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
PLAIN = RunSpec(prompt=PROMPT, gen_length=16, block_length=16, steps=16)
OTHER = {"autoregressive.model": "tiny-qwen2-digits"}


def open_view(race, name):
    race.page.locator(f"#ds-race [data-inspect] .ds-tab[data-tab={name}]").click()


@pytest.fixture
def race(viewer, tmp_path):
    """A finished race of plain decoding with a causal model of another vocabulary."""
    if "vocabularies" not in viewer.text("[data-chips]"):
        causal = replace(PLAIN, unmasker="autoregressive", knobs=OTHER)
        bring_race(viewer, RaceSpec(PLAIN, causal), tmp_path)
    return viewer


def test_its_tokens_appear_from_left_to_right(race):
    order = race.page.evaluate(
        """async () => {
            const slider = document.querySelector('#ds-race [data-scrub]');
            const seen = [];
            for (let at = 0; at <= 1; at += 0.02) {
                slider.value = String(Number(slider.max) * at);
                slider.dispatchEvent(new Event('input', {bubbles: true}));
                await new Promise(done => requestAnimationFrame(() => done()));
                const cells = [...document.querySelectorAll('[data-lane=b] .ds-cell')];
                seen.push(cells.map(cell => Number(!cell.classList.contains('ds-mask'))));
            }
            return seen;
        }"""
    )
    counts = [sum(frame) for frame in order]
    assert counts == sorted(counts)
    assert len(set(counts)) > 3
    for frame in order:
        assert (np.diff(frame) <= 0).all(), "no token follows a mask"


def test_tokens_of_two_vocabularies_are_not_compared(race):
    assert "the vocabularies differ" in race.text("[data-chips]")
    assert race.page.locator("[data-lane] .ds-cell.ds-differs").count() == 0
    open_view(race, "compare")
    view = race.page.locator("#ds-race .ds-view[data-view=compare]")
    view.filter(has_text="their tokens are not compared one by one").wait_for()


def test_the_inspector_says_what_does_not_apply(race):
    race.page.locator("#ds-race [data-inspect-lane-b]").click()
    for view in ("drift", "counts", "queries"):
        open_view(race, view)
        note = race.page.locator(f"#ds-race .ds-view[data-view={view}] .ds-note")
        note.filter(has_text="keys and values never change").wait_for()
    race.page.locator("#ds-race [data-inspect-lane-a]").click()
    show(race, "drift")  # the other lane drifts


def test_tokens_of_one_vocabulary_are_compared(viewer, shipped, tmp_path):
    runs = {"a": PLAIN, "b": replace(PLAIN, unmasker="autoregressive")}
    bring(viewer, {lane: recorded(shipped, run) for lane, run in runs.items()}, tmp_path)
    assert "vocabularies" not in viewer.text("[data-chips]")
    assert "agree" in viewer.text("[data-chips]")
