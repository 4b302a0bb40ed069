"""End-of-text rules: which positions they fill, and how many forwards they save."""

import numpy as np
import pytest
import torch

from engine.catalog import derive_plan
from engine.generate.end_of_text import (
    positions_to_fill,
    suppress_confidence,
    suppress_logits,
    text_length,
)
from engine.record.recorder import Recorder
from engine.unmask.base import Candidates
from tests.support.micro import (
    EOS,
    EOT,
    VOCAB,
    block_model_of,
    make_model,
    make_prompts,
    make_spec,
    micro_job,
    run,
)

STOPS = (EOS, EOT)
LEFT_TO_RIGHT = {"block_length": 1}


def first_end(ids):
    return text_length(ids, STOPS)


def ending_model(shift=0):
    """A model whose answer ends well before the end of its canvas."""
    for seed in range(100):
        model = make_model(seed, shift)
        if 3 <= first_end(run(model, make_spec(**LEFT_TO_RIGHT)).ids[0, 6:]) <= 10:
            return model
    raise AssertionError("no seed ends its text in time")


@pytest.fixture(scope="module", params=[0, 1])
def ending(request):
    return ending_model(request.param)


@pytest.mark.parametrize("policy", ["fill_safe", "fill_eager"])
def test_filling_keeps_the_text_of_left_to_right_decoding(ending, policy):
    official = run(ending, make_spec(**LEFT_TO_RIGHT))
    filled = run(ending, make_spec(eos=policy, **LEFT_TO_RIGHT))
    end = first_end(official.ids[0, 6:])
    assert np.array_equal(official.ids[0, : 7 + end], filled.ids[0, : 7 + end])
    assert (filled.ids[0, 7 + end :] == EOS).all()
    assert not (official.ids[0, 7 + end :] == EOS).all()
    assert len(filled.events) == end + 1 < len(official.events) == 16


@pytest.mark.parametrize("policy", ["fill_safe", "fill_eager"])
def test_filled_tokens_have_no_confidence(ending, policy):
    last = run(ending, make_spec(eos=policy, **LEFT_TO_RIGHT)).events[-1]
    assert np.isfinite(last.confidence[0])
    assert np.isnan(last.confidence[1:]).all()
    assert last.masks_left == 0


def test_official_always_runs_every_step(ending):
    assert len(run(ending, make_spec(steps=8)).events) == 8


@pytest.mark.parametrize("policy", ["fill_safe", "fill_eager"])
def test_a_stop_token_in_the_prompt_has_no_effect(ending, policy):
    """The text of a prompt with two of them ends where plain decoding ends it, not before."""
    ends = []
    for words in range(2, 8):
        prompt = [[EOS, *make_prompts(words)[0], EOT]]
        plain = run(ending, make_spec(**LEFT_TO_RIGHT), prompt)
        filled = run(ending, make_spec(eos=policy, **LEFT_TO_RIGHT), prompt)
        end = first_end(plain.ids[0, words + 2 :])
        assert len(filled.events) == min(end + 1, 16)
        assert np.array_equal(plain.ids[0, : words + 3 + end], filled.ids[0, : words + 3 + end])
        ends.append(end)
    assert max(ends) > 0


CANVAS = np.array([[EOS, 5, 7, 0, EOT, 0, 0], [9, 9, 0, 0, 0, 0, 0], [9, 9, 7, 8, EOS, 0, 0]])
MASKED = np.array([[0, 0, 0, 1, 0, 1, 1], [0, 0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1, 1]], bool)


@pytest.mark.parametrize(
    ("policy", "filled"),
    [
        ("official", [[], [], []]),
        ("fill_eager", [[5, 6], [], [5, 6]]),
        ("fill_safe", [[], [], [5, 6]]),
    ],
)
def test_the_positions_to_fill(policy, filled):
    fill = positions_to_fill(policy, CANVAS, MASKED, STOPS, 2)
    assert [np.flatnonzero(row).tolist() for row in fill] == filled


