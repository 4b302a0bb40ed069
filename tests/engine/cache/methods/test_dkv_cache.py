"""dKV-Cache: what each variant computes, where it is exact, and the order that greedy follows."""

import itertools

import numpy as np
import pytest
import torch

from engine.cache.methods.dkv_cache import DkvCache
from engine.catalog import derive_plan, make_policy
from engine.core.rows import ALL, to_mask
from engine.generate.job import split
from engine.generate.loop import Denoiser, denoise
from tests.engine.cache.test_policies import second_step
from tests.engine.generate.test_batch import PROMPTS
from tests.support.micro import (
    ATOL,
    ROOT,
    make_prompts,
    make_spec,
    micro_job,
    model_of,
    run,
    tapped,
    widest_gap,
)  # fmt: skip
from tests.support.torch_flops import counted

P, T = 6, 22
RANDOM = {"quota.score": "random"}


def dkv(**changes):
    knobs = changes.pop("knobs", {})
    return make_spec(cache="dkv_cache", **changes, knobs={"dkv_cache.reload_interval": 3} | knobs)


def greedy(window=2, **changes):
    knobs = {"dkv_cache.variant": "greedy", "dkv_cache.window": window} | RANDOM
    return dkv(**changes, knobs=changes.pop("knobs", {}) | knobs)


def reload(spec, block_step):
    first = 1 if spec.knobs.get("dkv_cache.variant") == "greedy" else 2
    return block_step < first or block_step % spec.knobs["dkv_cache.reload_interval"] == 0


def walk(masked, taken, position, count):
    """The nearest open positions found by stepping out, left before right."""
    found = set()
    for distance, side in itertools.product(range(1, T), (-1, 1)):
        place = position + side * distance
        open_ = 0 <= place < T and masked[place] and place not in taken | found
        if open_ and len(found) < count:
            found.add(place)
    return found


def fed(spec, shift, orders=None):
    """Rows of a step by the definition, for each sequence on its own."""

    def rows(step, block, block_step, masked, b):
        if reload(spec, block_step):
            return set(range(T))
        before, now = masked[step - 1][b], masked[step][b]
        if orders is None:
            return {j for j in range(T) if j + shift >= T or before[j + shift]}
        taken = set(orders[step][b])
        for position in orders[step][b]:
            taken |= walk(now, taken, position, spec.knobs["dkv_cache.window"])
        decoded = set((before & ~now).nonzero()[:, 0].tolist())
        return {j - shift for j in taken} | decoded

    def expected(step, block, block_step, masked):
        out = torch.zeros(len(masked[0]), T, dtype=torch.bool)
        for b, row in enumerate(out):
            row[list(rows(step, block, block_step, masked, b))] = True
        return out, torch.full((len(out),), T)

    return expected


def assert_fed(model, spec):
    result, steps = tapped(model, spec)
    masks = [view.masked for view, _, _, _ in steps]
    orders = None
    if spec.knobs.get("dkv_cache.variant") == "greedy":
        orders = [[o.tolist() for o in view.order] for view, _, _, _ in steps]
    expected = fed(spec, model.info.logit_shift, orders)
    for event, (view, plan, _, _) in zip(result.events, steps, strict=True):
        wanted, _ = expected(event.step, event.block, event.block_step, masks[: event.step + 1])
        assert torch.equal(to_mask(plan.rows, len(wanted), T), wanted)
        assert (plan.rows is ALL) == reload(spec, event.block_step) == (event.kind == "full")
        assert to_mask(plan.rows, len(wanted), T).gather(1, view.logit_rows).all()
    return result


@pytest.mark.parametrize("steps", [16, 8])
@pytest.mark.parametrize("unmasker", ["quota", "threshold"])
def test_decode_recomputes_rows_masked_before_the_last_commit(model, unmasker, steps):
    knobs = {"threshold.threshold": 0.3} if unmasker == "threshold" else {}
    spec = dkv(unmasker=unmasker, steps=steps, block_length=8, knobs=knobs)
    events = assert_fed(model, spec).events
    if (unmasker, steps) == ("quota", 16):
        beyond = model.info.logit_shift
        open_ = [16 - e.step + 1 + beyond for e in events if not reload(spec, e.block_step)]
        assert [e.rows for e in events if e.kind == "partial"] == open_


@pytest.mark.parametrize(("window", "steps"), [(0, 16), (2, 16), (3, 8)])
def test_greedy_recomputes_the_next_the_last_and_the_nearest(model, window, steps):
    events = assert_fed(model, greedy(window, steps=steps, block_length=8)).events
    widest = max(e.rows for e in events if e.kind == "partial")
    assert 16 // steps * (1 + window) <= widest <= 16 // steps * (2 + window)


@pytest.mark.parametrize("family", ["mha", "gqa"])
@pytest.mark.parametrize(("unmasker", "cfg"), [("quota", 0.0), ("threshold", 0.0), ("quota", 1.5)])
def test_one_layer_makes_decode_exact(family, unmasker, cfg):
    """Every decoded token is computed once more as what it became."""
    settings = {"unmasker": unmasker, "block_length": 8, "cfg_scale": cfg}
    plain, expected = tapped(model_of(family, 1), make_spec(**settings))
    cached, steps = tapped(model_of(family, 1), dkv(**settings))
    assert widest_gap(expected, steps) < ATOL
    assert plain.reveals == cached.reveals
    _, deep = tapped(model_of(family), make_spec(**settings))
    _, kept = tapped(model_of(family), dkv(**settings))
    assert widest_gap(deep[:3], kept[:3]) > 1e-6


