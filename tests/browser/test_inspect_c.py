"""Token card, comparison, candidates and branches: what the page says against what the run did."""

import base64
import re
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from engine.config.spec import RunSpec
from engine.core.drift_codes import decode
from engine.core.events import QUANTITIES
from inspector import static_files
from inspector.slices import registry
from inspector.slices.fields import Fields
from tests.support.browser import PROMPT
from tests.support.chromium import touched
from tests.support.looking import bring, recorded, show
from tests.support.micro import full_policies

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
# Press a key, and tell whether all keys that branch are disabled at once.
PRESS = """key => {
  key.click();
  const keys = [...document.querySelectorAll('#ds-race .ds-branch [data-branch]')];
  return keys.length > 1 && keys.every((one) => one.disabled);
}"""

IMPORT = """async (text) => {
  const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  Object.assign(window, await import(url));
}"""
EVERY_CELL = """([frame, why, tokens, plans, drifts]) => {
  const read = (text) =>
    documentOf(decoded(Uint8Array.from(atob(text), (char) => char.charCodeAt(0)).buffer));
  const [f, rules] = [{ ...read(frame), first: 0 }, read(why)];
  const [rows, steps] = [tokens.map(read), plans.map(read)];
  const cells = Object.fromEntries(
    Object.entries(drifts).map(([quantity, maps]) => [quantity, maps.map((map) => read(map).cells)])
  );
  const out = [];
  for (let step = 0; step < f.steps; step++)
    for (let layer = 0; layer < f.layers; layer++)
      for (let position = 0; position < f.positions; position++) {
        const drifts = (quantity) => cells[quantity]?.[step] ?? null;
        const facts = { token: rows[position], plan: steps[step], drifts };
        out.push(new Why(f, rules, facts, { step, layer, position }).sentence());
      }
  return out;
}"""
CACHES = [*full_policies(), "dual+dare_kv"]


@pytest.fixture(scope="module")
def small_run(shipped):
    """Record the small problem under a cache; each is run once."""

    @lru_cache
    def run(cache):
        spec = RunSpec(prompt=PROMPT, gen_length=32, block_length=8, steps=32, record="layers")
        return recorded(shipped, replace(spec, cache=cache))

    return run


def sentences(page, session, trace):
    """What the page says of every cell, [S, L, T]."""
    steps, layers, _, positions = trace.recompute_map().shape
    said = page.evaluate(EVERY_CELL, facts_of(trace, session.catalog()["caches"]))
    return np.array(said, object).reshape(steps, layers, positions)


def facts_of(trace, caches=()):
    """The slices from which the page makes its sentences, as base64."""
    steps, _, _, positions = trace.recompute_map().shape

    def cut(**asked):
        fields = Fields({name: str(value) for name, value in asked.items()})
        return base64.b64encode(registry.cut(trace, fields, caches)).decode()

    tokens = [cut(view="token", position=x) for x in range(positions)]
    plans = [cut(view="plan", step=step) for step in range(steps)]
    drifts = {
        name: [cut(view="drift", quantity=name, step=step) for step in range(steps)]
        for name in QUANTITIES
    }
    return [cut(view="frame"), cut(view="why"), tokens, plans, drifts]


def check_heads(said, bits):
    """`bits` [S, L, 4, T]: whether the verdict is that of the plan."""
    done = bits.sum(2)
    for index in np.ndindex(said.shape):
        head = said[index].split(":")[0]
        want = {4: "Recomputed", 0: "Not recomputed"}.get(done[index])
        assert head == want if want else head.endswith(" not recomputed"), (index, said[index])


def number(text, after):
    found = re.search(after + r" ([\d.]*\d)", text)
    return float(found[1]) if found else None


def check_dllm(said, trace, prompt):
    assert said[5, 3, 2].endswith(
        "the prompt is refreshed every 25 steps; last at step 1, next at step 26."
    )
    assert said[25, 3, 2].startswith("Recomputed: the prompt is refreshed every 25 steps, and this")
    assert said[10, 4, prompt + 3].endswith(
        "every row of the answer is recomputed in this step; the whole answer is refreshed every 5 "
        "steps, last at step 6, next at step 16."
    )
    codes, bits = trace.arrays()["drift"][:, :, 1], trace.recompute_map()
    for step, layer, place in ((11, 3, 1), (12, 5, 9), (13, 7, 14), (22, 2, 6)):
        text, code = said[step, layer, prompt + place], codes[step, layer, prompt + place]
        count = int(bits[step, layer, 3, prompt:].sum())
        assert f"among the {count} of 32 rows (25 %)" in text
        cut = r"( \(drift [^)]*; the cut-off for 8 rows was [^)]*\))?"
        end = "; the whole answer is refreshed every 5"
        assert re.search(f"changed most in layer {layer + 1}{cut}{end}", text), text
        assert ("not among" in text) == (not bits[step, layer, 3, prompt + place])
        shown = number(text, "drifted by")
        assert shown is None or shown == pytest.approx(float(decode(code)), rel=0.06)


