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


class PlainSpa:
    """SPA-Cache with `ratios` by layer; all rows or the answer's are refreshed at intervals.

    Between refreshes a layer beyond the first computes int(G ratio) rows, and K and V of all.
    """

    def __init__(
        self,
        model: PlainModel,
        prompt: int,
        rank: int,
        ratios: list[float],
        every: int,
        answer: int,
    ) -> None:
        self._model, self._prompt, self._ratios = model, prompt, ratios
        self._every, self._answer, self._calls = every, answer, 0
        self._proxies = []
        for layer in model.layers:
            u, s, _ = torch.linalg.svd(model.value_weight(layer).T, full_matrices=False)
            self._proxies.append(u[:, :rank] * s[:rank])

    def __call__(self, ids: Tensor) -> Tensor:
        """Logits of every position, those of the prompt zero where they are not computed."""
        model, length = self._model, len(ids)
        if self._calls == 0:
            self._kv, self._sums = model.empty(length), [torch.empty(0)] * len(model.layers)
            self._identity = [torch.empty(0)] * len(model.layers)
        full = self._calls % self._every == 0
        refresh = full or self._calls % self._answer == 0
        x, rows = model.embed(ids), torch.arange(length)
        for layer in model.layers:
            dense = layer == 0 or refresh
            out = self._dense(layer, x, rows) if dense else self._sparse(layer, x, rows)
            rows = rows if full else rows[-(length - self._prompt) :]
            x = out[-len(rows) :]
        self._calls += 1
        logits = torch.zeros(length, model.info.vocab_size, dtype=x.dtype)
        logits[rows] = model.logits(x)
        return logits

    def _store(self, layer: int, x: Tensor, rows: Tensor) -> Tensor:
        model, (k, v) = self._model, self._kv[layer]
        normed = model.normed(layer, x)
        k[rows], v[rows] = model.k(layer, normed, rows), model.v(layer, normed)
        return normed

    def _branches(self, layer: int, x: Tensor, normed: Tensor, rows: Tensor) -> Tensor:
        model, (k, v) = self._model, self._kv[layer]
        attention = model.attention(layer, model.q(layer, normed, rows), k, v)
        return attention + model.feed_forward(layer, x + attention)

    def _dense(self, layer: int, x: Tensor, rows: Tensor) -> Tensor:
        normed, size = self._store(layer, x, rows), len(self._kv[layer][0]) - self._prompt
        branches = self._branches(layer, x, normed, rows)
        self._sums[layer] = branches[-size:].clone()
        if layer > 0:
            self._identity[layer] = normed[-size:] @ self._proxies[layer]
        return x + branches

    def _sparse(self, layer: int, x: Tensor, rows: Tensor) -> Tensor:
        normed = self._store(layer, x, rows)
        identity = normed @ self._proxies[layer]
        similar = cosine_similarity(identity, self._identity[layer])
        chosen = similar.argsort(stable=True)[: int(len(x) * self._ratios[layer])]
        self._identity[layer] = identity
        self._sums[layer][chosen] = self._branches(layer, x[chosen], normed[chosen], rows[chosen])
        return x + self._sums[layer]
