"""Block-causal attention and its caches: what is exact, and what makes it so."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.cache.base import StepPlan
from engine.cache.forward import forward
from engine.cache.methods.frozen import Frozen, SubBlock
from engine.cache.methods.none import NoCache
from engine.cache.store import ActivationStore
from engine.catalog import check_model, make_policy, policies
from engine.core.rows import ALL, count
from engine.generate.job import split
from engine.generate.loop import Denoiser, denoise
from tests.support.micro import (
    ATOL,
    TWO_BLOCKS,
    LogitTap,
    block_model_of,
    make_model,
    make_prompts,
    make_spec,
    micro_job,
    model_of,
    run,
    tapped,
    widest_gap,
)
from tests.support.reference import reference_logits

FAMILIES = ("gqa", "shifted-gqa")
SPEC = {"gen_length": 12, "block_length": 4, "steps": 12}
PROMPTS = (1, 3, 4, 6, 9)  # below, equal to, above and beside multiples of a block


def block_logits(model, ids, rows=ALL):
    store = ActivationStore(model.info, (), *ids.shape, model.dtype, model.device)
    return forward(model, store, NoCache(), StepPlan(), ids, None, rows)


def some_ids(length, batch=1, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, 39, (batch, length), generator=generator)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_forward_equals_a_reference_under_the_block_mask(family):
    model, ids = block_model_of(family), some_ids(19, 2)
    found = block_logits(model, ids)
    torch.testing.assert_close(found, reference_logits(model, ids), atol=ATOL, rtol=0)
    assert (found - block_logits(model_of(family), ids)).abs().max() > 1e-3


def test_later_blocks_change_no_bit_of_earlier_rows():
    ids, other = some_ids(16), some_ids(16, seed=2)
    changed = torch.cat((ids[:, :8], other[:, 8:]), 1)
    blocks, full = block_model_of("gqa"), model_of("gqa")
    assert torch.equal(block_logits(blocks, ids)[:, :8], block_logits(blocks, changed)[:, :8])
    assert (block_logits(full, ids)[:, :8] - block_logits(full, changed)[:, :8]).abs().max() > 1e-3


def test_one_block_is_full_attention_and_blocks_of_one_are_causal():
    ids = some_ids(12)
    whole, single = block_model_of("gqa", 16), block_model_of("gqa", 1)
    torch.testing.assert_close(
        block_logits(whole, ids), block_logits(model_of("gqa"), ids), atol=ATOL, rtol=0
    )
    for stop in range(1, 13):  # a row does not depend on what follows
        alone = block_logits(single, ids[:, :stop])
        torch.testing.assert_close(block_logits(single, ids)[:, :stop], alone, atol=ATOL, rtol=0)


@pytest.mark.parametrize("tokens", PROMPTS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("knobs", [{}, {"frozen.fuse": True}], ids=["apart", "fused"])
def test_frozen_gives_the_tokens_and_logits_of_no_cache(family, tokens, knobs):
    model, prompts = block_model_of(family), make_prompts(tokens)
    plain, expected = tapped(model, make_spec(**SPEC), prompts)
    ran, steps = tapped(model, make_spec(cache="frozen", knobs=knobs, **SPEC), prompts)
    proposing = [step for step in steps if step[0].fills is None]
    assert np.array_equal(plain.ids, ran.ids)
    assert widest_gap(expected, proposing) < ATOL
    blocks = len(ran.state.run.grid)
    fills = 0 if knobs else blocks - 1 + (tokens >= 4)
    assert len(steps) - len(proposing) == fills
    assert ran.ids.shape[1] % 4 == 0
    assert ran.ids[0, :tokens].tolist() == prompts[0]
    assert not ran.state.masked.any()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tokens", PROMPTS)
def test_every_call_equals_a_whole_forward_over_the_canvas_cut_at_its_end(family, tokens):
    """Prefill, block and commit calls: the logits of every row that is fed."""

    class Rows(LogitTap):
        def extra_rows(self, view, plan):
            super().extra_rows(view, plan)
            self.rows = torch.arange(plan.rows.start, plan.rows.stop)[None]
            return self.rows

        def receive_logits(self, view, extra):
            whole = block_logits(model, self._canvas[:, : int(self.rows.max()) + 1])
            self.worst = max(self.worst, (whole[:, self.rows[0]] - extra).abs().max().item())
            self.calls += 1

    model, tap = block_model_of(family), Rows()
    tap.worst, tap.calls = 0.0, 0
    run(model, make_spec(cache="frozen", **SPEC), make_prompts(tokens), tap)
    assert tap.worst < ATOL
    assert tap.calls > 12


@pytest.mark.parametrize("kind", [Frozen, SubBlock])
def test_behind_the_first_step_of_a_block_one_row_before_it_enters(kind):
    """The row that predicts the block's first token, as long as that is masked."""
    model, before, entered = block_model_of("shifted-gqa"), -1, 0
    for view, plan, *_ in tapped(model, make_spec(**SPEC), make_prompts(6), kind)[1]:
        start = view.block.start
        if view.block_index == before and plan.rows.start < start:
            assert plan.rows.start == start - 1
            assert view.masked_host[0, start]
            entered += 1
        before = view.block_index
    assert entered