def check_dare(said, trace, prompt):
    codes, limits = trace.arrays()["drift"][:, :, 4], trace.meta["facts"]["threshold"]
    compared = 0
    for step, layer, x in np.ndindex(said.shape):
        text = said[step, layer, x]
        drift, limit = number(text, "drifted by"), number(text, "threshold of")
        if drift is None or limit is None:
            continue
        assert limit == pytest.approx(limits[layer], rel=0.06)
        assert drift == pytest.approx(float(decode(codes[step, layer, x])), rel=0.06)
        clear = abs(drift - limit) > 0.1 * limit
        above = "more than this" in text and "no more" not in text
        assert not clear or above == (drift > limit)
        compared += clear
    assert compared > 100


def check_blocks(said, trace, prompt):
    starts = trace.arrays()["block_step"] == 0
    found = np.vectorize(lambda text: "first step of the run in block" in text)(said)
    assert np.array_equal(found, np.broadcast_to(starts[:, None, None], found.shape))
    assert re.search("last at step 1, next at step 9.$", said[3, 2, 4])
    assert re.search("last at step 25, not again in this run.$", said[30, 2, 4])


def check_spa(said, trace, prompt):
    budget = trace.meta["facts"]["budget"]
    assert said[3, 2, 4].endswith("every 50 steps; last at step 1, not again in this run.")
    assert "the answer is refreshed every 7 steps, and this step" in said[14, 2, prompt + 3]
    assert f"budget of the layer being {round(100 * budget[4], 1):g} %" in said[3, 4, prompt + 3]


def check_none(said, trace, prompt):
    everywhere = "Recomputed: without a cache every row is recomputed in every step."
    assert set(said.ravel()) == {everywhere}


def check_freecache(said, trace, prompt):
    assert "has frozen the row" in said[-1, 0, 0]


def check_dare_o(said, trace, prompt):
    assert "threshold" in " ".join(said[-1, 3])


def check_stack(said, trace, prompt):
    both = " ".join(said.ravel())
    assert "the dual cache reuses every row outside the current block" in both
    assert "more than this layer's threshold" in both


CHECKS = {
    "none": check_none, "prefix": check_blocks, "dual": check_blocks, "freecache": check_freecache,
    "dllm_cache": check_dllm, "spa_cache": check_spa, "dare_kv": check_dare,
    "dare_o": check_dare_o, "dual+dare_kv": check_stack,
}  # fmt: skip


@pytest.fixture(scope="module")
def bare(lasting_page):
    """An empty page with the bundle, whose class Why writes the sentence."""
    page = lasting_page().page
    page.evaluate(IMPORT, static_files.text(static_files.BUNDLE))
    return page


@pytest.mark.parametrize("cache", CACHES)
def test_the_sentence_says_what_the_plan_did_under_every_method(shipped, small_run, bare, cache):
    trace = small_run(cache)
    said = sentences(bare, shipped, trace)
    check_heads(said, trace.recompute_map())
    for text in set(said.ravel()):
        assert text.endswith(".")
        assert not re.search(r"[{}\[\]]|undefined|NaN|  ", text), text
    check = CHECKS.get(cache, lambda *_: None)
    check(said, trace, int(trace.arrays()["prompt_mask"].sum()))


def test_a_sentence_of_another_run_is_found(shipped, small_run, bare):
    trace = small_run("dual")
    said = sentences(bare, shipped, trace)
    with pytest.raises(AssertionError):
        check_heads(said, ~trace.recompute_map())


def test_a_method_that_the_catalog_does_not_have_gets_a_generic_sentence(small_run, bare):
    trace = small_run("dual")
    found = set(bare.evaluate(EVERY_CELL, facts_of(trace)))
    assert "Recomputed: dual recomputes every row in this step." in found
    assert any("and this row is not among them; last at step 1, next" in text for text in found)


