"""How the engine decodes FlashDLM's cases without a guider, and what it compares in all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import StepPlan, StepView
from engine.cache.methods.freecache import FreeCache
from engine.cache.store import ActivationStore
from engine.config.spec import RunSpec
from engine.core.rows import ALL, Rows
from engine.generate.loop import Denoiser
from engine.models.base import ModelAdapter
from engine.unmask.base import Unmasker
from engine.unmask.methods.quota import Quota
from tests.compat.flashdlm import (
    ReleasedDenoiser,
    ReleasedDream,
    fill_after_run,
    overwrite_after_first,
)
from tests.compat.freecache import ReleasedFreeCache
from tests.conformance.cases import Case
from tests.conformance.recorders import Arrays, ObservedRecorder
from tests.conformance.runs import Decoded, Setup

# The README of the recordings gives both: a noise of 2e-6 on all weights moves their logits by up
# to 2.2e-3, and cases that it moves by 5e-3 were not kept.
ATOL, RTOL = 1e-2, 1e-4

COMMON: dict[str, Any] = {"gen_length": None, "mask_token_id": None, "eos_token_id": None}
LENGTHS = COMMON | {"block_length": None, "steps": None, "early_stop": (True, False)}
SETTINGS: dict[str, dict[str, Any]] = {
    "flashdlm_free_llada": LENGTHS,
    "flashdlm_free_dream": LENGTHS
    | {
        "alg": ("entropy", "maskgit_plus", "topk_margin"), "eps": None,
        "early_stop_consecutive": None,
    },
}  # fmt: skip
ARRAYS = frozenset({
    "prompt", "final_ids", "nfe", "unmask_call", "in_pos_mask", "out_rows", "fed_start",
    "write_start", "rope_start", "n_keys", "key_token", "key_call", "logit_call", "logit_pos",
    "logits",
})  # fmt: skip


def tolerance(case: Case) -> tuple[float, float]:
    """The absolute and the relative tolerance of logits."""
    return ATOL, RTOL


def setup(case: Case) -> Setup:
    """What decodes a case without a guider, the engine's own FreeCache wherever its rows agree.

    Raises UnknownCaseError for settings that it does not know.
    """
    case.check_settings(SETTINGS[case.method])
    settings, dream = case.settings, case.method == "flashdlm_free_dream"
    size, blocks = settings["block_length"], settings["gen_length"] // settings["block_length"]
    spec = RunSpec(
        gen_length=settings["gen_length"], block_length=size, steps=settings["steps"],
        unmasker="dream" if dream else "quota", cache="freecache",
    )  # fmt: skip
    same_rows = 1 < settings["steps"] // blocks <= size
    kind = FreeCache if same_rows else ReleasedFreeCache
    make_unmasker: Callable[[], Unmasker] = Quota
    if dream:
        alg, eps = settings["alg"], settings["eps"]
        make_unmasker = partial(ReleasedDream, alg=alg, eps=eps, schedule="released")
    return Setup(
        adapter=case.load_adapter(),
        spec=spec,
        make_policy=lambda: kind(block=size, freeze="stale"),
        make_unmasker=make_unmasker,
        make_denoiser=_denoiser(case, same_rows),
    )


def _denoiser(case: Case, same_rows: bool) -> Callable[..., Denoiser]:
    settings, end_of_text = case.settings, None
    if settings["early_stop"]:
        end_of_text = overwrite_after_first(settings["eos_token_id"])
        if case.method == "flashdlm_free_dream":
            count = settings["early_stop_consecutive"]
            end_of_text = fill_after_run(settings["eos_token_id"], count)
    elif same_rows:
        return Denoiser
    return partial(ReleasedDenoiser, end_of_text=end_of_text)


class KeyAudit:
    """An adapter that checks the keys of its last layer against the recorded rows.

    Each attended row must hold, bit for bit, the key that the recorded call computed for the
    recorded token. `wrong` names what differed.
    """

    def __init__(self, inner: ModelAdapter, golden: Arrays) -> None:
        self._inner, self._golden, self._layer = inner, golden, inner.info.layers - 1
        self._computed: dict[int, Tensor] = {}
        self.wrong: set[str] = set()
        self.call, self.fed = 0, slice(0, 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def begin(self, call: int, fed: slice) -> None:
        """Note the positions that a call feeds."""
        self.call, self.fed = call, fed
        if call < len(self._golden["fed_start"]):
            self._expect("fed_start", fed.start)
            self._expect("out_rows", fed.stop - fed.start)

    def project(
        self, layer: int, names: str, x: Tensor, rows: Rows, length: int, heads: slice | None = None
    ) -> tuple[Tensor, ...]:
        """As the inner adapter; keeps the keys of the call and checks their rotation."""
        out: tuple[Tensor, ...] = self._inner.project(layer, names, x, rows, length, heads)
        if layer == self._layer and "k" in names:
            keys = out[names.index("k")][0]  # [n, Hkv, dh]
            self._expect("rope_start", 0 if rows is ALL else rows.start)
            self._computed[self.call] = keys.new_full((length, *keys.shape[1:]), torch.nan)
            self._computed[self.call][self.fed] = keys
        return out

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None
    ) -> Tensor:
        """As the inner adapter; checks the keys."""
        if layer == self._layer and self.call < len(self._golden["n_keys"]):
            self._check(k[0].transpose(0, 1), key_mask)
        out: Tensor = self._inner.attend(layer, q, k, v, key_mask)
        return out

    def _check(self, keys: Tensor, key_mask: Tensor | None) -> None:
        golden, count = self._golden, len(keys)
        self._expect("n_keys", count if key_mask is None else -1)
        first, rows = int(golden["write_start"][self.call]), self.fed.stop - self.fed.start
        if not torch.equal(keys[first : first + rows], self._computed[self.call][self.fed]):
            self.wrong.add("write_start")
        tokens, calls = golden["key_token"][self.call], golden["key_call"][self.call]
        for name, values in (("key_token", tokens), ("key_call", calls)):
            if int((values >= 0).sum()) != count or (values[count:] >= 0).any():
                self.wrong.add(name)
                return
        known = [call in self._computed for call in calls[:count]]
        pairs = zip(calls[:count].tolist(), tokens[:count].tolist(), strict=True)
        if not all(known) or not torch.equal(
            keys, torch.stack([self._computed[call][token] for call, token in pairs])
        ):
            self.wrong.add("key_token or key_call")

    def _expect(self, name: str, found: int) -> None:
        recorded = self._golden[name]
        if self.call < len(recorded) and int(recorded[self.call]) != found:
            self.wrong.add(name)


class FlashRecorder(ObservedRecorder):
    """An ObservedRecorder that also audits the keys of every call."""

    def __init__(self, golden: Arrays) -> None:
        super().__init__(golden)
        self._golden = golden

    def wrap_adapter(self, adapter: ModelAdapter, store: ActivationStore) -> Any:
        """The audit."""
        self.audit = KeyAudit(adapter, self._golden)
        return self.audit

    def extra_rows(self, view: StepView, plan: StepPlan) -> Tensor | None:
        """As the base class; the audit learns the rows that are fed."""
        fed = slice(0, view.run.length) if plan.rows is ALL else plan.rows
        assert isinstance(fed, slice), "one sequence feeds a window"
        self.audit.begin(view.step, fed)
        return super().extra_rows(view, plan)


def differences(case: Case, found: Decoded, recorder: FlashRecorder) -> Iterator[str]:
    """Differences in fed rows and in the rows of the cache."""
    golden = case.arrays
    length = len(golden["final_ids"])
    fed = np.unpackbits(golden["in_pos_mask"], axis=1)[:, :length].astype(bool)
    if not np.array_equal(np.array(recorder.fed), fed):
        yield "fed positions differ"
    for name in sorted(recorder.audit.wrong):
        yield f"{name} differs"