class WithoutCommit(Frozen):
    """Keeps the keys and values of a block's last denoising step."""

    name = "without_commit"

    def rows_to_fill(self, block):
        rows = super().rows_to_fill(block)
        if rows is None or rows.start == 0:
            return rows
        self._known = block.start
        return None


def test_without_the_commit_call_the_next_block_differs():
    model = block_model_of("gqa")
    _, expected = tapped(model, make_spec(**SPEC))
    _, steps = tapped(model, make_spec(**SPEC), policy=WithoutCommit)
    proposing = [step for step in steps if step[0].fills is None]
    first = len([s for s in proposing if s[0].block_index == 0])
    assert widest_gap(expected[:first], proposing[:first]) < ATOL
    assert widest_gap(expected, proposing) > 1e-2


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tokens", [4, 8, 7])
def test_two_prompts_give_different_first_blocks(family, tokens):
    model, spec = block_model_of(family), make_spec(cache="frozen", **SPEC)
    found = []
    for seed in (5, 6):
        _, steps = tapped(model, spec, make_prompts(tokens, seed=seed))
        found.append(next(z for view, _, z, _ in steps if view.fills is None))
    assert (found[0][..., :39] - found[1][..., :39]).abs().max() > 1e-3


def test_a_prompt_of_one_block_is_fed_at_the_published_block_size():
    model = block_model_of("shifted-gqa", 32)
    spec = make_spec(
        gen_length=32, block_length=32, steps=32, cache="frozen", unmasker="fast_dllm_v2"
    )
    first = []
    for seed in (5, 6):
        _, steps = tapped(model, spec, make_prompts(32, seed=seed))
        assert count(steps[0][1].rows, 64) == 32
        first.append(steps[0][2])
    assert (first[0][..., :39] - first[1][..., :39]).abs().max() > 1e-3