def test_a_branch_runs_beside_its_parent_and_the_parent_comes_back(viewer, small_run, tmp_path):
    lanes = {"a": small_run("none"), "b": small_run("dllm_cache")}
    race, page = viewer, viewer.page
    bring(race, lanes, tmp_path)
    before = race.text("[data-lane=b] [data-answer]")
    page.locator("#ds-race [data-tab=time]").click()
    times = page.locator("#ds-race .ds-view[data-view=time]")
    times.get_by_text("show no times").first.wait_for()
    page.locator("#ds-race [data-inspect-lane-b]").click()
    show(race, "candidates")
    trace = lanes["b"]
    arrays, prompt = trace.arrays(), int(trace.arrays()["prompt_mask"].sum())
    row = next(
        i
        for i in np.flatnonzero(arrays["candidate_step"] == 10)
        if arrays["candidate_id"][i, 1] != trace.canvas_at(32)[arrays["candidate_position"][i]]
    )
    place = int(arrays["candidate_position"][row]) - prompt
    page.locator("#ds-race [data-lane=b] .ds-cell").nth(place).click()
    page.locator("#ds-race [data-inspect-step]").fill("10")
    page.locator("#ds-race [data-inspect-layer]").fill("2")
    table = page.locator("#ds-race .ds-candidates tr")
    table.nth(2).wait_for()
    shown = [table.nth(i + 1).locator("td").nth(2).inner_text() for i in range(5)]
    found = [float(text.split()[-1]) for text in shown]  # one may be "below 0.0001"
    assert found == pytest.approx(arrays["candidate_prob"][row].tolist(), abs=1e-4)
    counts = trace.recompute_map()[:, 2, :, prompt + place].sum(0)
    names = ("K", "V", "attention", "feed-forward")
    said = ", ".join(f"{name} {n}" for name, n in zip(names, counts, strict=True))
    assert said in race.text("[data-inspect-card] .ds-facts")
    assert table.nth(2).locator("[data-branch]").evaluate(PRESS), "a second press branches again"
    page.locator("#ds-race [data-parent]").wait_for()
    race.wait_state("done")
    assert race.text("[data-lane=b] [data-title]").endswith("from step 11")
    assert race.text("[data-lane=a] [data-answer]") == before
    known = page.locator("#ds-race [data-lane=b] .ds-fixed").count()
    masked = trace.canvas_at(10)[prompt:] == trace.meta["model"]["mask_id"]
    assert known == (~masked).sum() + 1
    piece = trace.pieces[int(arrays["candidate_id"][row, 1])].decode().strip()
    assert page.locator("#ds-race [data-lane=b] .ds-cell").nth(place).inner_text().strip() == piece
    assert race.text("[data-headline]") == ""
    page.locator("#ds-race [data-back]").click()
    race.wait_state("imported")
    assert race.text("[data-lane=b] [data-answer]") == before
    assert page.locator("#ds-race [data-parent]").is_hidden()


def card_beside(race, width, press):
    """Press a token of a recorded run of dLLM-Cache: its card says why, beside it; close it."""
    page = race.page
    page.locator("#ds-race [data-inspect-lane-b]").click()
    page.locator("#ds-race [data-inspect-step]").fill("11")
    cell = page.locator("[data-lane=b] .ds-cell").nth(9)
    press(cell)
    card = page.get_by_role("group", name="Token 10 of lane B")
    words = card.locator(".ds-token-why")
    words.get_by_text("rank").wait_for()
    assert "the cut-off for 16 rows was" in words.inner_text()
    box, below = card.bounding_box(), cell.bounding_box()
    assert 0 <= box["y"] - below["y"] - below["height"] < 20
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert card.get_by_role("button", name="Branch from before step 12").is_enabled()
    card.get_by_role("button", name="Close the card").click()
    assert card.count() == 0


@pytest.fixture
def method(viewer):
    """The recorded run of dLLM-Cache; in the end the page is wide."""
    viewer.page.locator("#ds-recorded input").click()
    viewer.page.get_by_role("option", name="dLLM-Cache", exact=False).first.click()
    viewer.page.locator("#ds-race .ds[data-state=example]").wait_for()
    yield viewer
    viewer.page.set_viewport_size({"width": 1440, "height": 1000})


def test_a_clicked_token_has_its_card_beside_it(method):
    method.page.set_viewport_size({"width": 1280, "height": 844})
    card_beside(method, 1280, lambda cell: cell.click())


def test_a_tapped_token_has_its_card_beside_it(method):
    method.page.set_viewport_size({"width": 390, "height": 844})
    with touched(method.page) as tap:
        card_beside(method, 390, tap)


def test_the_card_of_an_unrecorded_token_says_what_is_known_and_branches(viewer, shipped, tmp_path):
    spec = RunSpec(prompt=PROMPT, gen_length=32, block_length=8, steps=32)
    race, page, run = viewer, viewer.page, recorded(shipped, spec)
    bring(race, {"a": run, "b": run}, tmp_path)
    page.locator("[data-lane=b] [data-grid]").focus()
    for key in ("Home", "Enter"):
        page.keyboard.press(key)
    card = page.locator(".ds-token-card")
    card.locator(".ds-token-why", has_text="computed").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    assert card.count() == 0
    assert page.evaluate("document.activeElement.matches('[data-lane=b] [data-grid]')")
    page.keyboard.press("Enter")
    card.locator("[data-branch=on]").click()
    page.locator("#ds-race [data-parent]").wait_for()
    assert card.count() == 0