@pytest.mark.parametrize("family", ["shifted-mha", "shifted-gqa"])
def test_with_shifted_logits_a_row_is_reused_once_the_next_token_is_known(family):
    """So a token decoded after its right neighbour is kept as a mask until a reload."""
    model, settings = model_of(family, 1), {"block_length": 16}
    _, expected = tapped(model, make_spec(**settings))
    _, steps = tapped(model, dkv(**settings, knobs={"dkv_cache.reload_interval": 4}))
    assert widest_gap(expected[:2], steps[:2]) < ATOL
    assert widest_gap(expected, steps) > 1e-6


@pytest.mark.parametrize("cfg", [0.0, 1.5])
def test_one_layer_makes_greedy_exact_where_it_commits(family, cfg):
    settings = {"block_length": 8, "steps": 8, "cfg_scale": cfg}
    plain = run(model_of(family, 1), make_spec(**settings, knobs=RANDOM))
    cached = run(model_of(family, 1), greedy(0, **settings))
    assert plain.reveals == cached.reveals
    for a, b in zip(plain.events, cached.events, strict=True):
        assert np.array_equal(a.positions, b.positions)
        np.testing.assert_allclose(a.confidence, b.confidence, atol=1e-6)
    deep = run(model_of(family), make_spec(**settings, knobs=RANDOM))
    kept = run(model_of(family), greedy(0, **settings))
    pairs = [(a.confidence, b.confidence) for a, b in zip(deep.events, kept.events, strict=True)]
    assert max(np.abs(a - b).max() for a, b in pairs) > 1e-5


@pytest.mark.parametrize("variant", ["decode", "greedy"])
def test_a_reload_in_every_step_is_plain_decoding(family, variant):
    knobs = {"dkv_cache.reload_interval": 1, "dkv_cache.variant": variant} | RANDOM
    plain = run(model_of(family), make_spec(knobs=RANDOM))
    cached = run(model_of(family), dkv(knobs=knobs))
    assert plain.reveals == cached.reveals
    for a, b in zip(plain.events, cached.events, strict=True):
        np.testing.assert_allclose(a.confidence, b.confidence, atol=1e-6)
    assert {e.kind for e in cached.events} == {"full"}


def test_after_the_full_step_the_rows_repeat_it_while_nothing_changes(model):
    def later(spoil=()):
        policy = DkvCache(reload_interval=4)
        original = policy.begin_step

        def begin(view):
            return original(view) if view.step == 0 else original(_at(view, 2))

        policy.begin_step = begin
        return second_step(model, policy, spoil=spoil)[:2]

    first, second = later()
    torch.testing.assert_close(second, first, atol=ATOL, rtol=0)
    first, second = later(("k", "v"))
    assert (first - second).abs().max() > 1e-3


def _at(view, block_step):
    return type(view)(**{**vars(view), "block_step": block_step})


def test_sequences_that_get_out_of_step_are_decoded_alone():
    spec = dkv(unmasker="threshold")
    assert len(split(micro_job(model_of("mha"), spec, PROMPTS))) == 3
    assert len(split(micro_job(model_of("mha"), dkv(), PROMPTS))) == 1


@pytest.mark.parametrize("make", [dkv, greedy])
@pytest.mark.parametrize("family", ["mha", "shifted-gqa"])
def test_the_counter_agrees_with_torch(family, make):
    spec = make(block_length=8)
    steps = denoise(Denoiser(micro_job(model_of(family), spec, make_prompts(6, 9), eager=True)))
    assert len({flops for _, flops in counted(steps, 6)}) > 1


@pytest.mark.parametrize("other", [{"unmasker": "threshold"}, {"unmasker": "quota"}])
def test_greedy_is_refused_if_the_order_depends_on_the_logits(other):
    spec = dkv(**other, knobs={"dkv_cache.variant": "greedy"})
    for refuse in (derive_plan, make_policy):
        with pytest.raises(ValueError, match=r"^dkv_cache\.variant: .* quota\.score random"):
            refuse(spec)
    derive_plan(greedy())
    derive_plan(dkv(**other))


def test_commits_follow_the_order_whatever_logits_are_wanted(model):
    for spec in (greedy(block_length=8, steps=8), make_spec(knobs=RANDOM, fixed=((1, 9),))):
        result, steps = tapped(model, spec)
        for event, (view, _, _, _) in zip(result.events, steps, strict=True):
            assert sorted(event.positions) == sorted(view.order[0])
            wanted = view.needs[0, view.real[0]].tolist()
            narrow = spec.cache == "dkv_cache"
            assert wanted == (sorted(event.positions) if narrow else wanted)
            assert set(event.positions) <= set(wanted)


def test_only_its_own_two_files_name_the_policy():
    sources = [ROOT / "app.py", *(ROOT / "engine").rglob("*"), *(ROOT / "inspector").rglob("*")]
    naming = {
        path.relative_to(ROOT).as_posix()
        for path in sources
        if path.suffix in (".py", ".md", ".js", ".css", ".html")
        and not {"node_modules", "build"} & set(path.parts)
        and "dkv" in path.read_text(encoding="utf-8").lower()
    }
    own = "engine/cache/methods/dkv_cache"
    assert naming == {f"{own}.py", f"{own}.md"}
