"""Token card, comparison, candidates and branches: what the page says against what the run did."""

import re
from dataclasses import replace

import numpy as np
import pytest

from engine.config.spec import RunSpec
from engine.core.drift_codes import decode
from engine.models.loading.families import embedded_models
from engine.serve.session import Session
from inspector import static_files
from inspector.views import registry
from tests.support.browser import PROMPT, ROOT
from tests.support.looking import bring, recorded, show

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser

SCRIPTS = ("format.js", "inspect/codes.js", "inspect/why.js")
EVERY_CELL = """async ([frame, rules, drift]) => {
  const f = await unpack(frame), r = await unpack(rules), d = await unpack(drift);
  const out = [];
  for (let step = 0; step < f.steps; step++)
    for (let layer = 0; layer < f.layers; layer++)
      for (let position = 0; position < f.positions; position++)
        out.push(new Why(f, r, d, { step, layer, position }).sentence());
  return out;
}"""
METHODS = (
    "none", "prefix", "dual", "freecache", "dllm_cache", "spa_cache", "dare_kv", "dare_o",
    "dual+dare_kv", "dkv_cache",
)  # fmt: skip


@pytest.fixture(scope="module")
def session():
    return Session(embedded_models(ROOT / "assets"))


def small_run(session, **changes):
    spec = RunSpec(prompt=PROMPT, gen_length=32, block_length=8, steps=32, record="layers")
    return recorded(session, replace(spec, **changes))


def sentences(page, trace):
    """What the page says of every cell, [S, L, T]."""
    views = [registry.draw(trace, name) for name in ("frame", "why", "drift")]
    steps, layers, _, positions = trace.recompute_map().shape
    said = page.evaluate(EVERY_CELL, views)
    return np.array(said, object).reshape(steps, layers, positions)


def check_heads(said, bits):
    """`bits` [S, L, 4, T]: whether the verdict is that of the plan."""
    done = bits.sum(2)
    for index in np.ndindex(said.shape):
        head = said[index].split(":")[0]
        want = {4: "Recomputed", 0: "Not recomputed"}.get(done[index])
        assert head == want if want else head.endswith(" reused"), (index, said[index])


def number(text, after):
    found = re.search(after + r" ([\d.]*\d)", text)
    return float(found[1]) if found else None


def check_dllm(said, trace, prompt):
    assert said[5, 3, 2].endswith("the prompt every 25 steps; last at step 1, next at step 26.")
    assert said[25, 3, 2].startswith("Recomputed: dLLM-Cache renews the prompt every 25 steps")
    assert (
        "every 5 steps, and this step is one of them; last at step 6, next at step 16"
        in (said[10, 4, prompt + 3])
    )
    codes, bits = trace.arrays()["drift"][:, :, 1], trace.recompute_map()
    for step, layer, place in ((11, 3, 1), (12, 5, 9), (13, 7, 14), (22, 2, 6)):
        text, moved = said[step, layer, prompt + place], codes[step, layer, prompt + place]
        count = int(bits[step, layer, 3, prompt:].sum())
        assert f"among the {count} of 32 rows (25 %)" in text
        assert ("not among" in text) == (not bits[step, layer, 3, prompt + place])
        shown = number(text, "moved by")
        assert shown is None or shown == pytest.approx(float(decode(moved)), rel=0.06)


def check_dare(said, trace, prompt):
    codes, limits = trace.arrays()["drift"][:, :, 4], trace.meta["facts"]["threshold"]
    compared = 0
    for step, layer, x in np.ndindex(said.shape):
        text = said[step, layer, x]
        moved, limit = number(text, "moved by"), number(text, "threshold of")
        if moved is None or limit is None:
            continue
        assert limit == pytest.approx(limits[layer], rel=0.06)
        assert moved == pytest.approx(float(decode(codes[step, layer, x])), rel=0.06)
        apart = abs(moved - limit) > 0.1 * limit
        assert not apart or ("more than this" in text and "no more" not in text) == (moved > limit)
        compared += apart
    assert compared > 100


def check_blocks(said, trace, prompt):
    starts = trace.arrays()["block_step"] == 0
    found = np.vectorize(lambda text: "starts at this step" in text)(said)
    assert np.array_equal(found, np.broadcast_to(starts[:, None, None], found.shape))
    assert re.search("last at step 1, next at step 9.$", said[3, 2, 4])
    assert re.search("last at step 25, not again in this run.$", said[30, 2, 4])


def check_spa(said, trace, prompt):
    budget = trace.meta["facts"]["budget"]
    assert said[3, 2, 4].endswith(
        "the prompt at long intervals; last at step 1, not again in this run."
    )
    assert "renews the answer every 7 steps, and this step" in said[14, 2, prompt + 3]
    assert f"budget being {100 * budget[4]:.1f} %" in said[3, 4, prompt + 3]


def test_the_sentence_says_what_the_plan_did_under_every_method(session, new_page):
    page = new_page().page
    page.add_script_tag(content="\n".join(static_files.text(name) for name in SCRIPTS))
    page.evaluate("Object.assign(window, { unpack, Why })")
    checks = {"dllm_cache": check_dllm, "dare_kv": check_dare, "prefix": check_blocks,
              "dual": check_blocks, "spa_cache": check_spa}  # fmt: skip
    told = {}
    for cache in METHODS:
        trace = small_run(session, cache=cache)
        told[cache] = said = sentences(page, trace)
        check_heads(said, trace.recompute_map())
        if cache in checks:
            checks[cache](said, trace, int(trace.arrays()["prompt_mask"].sum()))
    assert set(told["none"].ravel()) == {
        "Recomputed: plain decoding computes every row in every step."
    }
    assert "has frozen it" in told["freecache"][-1, 0, 0]
    assert "threshold" in " ".join(told["dare_o"][-1, 3])
    both = " ".join(told["dual+dare_kv"].ravel())
    assert "the dual cache keeps everything" in both
    assert "more than this layer's threshold" in both
    with pytest.raises(AssertionError):
        check_heads(told["none"], ~small_run(session).recompute_map())


def test_a_branch_runs_beside_its_parent_and_the_parent_comes_back(
    app, new_page, session, tmp_path
):
    lanes = {"a": small_run(session), "b": small_run(session, cache="dllm_cache")}
    race = new_page().open(app.link())
    page = race.page
    bring(race, lanes, tmp_path)
    before = race.text("[data-lane=b] [data-answer]")
    page.locator("#ds-race [data-tab=time]").click()
    page.get_by_text("Recorded runs show no times").first.wait_for()
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
    shown = [float(table.nth(i + 1).locator("td").nth(2).inner_text()) for i in range(5)]
    assert shown == pytest.approx(arrays["candidate_prob"][row].tolist(), abs=1e-4)
    counts = trace.recompute_map()[:, 2, :, prompt + place].sum(0)
    names = ("K", "V", "attention", "feed-forward")
    said = ", ".join(f"{name} {n}" for name, n in zip(names, counts, strict=True))
    assert said in race.text("[data-inspect-card] .ds-facts")
    table.nth(2).locator("[data-branch]").click()
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
