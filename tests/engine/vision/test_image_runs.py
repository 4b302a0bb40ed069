"""Given rows in runs: every cache, captured forwards, guidance; stops, suffixes, suppressed ids."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.cache.methods.fast_dllm import PrefixCache
from engine.core.rows import ALL
from engine.generate.end_of_text import find_stops
from engine.generate.loop import Denoiser, denoise
from engine.models.given_rows import GivenRows
from tests.support.micro import (
    MASK,
    full_policies,
    make_model,
    make_prompts,
    make_spec,
    micro_job,
    run,
    tapped,
    widest_gap,
)

PROMPT = make_prompts(24)[0]
LENGTH = 24 + 16
EXACT = {name: cls.exact() for name, cls in full_policies().items() if cls.exact() is not None}


def rows(seed=3, first=4, count=12):
    values = torch.randn(
        count, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    return first, values


def given(*spans, length=LENGTH):
    return GivenRows(length, spans or [rows()])


@pytest.fixture(scope="module")
def model():
    return make_model(7)


@pytest.fixture(scope="module")
def seeing(model):
    return model.with_given_rows(given())


def test_rows_are_put_at_their_positions_whatever_rows_enter(model, seeing):
    ids = torch.arange(LENGTH)[None].clamp_max(38)
    plain, whole = model.embed(ids), seeing.embed(ids)
    first, values = rows()
    assert torch.equal(whole[0, first : first + 12], values)
    outside = [*range(first), *range(first + 12, LENGTH)]
    assert torch.equal(whole[0, outside], plain[0, outside])
    for part in (slice(0, 3), slice(2, 9), slice(10, LENGTH), slice(16, 20), slice(0, LENGTH)):
        assert torch.equal(seeing.embed(ids[:, part], part), whole[:, part])
    index = torch.tensor([[0, 5, 15, 16, 39, 15]])
    assert torch.equal(seeing.embed(ids.gather(1, index), index), whole[:, index[0]])
    assert torch.equal(model.embed(ids), plain)


def test_a_copy_shares_the_weights_and_none_is_the_model_itself(model, seeing):
    assert seeing.head.weight is model.head.weight
    assert model.with_given_rows(None) is model
    assert torch.equal(
        seeing.with_given_rows(None).embed(torch.tensor([[1]]), ALL),
        model.embed(torch.tensor([[1]])),
    )


@pytest.mark.parametrize("name", EXACT)
def test_every_cache_with_exact_settings_equals_no_cache(seeing, model, name):
    spec = make_spec()
    _, plain = tapped(seeing, spec, [PROMPT])
    own = tapped(seeing, spec, [PROMPT], policy=type(EXACT[name]).exact)[1]
    assert widest_gap(own, plain) < 1e-9, name
    assert widest_gap(tapped(model, spec, [PROMPT])[1], plain) > 1e-3  # the rows are seen


@pytest.mark.parametrize("name", full_policies())
def test_captured_forwards_equal_eager_ones(seeing, name):
    spec = make_spec(cache=name, gen_length=16, block_length=8)
    eager = run(seeing, spec, [PROMPT], eager=True)
    captured = run(seeing, spec, [PROMPT])
    assert np.array_equal(eager.ids, captured.ids)
    assert eager.reveals == captured.reveals


def test_guidance_masks_the_rows_of_images(model):
    """With all weight on the unconditional branch, another image changes nothing."""
    spec = make_spec(cfg_scale=0.5, gen_length=8, block_length=8, steps=8)
    length = len(PROMPT) + 8
    unconditional = []
    for seed in (3, 4):
        own = model.with_given_rows(given(rows(seed), length=length))
        state = Denoiser(micro_job(own, spec, [PROMPT]))
        seen = []
        branch = state.branches[1]
        inner = branch.forwards

        def tap(*args, inner=inner, seen=seen):
            seen.append(inner(*args).clone())
            return seen[-1]

        branch.forwards = tap
        next(denoise(state))
        unconditional.append(seen[0])
        ids = state.branches[1]
        assert ids is branch
    assert torch.equal(*unconditional)


def test_a_refresh_in_every_step_equals_no_cache_and_a_rare_one_prefix(seeing):
    spec = make_spec(block_length=16)
    _, plain = tapped(seeing, spec, [PROMPT])
    every = tapped(seeing, spec, [PROMPT], policy=lambda: PrefixCache(refresh_interval=1))[1]
    rare = tapped(seeing, spec, [PROMPT], policy=lambda: PrefixCache(refresh_interval=16))[1]
    never = tapped(seeing, spec, [PROMPT], policy=PrefixCache)[1]
    assert widest_gap(every, plain) < 1e-9
    assert widest_gap(rare, never) < 1e-9
    assert widest_gap(rare, plain) > 1e-6


def test_suppressed_ids_are_never_proposed(model):
    spec = make_spec(unmasker="threshold", knobs={"threshold.threshold": 0.1})
    usual = set(run(model, spec, [PROMPT]).ids[0, 24:].tolist())
    silent = model.with_given_rows(given())
    silent.info = replace(model.info, suppressed_ids=tuple(usual))
    assert usual.isdisjoint(run(silent, spec, [PROMPT]).ids[0, 24:].tolist())


# Stops and suffixes.


def job(model, spec, stops=(), suffix=(), prompt=PROMPT):
    made = micro_job(model, spec, [prompt])
    canvas = torch.cat((made.canvas, torch.tensor([suffix], dtype=torch.int64)), 1)
    fixed = torch.zeros(canvas.shape, dtype=torch.bool)
    fixed[:, made.canvas.shape[1] :] = True
    return replace(
        made, canvas=canvas, fixed_mask=fixed, suffix_length=len(suffix), stops=tuple(stops)
    )


def finished(*arguments, **options):
    state = Denoiser(job(*arguments, **options))
    return state, list(denoise(state))


def test_a_suffix_stays_and_is_seen(model):
    spec = make_spec()
    state, _ = finished(model, spec, suffix=(5, 6, 7))
    assert state.ids[0, -3:].tolist() == [5, 6, 7]
    assert not state.masked[0].any()
    other, _ = finished(model, spec, suffix=(8, 9, 10))
    assert not np.array_equal(state.ids[:, :-3], other.ids[:, :-3])


def test_a_run_ends_at_its_stop_and_leaves_masks_behind_it(model):
    spec = make_spec(gen_length=16, block_length=16)
    whole, events = finished(model, spec)
    last = {int(p): e.step for e in events for p in e.positions}
    middle = max(range(24 + 4, 24 + 12), key=lambda p: -last[p])
    stop = int(whole.ids[0, middle])
    state, own = finished(model, spec, stops=[(stop,)])
    assert len(own) < len(events)
    place = 24 + state.answer_length(0)
    assert state.ids[0, place] == stop
    assert not state.masked[0, :place].any()
    assert state.masked[0, place:].any()
    assert (state.ids[0, state.masked[0].nonzero()[0]] == MASK).all()
    state.rewind()
    assert [e.positions.tolist() for e in denoise(state)] == [e.positions.tolist() for e in own]


def test_later_blocks_are_not_decoded_after_a_stop(model):
    spec = make_spec(gen_length=16, block_length=4)
    whole, _ = finished(model, spec)
    stop = int(whole.ids[0, 24])
    state, own = finished(model, spec, stops=[(stop,)])
    assert max(e.block for e in own) == 0
    assert state.answer_length(0) == 0
    assert state.masked[0, 28:].all()


UNMASKERS = ("quota", "threshold", "frechet", "certainty")


@pytest.mark.parametrize(
    ("cache", "unmasker"),
    [(cache, UNMASKERS[(i + j) % 4]) for i, cache in enumerate(full_policies()) for j in (0, 1)],
)
def test_every_method_stops(model, cache, unmasker):
    """Each cache with two of the unmaskers."""
    spec = make_spec(cache=cache, unmasker=unmasker, gen_length=8, block_length=8, steps=8)
    whole, events = finished(model, spec)
    stop = int(whole.ids[0, 26])
    state, own = finished(model, spec, stops=[(stop,)])
    assert len(own) <= len(events)
    before = 24 + state.answer_length(0)
    assert state.ids[0, before] == stop
    assert not state.masked[0, :before].any()


@pytest.mark.parametrize(
    ("stops", "place"),
    [([[3]], 2), ([[3, 4]], 2), ([[4, 5]], 6), ([[9], [3]], 2),
     ([[2, 3, 4, 9]], 6), ([[1] * 9], 6)],
)  # fmt: skip
def test_a_stop_is_the_first_series_of_known_tokens(stops, place):
    ids, masked = np.array([[1, 2, 3, 4, 5, 3]]), np.zeros((1, 6), bool)
    masked[0, 4] = True
    assert find_stops(ids, masked, stops).tolist() == [place]


def test_sequences_of_a_batch_stop_on_their_own(model):
    from engine.generate.job import split

    spec = make_spec()
    made = replace(micro_job(model, spec, make_prompts(6, 6)), stops=((5,),))
    assert len(split(made)) == 2
    assert len(split(replace(made, stops=()))) == 1
