"""Forwards of the public caches in plain torch, for one sequence of a dense model."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from tests.support.plain_model import PlainModel


class PlainDllm:
    """dLLM-Cache: call n (from 0) refreshes the prompt if n % kp == 0, the answer if n % kr == 0.

    Else a layer beyond the first computes V of the answer, and the rest for int(G rho) rows of it.
    """

    def __init__(self, model: PlainModel, prompt: int, kp: int, kr: int, rho: float) -> None:
        self._model, self._prompt, self._kp, self._kr, self._rho = model, prompt, kp, kr, rho
        self._calls = 0

    def __call__(self, ids: Tensor) -> Tensor:
        """Logits of every position."""
        model, first = self._model, self._calls == 0
        if first:
            width, length = model.embed(ids).shape[1], len(ids)
            self._kv = model.empty(length)
            self._branches = [torch.zeros(2, length, width).double() for _ in model.layers]
        x = model.embed(ids)
        for layer in model.layers:
            x = self._layer(layer, x)
        self._calls += 1
        return model.logits(x)

    def _layer(self, layer: int, x: Tensor) -> Tensor:
        model, (k, v), branches = self._model, self._kv[layer], self._branches[layer]
        normed, answer = model.normed(layer, x), torch.arange(self._prompt, len(x))
        refreshed = [torch.arange(0)]
        if layer == 0 or self._calls % self._kp == 0:
            refreshed.append(torch.arange(self._prompt))
        if layer == 0 or self._calls % self._kr == 0:
            refreshed.append(answer)
        elif self._rho > 0:
            new = model.v(layer, normed[answer])
            similar = cosine_similarity(new.flatten(1), v[answer].flatten(1))
            count = int(len(answer) * self._rho)
            refreshed.append(answer[similar.argsort(stable=True)[:count]])
            v[answer] = new
        rows = torch.cat(refreshed)
        k[rows], v[rows] = model.k(layer, normed[rows], rows), model.v(layer, normed[rows])
        branches[0, rows] = model.attention(layer, model.q(layer, normed[rows], rows), k, v)
        h = x + branches[0]
        branches[1, rows] = model.feed_forward(layer, h[rows])
        return h + branches[1]
