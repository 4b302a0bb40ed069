"""Guiders that are functions of ids, for runs of the tiny models, and a real one of micro size."""

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from engine.guider.model import GuiderCost
from engine.guider.run_guider import RunGuider
from engine.guider.vocabularies import VocabularyPair

SURE = 50.0


class Fake:
    """A reader whose logits are `tell(ids, known)`; it counts what it was asked."""

    def __init__(self, tell):
        self._tell, self._cost, self.calls, self.kept = tell, GuiderCost(), 0, []

    def read(self, ids, known):
        self.calls += 1
        self._cost.forwards += 1
        self._cost.fed += len(ids) - known
        return self._tell(list(ids), known)

    def keep(self, ids):
        self.kept.append(list(ids))

    def take(self):
        spent, self._cost = self._cost, GuiderCost()
        return spent

    def held(self):
        return 0


def pointing(ids, vocab):
    """Logits [n, vocab] with nearly all on the given ids."""
    z = torch.zeros(len(ids), vocab, dtype=torch.float64)
    z[torch.arange(len(ids)), torch.tensor(ids)] = SURE
    return z


def oracle(vocab):
    """Agrees to whatever it is shown."""
    return lambda ids, known: pointing(ids[known:], vocab)


def adversary(vocab, mask):
    """Agrees to nothing: all its weight lies on another ordinary token."""

    def tell(ids, known):
        chosen = []
        for before, shown in zip(ids[known - 1 :], ids[known:], strict=False):
            other = 3 + (7 * before + 5) % (mask - 3)
            chosen.append(other if other != shown else 3 + (other - 2) % (mask - 3))
        z = pointing(chosen, vocab)
        z[torch.arange(len(chosen)), torch.tensor(ids[known:])] = -SURE
        return z

    return tell


def bigram(vocab, seed=0, sharpness=2.0):
    """Random logits of the token before."""
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(vocab, vocab, dtype=torch.float64, generator=generator) * sharpness
    return lambda ids, known: table[torch.tensor(ids[known - 1 : -1])]


def run_guider(info, prompts, tell=None, pair=None, made=None):
    """A fake guider of a tiny model's vocabulary; its readers are put into the list `made`."""
    pair = pair or VocabularyPair(
        info.stop_ids, info.stop_ids or (1,), (info.mask_id,), (info.mask_id,)
    )
    made = [] if made is None else made

    def opened():
        made.append(Fake(tell or bigram(info.vocab_size)))
        return made[-1]

    def name(token):
        return b"%d " % token

    return RunGuider(pair, tuple(map(tuple, prompts)), opened, name, name)


def guide(info, tell=None):
    """What a loaded model asks for a guider."""
    return lambda asked, prompts: run_guider(info, prompts, tell)


def qwen(vocab=40, tied=False, seed=0, layers=2, **changes):
    """A random Qwen2 of micro size in float64."""
    torch.manual_seed(seed)
    sizes = {
        "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 48, "num_hidden_layers": layers, "initializer_range": 0.3,
    }  # fmt: skip
    config = Qwen2Config(
        vocab_size=vocab, tie_word_embeddings=tied, max_position_embeddings=256,
        eos_token_id=2, bos_token_id=1, pad_token_id=1, **(sizes | changes),
    )  # fmt: skip
    return Qwen2ForCausalLM(config).double().eval()
