"""The guider in a real headless Chromium: a guided race, its views and what they say of a token."""

import re

import numpy as np
import pytest

from tests.support import handmade_guided_run as hand
from tests.support.handmade_guided_run import guided_trace
from tests.support.looking import bring, bring_once, illegible, inks, point, recolour, show

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
BOX = "#ds-race [data-inspect]"
FLASH = "FlashDLM, guider tiny-qwen2 (FlashDLM, released rule)"
PROMPT = "Tom has 9 pears. Max has 2 times as many pears. How many pears do they have?"


def cell(race, x, y, click=False):
    shape = race.page.locator(f"{BOX} [data-figure=guider] canvas").get_attribute("data-cells")
    wide, high = (int(n) for n in shape.split(","))
    return point(race, "guider", (x + 0.5) / wide, (y + 0.5) / high, click)


def block(race, name):
    return race.text(f".ds-view[data-view=guider] [data-block={name}]")


def lane(race, name, view):
    race.page.locator(f"{BOX} [data-inspect-lane-{name}]").click()
    show(race, view)
    race.page.locator(f"{BOX}[data-lane={name}][data-ready={view}]").wait_for()


def numbers(text):
    return [float(n) for n in re.findall(r"\d+(?:\.\d+)?", text)]


@pytest.fixture(scope="module")
def known():
    """The runs that the traces became on the page."""
    return set()


@pytest.fixture
def brought(viewer, tmp_path, known):
    """A page with two runs whose drafts were written by hand."""
    traces = {"a": guided_trace(), "b": guided_trace(shared=False)}
    bring_once(viewer, traces, tmp_path, known)
    return viewer


@pytest.fixture(scope="module")
def guided(app, lasting_page):
    """A page where the preset was chosen, made shorter, and run."""
    race = lasting_page().open(app.link(prompt=PROMPT))
    race.settings()
    page = race.page
    page.locator("#ds-preset-names").select_option(label=FLASH)
    race.planned("FreeCache + Guided diffusion")
    for name, value in (("gen_length", "64"), ("a-steps", "64")):
        page.locator(f"#ds-{name} input").first.fill(value)
    race.planned("64 steps")
    race.finish()
    return race


def test_the_preset_sets_guider_and_cache_and_is_run(guided):
    assert guided.page.locator("#ds-b-guided-guider input").input_value() == "tiny-qwen2"
    assert "of it the guider" in guided.page.locator("#ds-plan").inner_text()
    lane(guided, "b", "guider")
    assert block(guided, "said").startswith("Guider tiny-qwen2")


def test_a_guided_run_without_its_verdicts_is_seen_from_its_counts(viewer, tmp_path):
    race = viewer
    bring(race, {"a": guided_trace(record="off"), "b": guided_trace()}, tmp_path)
    lane(race, "a", "guider")
    taken, drafted = sum(n for _, _, n in hand.STEPS), sum(len(ids) for ids, _, _ in hand.STEPS)
    assert f"{taken} tokens of {drafted} drafted" in block(race, "said")
    assert "not the verdict on each token" in block(race, "lack")
    assert "verdict not recorded" in race.text("[data-figure=guider] .ds-legend")
    assert race.page.locator(f"{BOX} [data-figure=guider-scatter]").is_hidden()
    assert "% of the run" in block(race, "numbers")
    lane(race, "b", "guider")
    assert race.page.locator(f"{BOX} [data-block=lack]").is_hidden()


def test_a_recorded_guided_race_shows_every_verdict(guided):
    race = guided
    assert race.state == "done"
    race.page.locator("#ds-race [data-record=layers]").click()
    race.over()
    lane(race, "b", "guider")
    race.page.locator(f"{BOX} [data-figure=guider-scatter]").wait_for()
    said = block(race, "said")
    assert said.startswith("Guider tiny-qwen2 (1,873,024 parameters, the same vocabulary)")
    accepted, drafted = re.search(r"(\d+) tokens of (\d+) drafted", said).groups()
    assert 0 < int(accepted) < int(drafted)
    assert "leaves out the answer tokens from" in said
    assert "% of the run" in block(race, "numbers")
    assert race.page.locator(f"{BOX} [data-block=lack]").is_hidden()
    assert "verdict not recorded" not in race.text("[data-figure=guider] .ds-legend")
    said = cell(race, 0, 0, click=True)
    assert re.search(r"Step 1, answer token 1: “.+”, diffusion model [01]\.\d+, guider", said)
    assert block(race, "ruling").startswith("Step 1, answer token 1: the diffusion model drafts")
    lane(race, "a", "guider")
    assert "This run has no guider" in block(race, "said")
    assert race.page.locator(f"{BOX} [data-block=ruling]").is_hidden()


