"""Level probe: the logit lens, compared with the logits of the loop and with a reference."""

import numpy as np
import pytest
import torch

from engine.config.narrowing import Narrowing
from engine.config.spec import RunSpec
from engine.core.events import NOT_COMPUTED, PROBABILITY_SCALE
from engine.record import logit_lens
from engine.record.logit_lens import HiddenStates, read_lens
from engine.record.probe_recorder import ProbeRecorder
from tests.support.micro import (
    MASK,
    TWO_BLOCKS,
    full_policies,
    make_prompts,
    make_spec,
    model_of,
    run,
    tapped,
)
from tests.support.reference import reference_hidden, reference_lens
from tests.support.traces import trace_of

PROMPT, LENGTH = 6, 22
ANSWER = LENGTH - PROMPT


def probed(family="mha", prompts=None, narrowing=None, eager=False, **changes):
    """The steps of a run that were probed: [(event, lens)]."""
    recorder = ProbeRecorder(16, 16, (), narrowing or Narrowing())
    events = run(model_of(family), make_spec(**changes), prompts, recorder, eager=eager).events
    return [(e, e.recording.probe.lens) for e in events if e.recording.probe is not None]


def best(logits):
    """Ids and probabilities of the best tokens of logits [n, V] without the mask."""
    z = logits.clone()
    z[:, MASK] = -torch.inf
    share = z.softmax(-1).max(-1)
    return share.indices.numpy(), share.values.numpy()


@pytest.mark.parametrize("cache", full_policies())
def test_the_last_layer_gives_the_best_token_and_probability_of_the_step(family, cache):
    """Those of the candidates that the loop computed, in every probed step of every cache."""
    compared = probed(family, cache=cache, unmasker="threshold", **TWO_BLOCKS)
    for event, lens in compared:
        columns = event.recording.positions - PROMPT
        assert np.array_equal(lens.ids[0, -1, columns], event.recording.top_ids[:, 0])
        found = lens.probs[0, -1, columns] / PROBABILITY_SCALE
        assert np.abs(found - event.recording.top_probs[:, 0]).max() <= 0.5 / 254 + 1e-6
    assert len(compared) > 1


def test_plain_decoding_equals_the_exact_pass(family):
    for event, lens in probed(family):
        own = lens.probs[0] < NOT_COMPUTED
        assert own[:-1].all()
        assert np.array_equal(np.flatnonzero(own[-1]) + PROMPT, event.recording.positions)
        assert (lens.probs[1] < NOT_COMPUTED).all()
        for codes in (lens.ids, lens.probs, lens.token_probs):
            assert np.array_equal(codes[0][own], codes[1][own])


def test_a_cache_differs_from_the_exact_pass_where_it_reuses():
    compared = probed(cache="dual")
    reusing = [lens for event, lens in compared if event.kind == "partial"]
    assert any(((x.probs[0] != x.probs[1]) & (x.probs[0] < NOT_COMPUTED)).any() for x in reusing)
    for event, lens in compared:
        if event.kind == "full":
            known = lens.probs[0] < NOT_COMPUTED
            assert np.array_equal(lens.ids[0][known], lens.ids[1][known])


