"""LayerProbe: the input of a layer for a policy. LayerPlan: the rows that the layer recomputes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from engine.cache.block_keys import BlockKeys
from engine.cache.store import ActivationStore
from engine.core.rows import ALL, Rows, is_empty, local_rows, same_rows, take
from engine.models.base import ModelAdapter
from engine.models.flops import FlopCounter
from engine.models.ops import add_branches, drift, drift_of_units, top_drift, unit_rows, upcast


@dataclass(frozen=True)
class LayerPlan:
    """Global rows that a layer recomputes, by site.

    ALL is every row that entered the step. `idle` [B] bool marks sequences whose index rows are all
    padding; their stored values stay.
    """

    k: Rows = ALL
    v: Rows = ALL
    attn: Rows = ALL
    ffn: Rows = ALL
    idle: Tensor | None = field(default=None, kw_only=True)


class LayerProbe:
    """The input of a layer, on which a policy decides; the forward reuses what it computes here.

    `rows` are the rows that entered the step, `h` [B, R, D] their residual stream. `key_mask`
    [B, keys] bool marks the keys that may be attended to, None: all. If attention is block-causal,
    `block_keys` gives the keys of each row instead. `out` are the rows whose residual stream the
    layer returns.
    """

    def __init__(
        self,
        adapter: ModelAdapter,
        store: ActivationStore,
        layer: int,
        h: Tensor,
        rows: Rows,
        length: int,
        keys: Rows = ALL,
        key_mask: Tensor | None = None,
        counter: FlopCounter | None = None,
        block_keys: BlockKeys | None = None,
    ) -> None:
        self.adapter, self.store, self.layer = adapter, store, layer
        self.h, self.rows, self.length = h, rows, length
        self.out = rows
        self.counter = counter or FlopCounter(adapter.info)
        self._keys, self.key_mask, self._block_keys = keys, key_mask, block_keys
        self._normed: Tensor | None = None
        self._local: tuple[Rows, Rows] = rows, ALL
        self._replaced: dict[str, Rows] = {}
        self._memo: dict[str, tuple[Rows, Tensor]] = {}
        self._attention: tuple[LayerPlan, Tensor] | None = None
        self._weights: Tensor | None = None
        self._with_weights = False

    @property
    def normed(self) -> Tensor:
        """The normed input [B, R, D]."""
        if self._normed is None:
            self._normed = self.adapter.attn_norm(self.layer, self.h)
        return self._normed

    def project(self, name: str, rows: Rows = ALL, heads: slice | None = None) -> Tensor:
        """Projection `q`, `k` or `v` at global `rows`, [B, n, heads, dh], q and k rotated."""
        if heads is not None:
            out = self._compute(name, rows, heads)[0]
            self.counter.select(self.layer, 2 * self.h.shape[-1] * out.numel())
            return out
        if name not in self._memo:
            self._memo[name] = rows, self._compute(name, rows)[0]
        known, values = self._memo[name]
        if same_rows(known, rows):
            return values
        if known is ALL:
            return take(values, self.local(rows))
        return self._compute(name, rows)[0]

    def project_all(self) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v of every row, as one product if none is computed yet."""
        self._project_together(LayerPlan())
        return self.project("q"), self.project("k"), self.project("v")

    def attn(self, plan: LayerPlan) -> Tensor:
        """Attention branch at `plan.attn`, [B, n, D], after updating K and V at the plan's rows.

        A policy that decides on this result returns the same `plan` with its own `ffn`; the forward
        then reuses the result.
        """
        known = self._attention
        if known and same_rows(known[0].k, plan.k) and same_rows(known[0].v, plan.v):
            if same_rows(known[0].attn, plan.attn):
                return known[1]
            if known[0].attn is ALL:
                return take(known[1], self.local(plan.attn))
        self._project_together(plan)
        self.update_kv(plan)
        for name, rows in (("k", plan.k), ("v", plan.v)):
            assert rows is ALL or self.store.keeps(name), f"{name}: rows left out need a stored one"
        keys, mask = self._keys, self.key_mask
        if self._block_keys is not None:
            keys, mask = self._block_keys.of(plan.attn, self.h.device)
        k, v, q = self._read("k", keys), self._read("v", keys), self.project("q", plan.attn)
        self.counter.attend(self.layer, q.shape[0] * q.shape[1], k.shape[2])
        if self._with_weights:
            out, self._weights = self.adapter.attend_with_weights(self.layer, q, k, v, mask)
        else:
            out = self.adapter.attend(self.layer, q, k, v, mask)
        self._attention = plan, out
        return out

    @property
    def attended(self) -> bool:
        """Whether attention has been computed already."""
        return self._attention is not None

    def weights(self, plan: LayerPlan) -> Tensor:
        """Attention weights of the rows `plan.attn`, mean over the heads, [B, n, keys].

        Computes the attention branch too, and must be called before `attn`.
        """
        assert self._attention is None, "weights must be called before attn"
        self._with_weights = True
        self.attn(plan)
        assert self._weights is not None
        return self._weights

    def update_kv(self, plan: LayerPlan) -> None:
        """Write K and V at `plan.k` and `plan.v`, if they are stored, without attention."""
        for name, rows in (("k", plan.k), ("v", plan.v)):
            where = self.rows if rows is ALL else rows
            known = name in self._replaced and same_rows(self._replaced[name], where)
            if self.store.keeps(name) and not is_empty(rows) and not known:
                self.store.write(self.layer, name, where, self.project(name, rows), plan.idle)

    def cached(self, site: str, rows: Rows = ALL) -> Tensor | None:
        """The stored values of a site; None before the rows' first write."""
        if not self.store.written(self.layer, site, rows):
            return None
        return self.store.read(self.layer, site, rows)

    def swap(self, site: str, new: Tensor, rows: Rows = ALL) -> Tensor | None:
        """Store `new` and return the values before; None at the first write."""
        old = self.cached(site, self.rows if rows is ALL else rows)
        old = None if old is None else old.clone()
        self.keep(site, new, rows)
        return old

    def drift(self, new: Tensor, old: Tensor) -> Tensor:
        """`engine.models.ops.drift` of rows [B, n, ...], [B, n], by the model's kernel if any."""
        return (self._fused("drift") or drift)(new, old)

    def top_drift(self, drifts: Tensor, count: int | Tensor, start: int) -> Tensor:
        """The global rows of `engine.models.ops.top_drift`, by the model's kernel if any."""
        fused = None if isinstance(count, Tensor) else self._fused("selection")
        rows, places = (fused or top_drift)(drifts, count, start)
        if start == self._first:
            self._local = rows, places
        return rows

    def local(self, rows: Rows) -> Rows:
        """`rows`, a subset of those of the step, as places within them."""
        if not isinstance(rows, Tensor):
            return local_rows(self.rows, rows)
        if self._local[0] is not rows:
            self._local = rows, local_rows(self.rows, rows)
        return self._local[1]

    def gather(self, x: Tensor, rows: Rows, added: Tensor | None = None) -> Tensor:
        """Rows of the step `x` [B, R, D] at global `rows`, plus `added` [B, n, D] if given."""
        local = self.local(rows)
        fused = self._fused("gather")
        if fused is not None and isinstance(local, Tensor):
            return fused(x, local, added)
        found = take(x, local)
        return found if added is None else found + added

    def compared(self, x: Tensor) -> Tensor:
        """Rows [B, n, width] in the form in which `replace_compared` stores them.

        That is as unit vectors, so that each is normalized once. They stay as they are if a kernel
        normalizes them, or if the store's number format would round the unit vectors.
        """
        return unit_rows(x) if self._stores_units else x

    def replace_compared(self, site: str, new: Tensor, rows: slice) -> Tensor:
        """`replace` of rows that `compared` returned, at a site that holds such rows."""
        return self.replace(site, new, rows, units=self._stores_units)

    def replace(self, site: str, new: Tensor, rows: slice, units: bool = False) -> Tensor:
        """Store `new` at a site that holds values, and return its drift from those, [B, n].

        `new` is [B, n, Hkv, dh] for K and V, else [B, n, width]. Views that `cached` returned of
        these rows change with it. `units`: the rows are unit vectors.
        """
        old = self.cached(site, rows)
        assert old is not None, "the first step is full"
        old, fused = old.transpose(1, 2) if site in ("k", "v") else old, self._fused("drift")
        if fused is not None:
            moved = fused(new, old, replace=True)
        else:
            moved = drift_of_units(new, old) if units else drift(new, old)
            self.keep(site, new, rows)
        self._replaced[site] = rows
        return moved

    def add_branches(self, h: Tensor, rows: Tensor, attn: Tensor, ffn: Tensor) -> Tensor:
        """`engine.models.ops.add_branches` of all rows of the step, computed at global `rows`."""
        stored = self.store.read(self.layer, "branch", self.rows)
        places, fused = self.local(rows), self._fused("branches")
        assert isinstance(places, Tensor), "an index has an index of places"
        return (fused or add_branches)(h, places, attn, ffn, stored)

    def keep(self, site: str, new: Tensor, rows: Rows = ALL) -> None:
        """Store `new`, of the shape that `replace` takes.

        Views that `cached` returned of these rows change with it.
        """
        self.store.write(self.layer, site, self.rows if rows is ALL else rows, new)

    @property
    def _stores_units(self) -> bool:
        return self._fused("drift") is None and upcast(self.h) is self.h

    @property
    def _first(self) -> int | None:
        """The first row that entered the step; None if the rows are an index."""
        if isinstance(self.rows, Tensor):
            return None
        return 0 if self.rows is ALL else self.rows.start

    def _fused(self, name: str) -> Callable[..., Any] | None:
        return self.adapter.kernels.fused.get(name)

    def _project_together(self, plan: LayerPlan) -> None:
        """Compute projections that a plan needs at the same rows as one product."""
        wanted = {"q": plan.attn, "k": plan.k, "v": plan.v}
        for names in ("qkv", "qk", "kv"):
            rows = wanted[names[0]]
            alike = all(same_rows(wanted[n], rows) and n not in self._memo for n in names)
            if alike and not is_empty(rows):
                values = self._compute(names, rows)
                self._memo |= {n: (rows, v) for n, v in zip(names, values, strict=True)}
                return

    def _compute(self, names: str, rows: Rows, heads: slice | None = None) -> tuple[Tensor, ...]:
        positions = self.rows if self.local(rows) is ALL else rows
        x = self.gather(self.normed, rows)
        if heads is None:
            self.counter.project(self.layer, names, x.shape[0] * x.shape[1])
        return self.adapter.project(self.layer, names, x, positions, self.length, heads)

    def _read(self, name: str, keys: Rows) -> Tensor:
        """Keys or values to attend to, [B, Hkv, keys, dh], stored or computed in this step."""
        if self.store.keeps(name):
            return self.store.read(self.layer, name, keys)
        assert self._first == 0, f"{name}: rows left out need a stored {name}"
        return take(self.project(name).transpose(1, 2), keys, 2)