def test_the_guider_has_its_part_of_the_time(guided):
    lane(guided, "b", "time")
    legend = guided.page.locator(f"{BOX} [data-figure=time-b] .ds-legend")
    legend.get_by_text("guider's prefill").wait_for()
    assert "guider" not in guided.text("[data-figure=time-a] .ds-legend")
    unit = guided.page.locator(f"{BOX} .ds-view[data-view=time] [data-control=unit]")
    unit.select_option("ms")
    said = point(guided, "time-b", 0.5 / 64, 0.5)
    whole, *parts = numbers(said.split("step 1: ")[1].split(")")[0])
    assert len(parts) == 4
    assert sum(parts) == pytest.approx(whole, abs=0.01)
    assert parts[2] > 0
    assert parts[3] > 0
    unit.select_option("flops")
    assert "guider" in guided.text("[data-figure=time-b] .ds-legend")
    assert "guider" not in guided.text("[data-figure=time-a] .ds-legend")
    show(guided, "compare")
    table = guided.text(".ds-view[data-view=compare] [data-block=numbers]")
    assert "Guider time, ms" in table
    assert "Guider's weights, bytes" in table


def test_a_cell_says_the_verdict_and_both_probabilities(brought):
    """The first cell of each verdict in each step, and the last one of the step."""
    race = brought
    lane(race, "a", "guider")
    words = {
        "accepted": "accepted", "mismatch": "not accepted, the first mismatch",
        "agreed": "not committed in this step", "refused": "not accepted",
        "fallback": "committed by the fallback", "stop": "accepted: the end of the text",
    }  # fmt: skip
    for step, codes in enumerate(hand.CODES):
        first = min(i for i, code in enumerate(codes) if code)
        for place in sorted({codes.index(code) for code in codes} | {len(codes) - 1}):
            code, said = codes[place], cell(race, place, step)
            if code in words:
                assert said.endswith(": " + words[code]), (step, place, said)
                assert numbers(said)[-2:] == [hand.P_F, hand.p_g(step, place - first)]
            elif not code:
                assert said.endswith("known before this step, so it was not drafted.")
    assert "filled in after the end" in cell(race, 6, 2)


@pytest.mark.parametrize(
    ("name", "step", "place", "parts"),
    [
        ("a", 0, 0, ["its first choice. Accepted", "is at least 0.5 × its highest, 0.050"]),
        ("a", 0, 1, ["“<img src=x onerror=alert(1)>”", "(rule rel, k = 2, τ = 0.5)."]),
        ("a", 0, 3, ["but an earlier token, answer token 3, was the first mismatch."]),
        ("a", 2, 5, ["drafts the end of the text with", "Accepted: the end of the text"]),
        ("b", 0, 0, ["In the guider's tokens it is “w10 ” 0.050, “w11 ” 0.050."]),
    ],
)
def test_the_sentence_says_why(brought, name, step, place, parts):
    """All sentences are tested in `ruling.test.ts`."""
    race = brought
    lane(race, name, "guider")
    cell(race, place, step, click=True)
    said = block(race, "ruling")
    for part in parts:
        assert part in said
    assert race.page.locator(f"{BOX} [data-block=ruling] *").count() == 0


def test_figures_say_the_counts_of_the_steps(brought):
    race = brought
    lane(race, "a", "guider")
    for step, (ids, _, taken) in enumerate(hand.STEPS):
        said = point(race, "guider-rate", (step + 0.5) / 3, 0.5)
        mean = np.mean([k for _, _, k in hand.STEPS[: step + 1]])
        assert numbers(said) == [step + 1, taken, len(ids), pytest.approx(mean, abs=0.01)]
    assert numbers(point(race, "guider-histogram", 2.5 / 4, 0.5)) == [1, 2]
    assert numbers(point(race, "guider-survival", 2.5 / 4, 0.5)) == [67, 2]
    said = point(race, "guider-even", 0.5, 0.5)
    whole = hand.FORWARD_MS + hand.DECIDE_MS
    clock = whole / (whole - hand.GUIDER_MS)
    assert numbers(said) == [2, 1.5, 1.25, pytest.approx(clock, abs=0.01)]
    assert "by the clock" in race.text("[data-figure=guider-even] .ds-legend")
    said = point(race, "guider-scatter", hand.P_F, 1 - hand.p_g(0, 6))
    assert said.startswith("Step 1, answer token 7")
    point(race, "guider-scatter", hand.P_F, 1 - hand.p_g(0, 4), click=True)
    assert race.page.locator(f"{BOX}[data-step='0'][data-position='7']").count() == 1


@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_and_reads_in_both_themes(brought, width):
    page = brought.page
    lane(brought, "b", "guider")
    page.set_viewport_size({"width": width, "height": 900})
    brought.settled()  # the figures have their new widths
    cell(brought, 2, 0, click=True)
    for dark in (True, False):
        recolour(page, dark)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert illegible(inks(page, f"{BOX} *", unless=".ds-swatch")) == set()
    page.set_viewport_size({"width": 1280, "height": 900})