def test_rows_outside_the_window_have_no_hidden_state():
    for event, lens in probed(cache="dual"):
        places = np.arange(ANSWER)
        inside = (places // 4 == event.block) if event.block_step else places >= 0
        assert np.array_equal(lens.probs[0, :-1] < NOT_COMPUTED, np.tile(inside, (2, 1)))
        assert (lens.ids[0][lens.probs[0] == NOT_COMPUTED] == 0).all()


@pytest.mark.parametrize("family", ["mha", "shifted-gqa"])
def test_every_layer_of_the_exact_pass_is_that_of_a_reference_network(family):
    model = model_of(family)
    _, taps = tapped(model, make_spec(cache="dual"))
    compared = probed(family, cache="dual")
    rows = torch.arange(PROMPT, LENGTH) - model.info.logit_shift
    wrong_ids, wrong_probs = 0, 0.0
    for (_, _, _, canvas), (_, lens) in zip(taps, compared, strict=True):
        for layer, h in enumerate(reference_hidden(model, canvas)):
            ids, probs = best(reference_lens(model, h)[0, rows])
            assert np.array_equal(lens.ids[1, layer], ids)
            assert np.abs(lens.probs[1, layer] / PROBABILITY_SCALE - probs).max() < 0.5 / 254 + 1e-6
            other_ids, other_probs = best((h @ model.head.weight.T)[0, rows])
            wrong_ids += int((other_ids != ids).sum())
            wrong_probs = max(wrong_probs, np.abs(other_probs - probs).max())
        final = torch.from_numpy(lens.ids[1, -1]).long()
        z = reference_lens(model, h)[0, rows]
        z[:, MASK] = -torch.inf
        share = z.softmax(-1).gather(1, final[:, None])[:, 0].numpy()
        assert np.abs(lens.token_probs[1, -1] / PROBABILITY_SCALE - share).max() < 0.5 / 254 + 1e-6
    assert (wrong_ids > 10, wrong_probs > 0.1) == (True, True), "without the final norm"


def test_the_head_is_computed_in_parts_with_the_same_result(monkeypatch):
    whole = probed(cache="spa_cache")
    monkeypatch.setattr(logit_lens, "MAX_LOGITS", 3 * 40)
    sizes = []
    model = model_of("mha")
    head = type(model).logits

    def counted(self, h):
        sizes.append(h.shape[1])
        return head(self, h)

    monkeypatch.setattr(type(model), "logits", counted)
    for (_, a), (_, b) in zip(whole, probed(cache="spa_cache"), strict=True):
        assert np.array_equal(a.ids, b.ids)
        assert np.array_equal(a.probs, b.probs)
    assert sizes.count(3) > 100
    assert max(sizes) <= ANSWER


def test_memory_for_logits_is_bounded_for_a_large_vocabulary():
    rows = logit_lens.MAX_LOGITS // 126_464
    assert rows >= 100
    assert rows * 126_464 * 4 < 70e6


@pytest.mark.parametrize(
    ("positions", "expected"), [("9-14", range(8, 14)), ("answer", range(6, 22)), ("1-8", (6, 7))]
)
def test_only_recorded_positions_of_the_answer_have_a_lens(positions, expected):
    whole = dict(enumerate(probed()))
    for i, (_, lens) in enumerate(probed(narrowing=Narrowing(positions=positions, layers="2"))):
        assert lens.positions.tolist() == list(expected)
        columns = lens.positions - PROMPT
        assert np.array_equal(lens.ids, whole[i][1].ids[..., columns])


def test_given_text_after_the_answer_has_no_lens(session):
    spec = RunSpec(model="micro", prompt="One", gen_length=8, block_length=8, steps=8,
                   cache="dllm_cache", suffix=" and so on", record="probe")  # fmt: skip
    arrays = trace_of(session.run(spec)).arrays()
    prompt = int(arrays["prompt_mask"].sum())
    assert len(arrays["canvas"]) > prompt + 8
    assert arrays["lens_position"].tolist() == list(range(prompt, prompt + 8))


def test_without_a_recorded_position_of_the_answer_there_is_no_lens():
    assert all(lens is None for _, lens in probed(narrowing=Narrowing(positions="1-6")))


def test_the_first_sequence_of_a_padded_batch_has_the_lens_of_its_own_run():
    short, long = make_prompts(4), make_prompts(6, seed=8)
    for (_, lens), (_, other) in zip(
        probed(prompts=[*short, *long]), probed(prompts=short), strict=True
    ):
        assert np.array_equal(lens.ids, other.ids)
        assert np.abs(lens.probs.astype(int) - other.probs).max() <= 1


def test_hidden_states_of_index_rows_are_those_of_their_positions():
    h = torch.arange(10.0).reshape(1, 5, 2)
    states = HiddenStates(torch.tensor([2, 3, 7]), 8)
    states(0, h, torch.tensor([[1, 3, 4, 7, 7]]))
    found, known = states.layers[0]
    assert known.tolist() == [False, True, True]
    assert found[1].tolist() == [2, 3]
    assert found[2].tolist() in ([6, 7], [8, 9])


def test_a_token_of_the_lens_is_never_the_mask():
    model = model_of("mha")
    rows = torch.arange(4)
    states = HiddenStates(rows, 4)
    z = torch.linalg.lstsq(model.head.weight, torch.eye(40, dtype=torch.float64)[:, MASK]).solution
    states(0, z.expand(1, 4, -1), slice(0, 4))
    lens = read_lens(model, states, states, np.arange(4))
    assert (lens.ids != MASK).all()