@pytest.mark.parametrize("tokens", PROMPTS)
def test_the_rule_of_fast_dllm_v2(tokens):
    """First tokens come from the last row of the block before, alone, with and without a cache."""
    model, rule = block_model_of("shifted-gqa"), {"unmasker": "fast_dllm_v2"}
    knobs = {"fast_dllm_v2.sub_block": 2, "fast_dllm_v2.threshold": 0.3}
    plain, expected = tapped(model, make_spec(**SPEC, **rule, knobs=knobs), make_prompts(tokens))
    spec = make_spec(**SPEC, **rule, knobs=knobs, cache="frozen")
    ran, steps = tapped(model, spec, make_prompts(tokens))
    proposing = [step for step in steps if step[0].fills is None]
    assert np.array_equal(plain.ids, ran.ids)
    assert widest_gap(expected, proposing) < ATOL
    fills = [view for view, *_ in steps if view.fills is not None]
    assert len(fills) == (tokens > 4 and tokens % 4 > 0)  # a prompt that shares the first block
    for view, plan, logits, canvas in proposing:
        start = view.block.start
        if view.block_step == 0 and start >= tokens:
            assert view.needs.tolist() == [[start]]
            assert plan.rows.stop == start
            own = block_logits(model, canvas[:, :start])[0, -1, :39]
            torch.testing.assert_close(logits[0, 0, :39], own, atol=ATOL, rtol=0)
            assert int(ran.ids[0, start]) == int(own.argmax())
        else:
            assert len(set((view.needs[view.real] // 2).tolist())) == 1


def test_whole_block_calls_of_the_sub_block_cache_are_exact_and_others_are_not():
    model = block_model_of("shifted-gqa", 8)
    spec = {"gen_length": 24, "block_length": 8, "steps": 24, "unmasker": "fast_dllm_v2"}
    knobs = {"sub_block.size": 2, "fast_dllm_v2.sub_block": 2}
    _, steps = tapped(model, make_spec(cache="sub_block", knobs=knobs, **spec), make_prompts(9))
    exact, partly = [], []
    for view, plan, logits, canvas in steps:
        whole = block_logits(model, canvas[:, : plan.rows.stop], view.logit_rows)
        gap = (whole[..., :39] - logits[..., :39])[view.real].abs().max() if view.real.any() else 0
        (exact if count(plan.rows, 0) >= 8 or plan.renewed else partly).append(float(gap))
    assert max(exact) < ATOL
    assert max(partly) > 1e-2


def test_a_sub_block_of_the_whole_block_changes_nothing():
    model, prompts = block_model_of("shifted-gqa"), make_prompts(6)
    knobs = {"fast_dllm_v2.sub_block": 4}
    spec = make_spec(**SPEC, unmasker="fast_dllm_v2", knobs=knobs)
    plain, ran = run(model, spec, prompts), run(model, spec, prompts, policy=SubBlock.exact)
    assert np.array_equal(plain.ids, ran.ids)


def test_dare_on_frozen_blocks_reuses_within_a_block_and_commits_exactly():
    model = block_model_of("shifted-gqa")
    knobs = {"dare_o.skip_first_layers": 2, "dare_o.refresh_interval": 2, "dare_o.qbar": 0.9}
    spec = make_spec(**SPEC, unmasker="fast_dllm_v2", cache="frozen+dare_o", knobs=knobs)
    ran, steps = tapped(model, spec, make_prompts(6))
    assert not ran.state.masked.any()
    plain = run(model, replace(spec, cache="frozen", knobs={}), make_prompts(6))
    assert sum(e.recomputed for e in ran.events) < sum(e.recomputed for e in plain.events)
    for view, plan, logits, canvas in steps:
        if plan.renewed:
            whole = block_logits(model, canvas[:, : plan.rows.stop], view.logit_rows)
            if view.real.any() and plan.rows.start == 0:
                assert (whole[..., :39] - logits[..., :39])[view.real].abs().max() < ATOL
    kv = run(model, replace(spec, cache="frozen+dare_kv", knobs={}), make_prompts(6))
    assert not kv.state.masked.any()


def test_dare_on_frozen_blocks_reuses_in_the_first_block_too():
    model, knobs = block_model_of("mha"), {"dare_kv.qbar": 0.9}
    spec = make_spec(gen_length=8, block_length=4, steps=8, cache="frozen+dare_kv", knobs=knobs)
    first = [event for event in run(model, spec, make_prompts(1)).events if event.block == 0]
    assert len(first) > 1
    assert all(event.recomputed < first[0].recomputed for event in first[1:])


@pytest.mark.parametrize("cache", ["none", "frozen", "frozen+dare_kv", "frozen+dare_o"])
@pytest.mark.parametrize("prompts", [(6, 10, 2), (6, 9, 7)], ids=["aligned", "unaligned"])
def test_a_batch_decodes_as_its_sequences_do_alone(cache, prompts):
    knobs = {"dare_o.refresh_interval": 3} if "dare_o" in cache else {}
    model, texts = block_model_of("gqa"), make_prompts(*prompts)
    spec = make_spec(cache=cache, knobs=knobs, **TWO_BLOCKS)
    jobs, found = split(micro_job(model, spec, texts)), []
    for job in jobs:
        state = Denoiser(job)
        list(denoise(state))
        found += [row[job.prompt_length :] for row in state.ids]
    alone = [run(model, spec, [text]).ids[0, len(text) :] for text in texts]
    # The prompt of two tokens has no whole block to compute first, unlike the others.
    assert len(jobs) == (1 if prompts[1] == 10 and "+" not in cache else 3)
    assert all(np.array_equal(a, b) for a, b in zip(found, alone, strict=True))


def test_a_text_that_ends_is_filled_after_its_block():
    base = block_model_of("gqa")
    plain = run(base, make_spec(**SPEC), make_prompts(4))
    stop = int(plain.ids[0, 6])  # a token of the first decoded block
    model = make_model(12, 0, 2, attention="block_causal", block_size=4, block_sizes=(4,),
                       stop_ids=(stop,), eos_id=stop)  # fmt: skip
    ended = run(model, make_spec(**SPEC, cache="frozen"), make_prompts(4))
    assert np.array_equal(ended.ids[0, :8], plain.ids[0, :8])
    assert (ended.ids[0, 8:] == stop).all()
    assert len(ended.events) == 5  # prefill and one block
    assert not ended.state.masked.any()


FULL_ONLY = [name for name, kind in policies().items() if kind.attention == ("full",)]


@pytest.mark.parametrize("cache", [*FULL_ONLY, "dual+dare_o", "none+dare_kv"])
def test_caches_of_the_whole_canvas_are_refused_by_name(cache):
    with pytest.raises(ValueError, match=r"^cache: .*choose frozen"):
        check_model(make_spec(cache=cache, **SPEC), block_model_of("gqa").info)


@pytest.mark.parametrize("cache", ["frozen", "sub_block", "frozen+dare_o"])
def test_block_caches_are_refused_on_full_attention(cache):
    with pytest.raises(ValueError, match=r"^cache: .*needs block-causal attention"):
        check_model(make_spec(cache=cache), model_of("gqa").info)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_length": 6}, r"^block_length: 6 is not a block size of this model; set it to 4"),
        ({"cfg_scale": 1.0}, r"^cfg_scale: "),
    ],
)
def test_impossible_settings_of_a_block_model_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        run(block_model_of("gqa"), make_spec(**SPEC | changes))


def test_fusing_is_refused_with_first_tokens_alone():
    spec = make_spec(unmasker="fast_dllm_v2", cache="frozen", knobs={"frozen.fuse": True})
    with pytest.raises(ValueError, match=r"^frozen\.fuse: "):
        make_policy(spec)


def test_given_tokens_and_their_blocks():
    model = block_model_of("shifted-gqa")
    spec = make_spec(**SPEC, fixed=((2, 7), (3, 8), (9, 9)), unmasker="fast_dllm_v2")
    for tokens in (4, 6):
        plain = run(model, spec, make_prompts(tokens))
        ran = run(model, replace(spec, cache="frozen"), make_prompts(tokens))
        assert np.array_equal(plain.ids, ran.ids)
        assert ran.ids[0, [tokens + 2, tokens + 3, tokens + 9]].tolist() == [7, 8, 9]


def test_a_batch_is_split_if_its_sequences_share_the_rows_of_a_step():
    """The sub-block that one sequence decodes would renew keys and values of the other."""
    model, prompts = block_model_of("gqa", 8), make_prompts(8, 16)
    shape = {"gen_length": 16, "block_length": 8, "steps": 16}
    spec = make_spec(**shape, cache="sub_block", knobs={"sub_block.size": 2})
    assert len(split(micro_job(model, spec, prompts))) == 2
    assert len(split(micro_job(model, make_spec(**shape, cache="frozen"), prompts))) == 1
