"""A race with an autoregressive lane: from left to right, and what does not apply to it."""

import numpy as np
import pytest

from tests.support.looking import show

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
AUTOREGRESSIVE = {"b.unmasker": "autoregressive", "b.cache": "none"}
OTHER = AUTOREGRESSIVE | {"b.autoregressive.model": "tiny-qwen2-digits"}


def open_view(race, name):
    race.page.locator(f"#ds-race [data-inspect] .ds-tab[data-tab={name}]").click()


@pytest.fixture(scope="module")
def race(app, lasting_page):
    """A finished race of plain decoding with a causal model of another vocabulary."""
    made = lasting_page(1440, 1000).open(app.link(**OTHER))
    made.planned("one token a forward")
    made.finish()
    return made


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


def test_tokens_of_one_vocabulary_are_compared(app, new_page):
    race = new_page(1440, 1000).open(app.link(**AUTOREGRESSIVE))
    race.finish()
    assert "vocabularies" not in race.text("[data-chips]")
    assert "agree" in race.text("[data-chips]")
