"""How the engine decodes FlashDLM's guided cases, as released and as it ships."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from engine.cache.base import CachePolicy
from engine.cache.methods.freecache import FreeCache
from engine.cache.methods.none import NoCache
from engine.config.spec import RunSpec
from engine.guider.model import Guider, GuiderReader, read_config
from engine.guider.run_guider import RunGuider
from engine.guider.vocabularies import VocabularyPair
from engine.unmask.base import Unmasker
from engine.unmask.methods.guided import Guided
from tests.compat.flashdlm import ReleasedDenoiser
from tests.compat.freecache import LastTokenWindow, PromptWindow, ShiftedWindow, SlidingWindow
from tests.compat.guided import ReleasedGuided, ReleasedReader, ThresholdGuided
from tests.conformance import flashdlm
from tests.conformance.cases import Case, UnknownCaseError
from tests.conformance.runs import Setup

STRATEGIES = {
    "top1": "deterministic", "topk": "topk", "rel": "topk_relative", "prob": "dynamic_threshold",
}  # fmt: skip
WINDOWS = {"prompt": PromptWindow, "sliding": SlidingWindow, "aggressive": LastTokenWindow}
SETTINGS: dict[str, Any] = flashdlm.COMMON | {
    "rule": tuple(STRATEGIES), "sampling_strategy": tuple(STRATEGIES.values()),
    "verify_batch_size": None, "acceptance_top_k": None, "top_p": None,
    "confidence_threshold": None, "cache": ("none", *WINDOWS), "sliding_window_size": None,
    "attention_mask": ("ones", "none"), "temperature": (0.0,), "equivalent_ids": None,
}  # fmt: skip
ARRAYS = flashdlm.ARRAYS | {
    "step_prefix", "step_drafts", "step_chosen", "accept_len", "committed", "guider_calls",
    "guider_step", "guider_verify", "guider_fed", "guider_kv_before", "guider_key_pos",
    "guider_key_id", "cache_ids", "cache_kv", "judged_step", "judged_index", "judged_p",
    "judged_pmax", "judged_rank", "g_logit_call", "g_logit_row", "g_logits",
}  # fmt: skip


def check(case: Case) -> None:
    """Raise UnknownCaseError for settings that are not known."""
    case.check_settings(SETTINGS)
    settings = case.settings
    if settings["sampling_strategy"] != STRATEGIES[settings["rule"]]:
        raise UnknownCaseError(f"rule {settings['rule']} is not {settings['sampling_strategy']}")


def released_setup(case: Case) -> Setup:
    """What repeats the release: its windows, its guider's cache, its id swap."""
    check(case)
    chunk, end = case.settings["verify_batch_size"], case.settings["eos_token_id"]
    swap = case.settings.get("equivalent_ids", ())

    def make_unmasker() -> Unmasker:
        unmasker = _guided(ReleasedGuided, case)
        unmasker.text_end = end
        unmasker.swapped = dict(zip(swap, reversed(swap), strict=True))
        return unmasker

    guider = _guider(case, lambda loaded: ReleasedReader(loaded, chunk), VocabularyPair((), (end,)))
    return _setup(case, guider, make_unmasker, lambda: _released_policy(case))


def shipped_setup(case: Case) -> Setup:
    """What users get; caches and rules that the engine does not have are the release's."""
    check(case)
    pair = VocabularyPair((case.settings["eos_token_id"],), (case.settings["eos_token_id"],))
    kind = ThresholdGuided if case.settings["rule"] == "prob" else Guided

    def make_policy() -> CachePolicy:
        if case.settings["cache"] == "sliding":
            return FreeCache(window=case.settings["sliding_window_size"])
        return _released_policy(case)

    return _setup(case, _guider(case, GuiderReader, pair), lambda: _guided(kind, case), make_policy)


def _setup(
    case: Case,
    guider: RunGuider,
    make_unmasker: Callable[[], Unmasker],
    make_policy: Callable[[], CachePolicy],
) -> Setup:
    length = case.settings["gen_length"]
    spec = RunSpec(
        gen_length=length, block_length=length, steps=1, unmasker="guided", eos="fill_safe",
        record="steps",
    )  # fmt: skip
    return Setup(case.load_adapter(), spec, make_policy, make_unmasker, ReleasedDenoiser, guider)


def _guider(
    case: Case, open_reader: Callable[[Guider], GuiderReader], pair: VocabularyPair
) -> RunGuider:
    """The recorded guider, with the vocabulary of the drafting model."""
    folder = case.model_folder(case.entry["guider"])
    model: Any = AutoModelForCausalLM.from_config(read_config(folder), dtype=torch.float32)
    missing, unexpected = model.load_state_dict(load_file(folder / "model.safetensors"), False)
    assert set(missing) <= {"lm_head.weight"}, "all weights, or a tied head"
    assert not unexpected, "no other tensors"
    no_tokenizer: Any = None
    loaded = Guider(
        folder.name, model.eval().to(case.device), no_tokenizer, pair.guider_stop_ids, ""
    )
    prompt = tuple(case.arrays["prompt"].tolist())
    return RunGuider(pair, (prompt,), lambda: open_reader(loaded), _label, _label)


def _label(token: int) -> bytes:
    return b"%d " % token


def _guided(kind: type[Any], case: Case) -> Any:
    settings, rule = case.settings, case.settings["rule"]
    unmasker = kind(
        rule="rel" if rule == "prob" else rule,
        k=settings["acceptance_top_k"],
        tau=settings["top_p"],
        block=settings["verify_batch_size"],
    )
    if rule == "prob":
        unmasker.threshold = settings["confidence_threshold"]
    return unmasker


def _released_policy(case: Case) -> CachePolicy:
    """The cache as released; without one, the engine's own."""
    settings = case.settings
    if settings["cache"] == "none":
        return NoCache()
    kind = WINDOWS[settings["cache"]]
    policy: ShiftedWindow = kind(window=settings.get("sliding_window_size"))
    policy.rotates_by_row = settings["attention_mask"] == "none"
    return policy
