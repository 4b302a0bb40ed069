"""LayerProbe: a layer's input as a policy sees it, and LayerPlan, what the policy answers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.cache.store import ActivationStore
from engine.models.base import ModelAdapter
from engine.rows import ALL, Rows, is_empty, same, take, within


@dataclass(frozen=True)
class LayerPlan:
    """Global rows that a layer recomputes per site.

    ALL is every row that entered the step, `slice(0, 0)` none.
    """

    k: Rows = ALL
    v: Rows = ALL
    attn: Rows = ALL
    ffn: Rows = ALL


class LayerProbe:
    """A layer's input as a policy sees it; what it computes to decide, the forward reuses.

    `rows` are the rows that entered the step, `h` [B, R, D] their residual stream.
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
    ) -> None:
        self.adapter, self.store, self.layer = adapter, store, layer
        self.h, self.rows, self.length = h, rows, length
        self._keys, self._key_mask = keys, key_mask
        self._normed: Tensor | None = None
        self._memo: dict[str, tuple[Rows, Tensor]] = {}
        self._attended: tuple[LayerPlan, Tensor] | None = None

    @property
    def normed(self) -> Tensor:
        """The normed input [B, R, D]."""
        if self._normed is None:
            self._normed = self.adapter.attn_norm(self.layer, self.h)
        return self._normed

    def project(self, name: str, rows: Rows = ALL, heads: slice | None = None) -> Tensor:
        """Projection `q`, `k` or `v` at global `rows`, [B, n, heads, dh], q and k rotated."""
        if heads is not None:
            return self._compute(name, rows, heads)[0]
        if name not in self._memo:
            self._memo[name] = rows, self._compute(name, rows)[0]
        known, values = self._memo[name]
        if same(known, rows):
            return values
        if known is ALL:
            return take(values, within(self.rows, rows))
        return self._compute(name, rows)[0]

    def project_all(self) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v of every row, as one product where none is known yet."""
        if not self._memo:
            values = self._compute("qkv", ALL)
            self._memo = {n: (ALL, v) for n, v in zip("qkv", values, strict=True)}
        return self.project("q"), self.project("k"), self.project("v")

    def attn(self, plan: LayerPlan) -> Tensor:
        """Attention branch at `plan.attn`, [B, n, D], after `plan.k` and `plan.v` are renewed.

        A policy that decides by it returns the same `plan` with its own `ffn`; the forward then
        takes the result as it is.
        """
        known = self._attended
        if known and all(same(getattr(known[0], n), getattr(plan, n)) for n in ("k", "v", "attn")):
            return known[1]
        if plan.k is ALL and plan.v is ALL and plan.attn is ALL:
            self.project_all()
        k, v = self._renewed("k", plan.k), self._renewed("v", plan.v)
        q = self.project("q", plan.attn)
        out = self.adapter.attend(self.layer, q, k, v, self._key_mask)
        self._attended = plan, out
        return out

    def renew(self, plan: LayerPlan) -> None:
        """Write K and V at `plan.k` and `plan.v` without attending."""
        self._renewed("k", plan.k)
        self._renewed("v", plan.v)

    def cached(self, site: str, rows: Rows = ALL) -> Tensor | None:
        """What the store holds of a site; None before its first write."""
        if not self.store.written(self.layer, site):
            return None
        return self.store.read(self.layer, site, rows)

    def swap(self, site: str, new: Tensor, rows: Rows = ALL) -> Tensor | None:
        """Write `new` [B, n, width] and return what stood there; None at the first write."""
        rows = self.rows if rows is ALL else rows
        old = self.cached(site, rows)
        old = None if old is None else old.clone()
        self.store.write(self.layer, site, rows, new)
        return old

    def _compute(self, names: str, rows: Rows, heads: slice | None = None) -> tuple[Tensor, ...]:
        local = within(self.rows, rows)
        positions = self.rows if local is ALL else rows
        x = take(self.normed, local)
        return self.adapter.project(self.layer, names, x, positions, self.length, heads)

    def _renewed(self, name: str, rows: Rows) -> Tensor:
        """Keys or values to attend to, [B, Hkv, keys, dh], with `rows` renewed in the store."""
        if not self.store.keeps(name):
            complete = rows is ALL and self.rows is ALL
            assert complete, f"{name}: rows left out need a kept {name}"
            return take(self.project(name).transpose(1, 2), self._keys, 2)
        if not is_empty(rows):
            where = self.rows if rows is ALL else rows
            self.store.write(self.layer, name, where, self.project(name, rows))
        return self.store.read(self.layer, name, self._keys)
