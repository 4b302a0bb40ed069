"""A causal model as guider: its cache, its cost and its FLOPs."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from engine.generate.loop import Denoiser, denoise
from engine.guider.model import Guider, GuiderReader
from engine.guider.verification import AcceptanceRule, Verifier
from engine.guider.vocabularies import VocabularyPair
from tests.support.fake_guiders import fake_run_guider, random_qwen2
from tests.support.micro import (
    ATOL,
    Run,
    make_model,
    make_prompts,
    make_spec,
    micro_job,
    model_of,
)  # fmt: skip
from tests.support.torch_flops import TorchFlops, counted

P, G = 6, 16


class PlainTokenizer:
    """A tokenizer without special tokens."""

    specials = frozenset()
    stop_ids = ()


def make_guider(**changes):
    return Guider("micro", random_qwen2(**changes), PlainTokenizer(), (2, 1), "")


def tokens_read(cost):
    return cost.fed + cost.prefilled


class UncachedReader(GuiderReader):
    """A reader that drops its cache before each read."""

    def read(self, ids, known):
        self._crop_to(0)
        return super().read(ids, known)


class RecordingReader(GuiderReader):
    """A reader that records its cache object and its ids after every step."""

    def __init__(self, guider):
        super().__init__(guider)
        self.seen = []

    def crop(self, ids):
        super().crop(ids)
        assert self.cache.get_seq_length() == len(self.ids)
        self.seen.append((id(self.cache), self.ids.copy(), list(ids)))


def run_with(reader_class, model=None, guider=None, **changes):
    model, guider = model or model_of("mha"), guider or make_guider()
    readers, prompt = [], make_prompts(P)

    def open_reader():
        readers.append(reader_class(guider))
        return readers[-1]

    settings = {"unmasker": "guided", "knobs": {"guided.rule": "topk", "guided.k": 12}}
    job = micro_job(model, make_spec(**settings | changes), prompt)
    job.run_guider = fake_run_guider(model.info, prompt)
    object.__setattr__(job.run_guider, "open_reader", open_reader)
    state = Denoiser(job)
    return Run(state, list(denoise(state))), readers[-1]


@pytest.mark.parametrize("tied", [False, True])
def test_cached_and_uncached_reads_give_the_same_logits(tied):
    guider = make_guider(tied=tied)
    cached, whole = GuiderReader(guider), UncachedReader(guider)
    generator = torch.Generator().manual_seed(4)
    text = torch.randint(3, 39, (6,), generator=generator).tolist()
    for known in (6, 8, 8, 13):
        draft = torch.randint(3, 39, (5,), generator=generator).tolist()
        ids = [*text[:known], *draft]
        a, b = cached.read(ids, known), whole.read(ids, known)
        full = guider.model(torch.tensor([ids])).logits[0, known - 1 : -1]
        assert (a - full).abs().max() < ATOL
        assert (b - full).abs().max() < ATOL
        text = [*ids, *draft]
    assert tokens_read(cached.take_cost()) < tokens_read(whole.take_cost())


def test_changed_earlier_ids_are_read_again():
    guider = make_guider()
    reader, fresh = GuiderReader(guider), GuiderReader(guider)
    reader.read([5, 6, 7, 8, 9, 10], 4)
    reader.take_cost()
    changed = [5, 6, 17, 8, 9, 10]
    a, b = reader.read(changed, 4), fresh.read(changed, 4)
    assert (a - b).abs().max() < ATOL
    assert reader.take_cost().fed == 3
    stale = GuiderReader(guider)
    stale.read([5, 6, 7, 8, 9, 10], 4)
    stale.ids = changed[:-1]  # the cache holds other tokens
    assert (stale.read(changed, 4) - b).abs().max() > 1e-6


def test_a_run_is_the_same_without_the_guiders_cache():
    cached, whole = run_with(GuiderReader)[0], run_with(UncachedReader)[0]
    assert cached.reveals == whole.reveals
    assert len({event.guided.accepted for event in cached.events}) > 1
    spent = [sum(tokens_read(e.guided) for e in ran.events) for ran in (cached, whole)]
    assert spent[0] < spent[1]


@pytest.mark.parametrize("fallback", ["dlm", "ar"])
@pytest.mark.parametrize("fixed", [(), ((2, 9), (7, 8))])
def test_one_cache_object_holds_the_prefix_without_its_last_token(fallback, fixed):
    knobs = {"guided.rule": "topk", "guided.k": 6, "guided.fallback": fallback}
    model = make_model(31, stop_ids=())
    ran, reader = run_with(RecordingReader, model, knobs=knobs, fixed=fixed)
    assert len(reader.seen) == len(ran.events) > 2
    assert len({which for which, _, _ in reader.seen}) == 1
    for event, (_, held, prefix) in zip(ran.events, reader.seen, strict=True):
        assert prefix == ran.ids[0, : len(prefix)].tolist()
        assert len(prefix) > event.positions[-1]
        assert held == prefix[: len(held)]
        assert len(held) == len(prefix) - 1 or fixed
        assert len(held) < P + G


def test_the_prefill_is_counted_separately():
    first, second, *_ = [event.guided for event in run_with(GuiderReader)[0].events]
    assert first.prefilled == P - 1
    assert second.prefilled == 0
    assert 0 < first.prefill_flops < first.flops
    assert second.prefill_flops == 0
    assert 0 < first.prefill_ms < first.ms
    assert first.fed == first.drafted == G


def test_time_and_flops_are_part_of_the_step():
    ran = run_with(GuiderReader)[0]
    for event in ran.events:
        assert event.guided.ms <= event.decide_ms
        assert event.flops[5] == event.guided.flops > 0
    plain = Denoiser(micro_job(model_of("mha"), make_spec(), make_prompts(P)))
    assert next(denoise(plain)).flops[5] == 0


@pytest.mark.parametrize("tied", [False, True])
def test_flops_equal_torchs_count(tied):
    guider = make_guider(tied=tied)
    reader = GuiderReader(guider)
    for ids, known in (([5, 6, 7, 8, 9, 10], 4), ([5, 6, 7, 8, 19, 20, 21], 5)):
        with sdpa_kernel(SDPBackend.MATH), TorchFlops() as counter:
            reader.read(ids, known)
        assert reader.take_cost().flops == counter.total > 0


def test_flops_of_a_guided_run_equal_torchs_count():
    readers, model, prompt = [], model_of("shifted-gqa"), make_prompts(P)
    job = micro_job(model, make_spec(unmasker="guided"), prompt)
    guider = make_guider()
    job.run_guider = fake_run_guider(model.info, prompt)
    object.__setattr__(
        job.run_guider, "open_reader", lambda: readers.append(GuiderReader(guider)) or readers[-1]
    )
    assert len(list(counted(denoise(Denoiser(job)), 3))) == 3


def test_a_guider_accepts_its_own_text():
    """The guider's greedy text is accepted in full, or up to a changed token."""
    guider, prompt = make_guider(), make_prompts(P)[0]
    text = list(prompt)
    for _ in range(G):
        text.append(int(guider.model(torch.tensor([text])).logits[0, -1].argmax()))
    pair = VocabularyPair((), (1,))
    for flipped in (None, 0, 1, 7, 15):
        draft = text[P:]
        if flipped is not None:
            draft[flipped] = 3 + (draft[flipped] + 4) % 30
        verifier = Verifier(GuiderReader(guider), prompt, pair, AcceptanceRule("top1", 1, 1.0))
        verdict = verifier.verify([], draft, [True] * G, [1.0] * G, G)
        assert verdict.accepted == (G if flipped is None else flipped)