@pytest.mark.parametrize(
    ("fixed", "filled"),
    [
        (((0, EOS),), [False, True]),
        (((0, 5), (1, EOS)), [True, False]),
        (((0, EOS), (1, 5)), [True, True]),
    ],
)
def test_a_given_stop_ends_the_answer_of_a_block_model_behind_a_whole_block(fixed, filled):
    """Blocks of 4 behind 6 and 3 tokens of prompt: the first holds two tokens, and one."""
    model = block_model_of("mha", stop_ids=(EOS,))
    job = micro_job(model, make_spec(gen_length=8, fixed=fixed), make_prompts(6, 3))
    known = np.zeros(job.canvas.shape, bool) if job.known_mask is None else job.known_mask.numpy()
    assert [row[8] for row in known] == filled
    alone = [micro_job(model, job.spec, [prompt]) for prompt in make_prompts(6, 3)]
    assert [one.known_mask is not None for one in alone] == filled


def test_a_stop_id_at_a_masked_position_has_no_effect():
    masked = np.ones((1, 4), bool)
    assert not positions_to_fill("fill_eager", np.full((1, 4), EOS), masked, STOPS, 0).any()


def test_suppressed_logits_never_propose_end_of_text(ending):
    result = run(ending, make_spec(eos_suppress="logits"))
    assert EOS not in result.ids[0, 6:]


def test_suppressed_logits_do_not_change_other_stop_tokens():
    logits = torch.zeros(1, 1, VOCAB)
    suppress_logits(logits, {EOS})
    assert logits[0, 0, EOS] == -torch.inf
    assert (logits[0, 0, [EOT, 0, 5]] == 0).all()


def test_suppressed_confidence_ranks_stop_tokens_last_and_keeps_their_probability():
    ids, score = torch.tensor([[7, EOS, EOT, 8]]), torch.tensor([[0.2, 0.9, 0.8, -torch.inf]])
    held = suppress_confidence(Candidates(ids, score, score), STOPS)
    assert held.ranking()[0].tolist() == [0, 1, 2, 3]
    assert torch.equal(held.confidence, score)
    assert Candidates(ids, score, score).ranking()[0].tolist() == [1, 2, 0, 3]


class ProposalTap(Recorder):
    def __init__(self):
        self.steps = []

    def record(self, view, plan, logits, candidates):
        self.steps.append(candidates.ids[view.real].numpy())


def test_without_stop_tokens_no_score_is_changed():
    ids, score = torch.tensor([[7, 8]]), torch.tensor([[0.2, 0.9]])
    assert suppress_confidence(Candidates(ids, score, score), ()).score is score


def early_stops(model, **changes):
    """Steps that commit a stop token although another token was proposed."""
    tap = ProposalTap()
    result = run(model, make_spec(block_length=16, seed=4, **changes), recorder=tap)
    both = zip(result.events, tap.steps, strict=True)
    return [
        e.step for e, ids in both if np.isin(e.ids, STOPS).any() and not np.isin(ids, STOPS).all()
    ]


@pytest.mark.parametrize("unmasker", ["quota", "threshold"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_suppressed_confidence_commits_stop_tokens_last(ending, temperature, unmasker):
    changes = {"temperature": temperature, "unmasker": unmasker}
    assert early_stops(ending, eos_suppress="confidence", **changes) == []


@pytest.mark.parametrize("shift", [0, 1])
def test_without_suppression_stop_tokens_come_early(shift):
    assert any(early_stops(make_model(seed, shift)) for seed in range(20))


@pytest.mark.parametrize(
    ("ids", "length"), [([5, 6, 7], 3), ([5, EOT, EOS], 1), ([EOS], 0), ([], 0)]
)
def test_text_length_counts_to_the_first_stop_token(ids, length):
    assert text_length(np.array(ids, int), STOPS) == length


@pytest.mark.parametrize(
    ("unmasker", "knobs"),
    [("sequential", {}), ("quota", {"quota.score": "random"}), ("dream", {"dream.alg": "origin"})],
)
def test_rules_that_do_not_rank_refuse_to_rank_ends_last(unmasker, knobs):
    spec = make_spec(unmasker=unmasker, knobs=knobs, eos_suppress="confidence")
    with pytest.raises(ValueError, match=f"eos_suppress: .*{unmasker} does not rank here"):
        derive_plan(spec)
    derive_plan(make_spec(unmasker=unmasker, eos_suppress="logits", knobs=knobs))


@pytest.mark.parametrize("unmasker", ["quota", "dream", "threshold", "fast_dllm_v2", "certainty"])
def test_rules_that_rank_take_ends_ranked_last(unmasker):
    derive_plan(make_spec(unmasker=unmasker, eos_suppress="confidence"))
