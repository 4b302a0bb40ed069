"""Guiders for tests: functions of ids, and a causal model of micro size."""

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from engine.guider.model import GuiderCost
from engine.guider.run_guider import RunGuider
from engine.guider.vocabularies import VocabularyPair

LOGIT = 50.0


class FakeReader:
    """A GuiderReader whose logits are `logits_of(ids, known)`."""

    def __init__(self, logits_of):
        self._logits_of, self._cost, self.calls = logits_of, GuiderCost(), 0

    def read(self, ids, known):
        self.calls += 1
        self._cost.forwards += 1
        self._cost.fed += len(ids) - known
        return self._logits_of(list(ids), known)

    def crop(self, ids):
        pass

    def take_cost(self):
        cost, self._cost = self._cost, GuiderCost()
        return cost

    def cache_bytes(self):
        return 0


def logits_at(ids, vocab):
    """Logits [n, vocab] with nearly all probability on the given ids."""
    z = torch.zeros(len(ids), vocab, dtype=torch.float64)
    z[torch.arange(len(ids)), torch.tensor(ids)] = LOGIT
    return z


def accepts_all(vocab):
    """A guider that accepts every draft."""
    return lambda ids, known: logits_at(ids[known:], vocab)


def rejects_all(vocab, mask):
    """A guider that accepts nothing: its probability is on another ordinary token."""

    def logits_of(ids, known):
        chosen = []
        for before, shown in zip(ids[known - 1 :], ids[known:], strict=False):
            other = 3 + (7 * before + 5) % (mask - 3)
            chosen.append(other if other != shown else 3 + (other - 2) % (mask - 3))
        z = logits_at(chosen, vocab)
        z[torch.arange(len(chosen)), torch.tensor(ids[known:])] = -LOGIT
        return z

    return logits_of


def random_bigrams(vocab, seed=0):
    """A guider with random logits that depend on the token before."""
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(vocab, vocab, dtype=torch.float64, generator=generator) * 2
    return lambda ids, known: table[torch.tensor(ids[known - 1 : -1])]


def fake_run_guider(info, prompts, logits_of=None, readers=None):
    """A fake guider with a tiny model's vocabulary; its readers are appended to `readers`."""
    vocabularies = VocabularyPair(
        info.stop_ids, info.stop_ids or (1,), (info.mask_id,), (info.mask_id,)
    )
    readers = [] if readers is None else readers

    def open_reader():
        readers.append(FakeReader(logits_of or random_bigrams(info.vocab_size)))
        return readers[-1]

    def name(token):
        return b"%d " % token

    return RunGuider(vocabularies, tuple(map(tuple, prompts)), open_reader, name, name)


def make_fake_guider(info):
    """A stand-in for LoadedModel.make_run_guider."""
    return lambda specs, prompts: fake_run_guider(info, prompts)


def random_qwen2(vocab=40, tied=False):
    """A Qwen2 model of micro size with random float64 weights."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=vocab, tie_word_embeddings=tied, max_position_embeddings=256,
        eos_token_id=2, bos_token_id=1, pad_token_id=1, hidden_size=32, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=48, num_hidden_layers=2, initializer_range=0.3,
    )  # fmt: skip
    return Qwen2ForCausalLM(config).double().eval()
