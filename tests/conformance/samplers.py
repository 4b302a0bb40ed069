"""How the engine decodes the cases of tests/goldens: samplers and caches of seven repositories."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from engine.cache.base import CachePolicy
from engine.catalog import make_policy, make_unmasker
from engine.config.spec import MAX_LENGTH, RunSpec
from engine.generate.job import Job
from engine.generate.loop import Denoiser
from engine.unmask.base import SamplingParams, Unmasker
from engine.unmask.methods.factor import Factor
from engine.unmask.methods.quota import Quota
from engine.unmask.methods.threshold import Threshold
from tests.compat.loops import (
    CappedDenoiser,
    CutDenoiser,
    IdleCallDenoiser,
    OneStepDenoiser,
    denoiser_of_every_step,
)
from tests.compat.samplers import (
    FilteredThreshold,
    NeverAllFactor,
    RecordedOrder,
    ReleasedDream,
    forced,
    released,
    unshifted,
    with_earlier_masks,
)
from tests.compat.schedules import CarriedBudget, RoundedQuota, rounded_counts
from tests.conformance.cases import Case, UnknownCaseError
from tests.conformance.guided_calls import cfg_interval
from tests.conformance.recorders import ObservedRecorder
from tests.conformance.runs import Decoded, Setup

# Measured over the 44 cases on an AMD EPYC with one thread, in both runs: the widest difference is
# 5.4e-4, of logits up to 27, and 0.16 times what a noise of 2e-6 on all weights changes in the same
# case. Both bounds are ten times as wide, and the narrower one counts: a case whose logits depend
# little on the weights has a narrow bound.
ATOL, NOISE_RATIO = 5.4e-3, 1.6
ROLLOUT_ATOL = 1e-3

THRESHOLD = 0.9  # of Fast-dLLM's samplers for Dream, if a case names none
INFLATE_W = 4  # of d2Cache's class, if a case names none

D2_SCORES = {"maskgit_plus": "confidence", "topk_margin": "margin", "entropy": "entropy"}

LENGTHS: dict[str, Any] = {
    "gen_length": None, "block_length": None, "steps": None, "temperature": (0,),
}  # fmt: skip
LLADA: dict[str, Any] = {"remasking": ("low_confidence",)}
DREAM: dict[str, Any] = {"eps": None, "top_p": None, "top_k": None}  # knobs of the rule `dream`
SETTINGS: dict[str, dict[str, Any]] = {
    "llada_vanilla": {"cfg_scale": None, "attention_mask": ("ones",)} | LLADA,
    "fastdllm_llada": {"cache": None, "threshold": None} | LLADA,
    "dllm_fast": {"cache": None, "factor": None, "threshold": None} | LLADA,
    "dllm_cache": {
        "kp": None, "kr": None, "rho": None, "cfg_scale": None, "cfg_interval": None,
        "cfg_interval_steps": None, "attention_mask": ("ones",),
    } | LLADA,
    "dkv_decode": {"enable_cache": None, "reload": None} | LLADA,
    "dkv_greedy": {
        "enable_cache": None, "reload": None, "window": None, "remasking": ("random",),
    },
    "d2": {
        "cache": ("none", "prefix", "dual", "d2"), "sigma": None, "cache_args": None,
        "threshold": None, "factor": None, "alg": tuple(D2_SCORES),
    },
    "spa": {
        "proxy_rank": None, "update_ratio": None, "refresh_steps": None, "refresh_gen_steps": None,
        "threshold": None, "factor": None, "dynamic_threshold_factor": None,
    } | LLADA,
    "dream_vanilla": {"alg": None, "threshold": None} | DREAM,
    "dream_fast": {"alg": None, "cache": ("prefix", "dual"), "threshold": None} | DREAM,
}  # fmt: skip
ARRAYS = frozenset({
    "prompt", "final_ids", "nfe", "unmask_call", "in_pos_mask", "logit_call", "logit_pos",
    "logits", "upd_call", "upd_layer", "upd_idx", "upd_stable", "x_rand", "x_q_mask",
    "x_global_importance", "x_nfe_reported",
    # Left out: the engine computes other rows of logits; the gap at the cut of a selection, whose
    # sets are compared; and scores of d2Cache, which decide rows that are compared.
    "out_rows", "upd_margin", "x_density_score",
})  # fmt: skip
FED = ("fastdllm_llada", "dllm_fast", "dkv_decode", "dkv_greedy", "d2", "dream_fast")
EVERY_STEP = ("llada_vanilla", "dllm_cache", "dkv_decode", "dkv_greedy")  # with LLaDA's loop


def tolerance(case: Case) -> tuple[float, float]:
    """The absolute and the relative tolerance of logits."""
    noise = float(case.entry["max_logit_change_under_2e6_weight_noise"])
    return min(ATOL, NOISE_RATIO * noise), 0.0


def setup(case: Case) -> Setup:
    """What decodes a case; raises UnknownCaseError for settings that it does not know."""
    case.check_settings(LENGTHS | SETTINGS[case.method])
    spec = spec_of(case)
    return Setup(
        adapter=case.load_adapter(),
        spec=spec,
        make_policy=lambda: _policy(case, spec),
        make_unmasker=lambda: _unmasker(case, spec),
        make_denoiser=_loop(case.method, spec),
        answer=case.settings["gen_length"],
    )


def plain_setup(case: Case) -> Setup:
    """What decodes a case of LLaDA's loop without a cache; ids of images may be in an answer."""
    case.check_settings(LENGTHS | SETTINGS["llada_vanilla"])
    spec, adapter = spec_of(case), case.load_adapter()
    adapter.info = replace(adapter.info, text_only=False)  # as in the recorded runs of MMaDA
    return Setup(adapter, spec, partial(make_policy, spec), partial(make_unmasker, spec),
                 denoiser_of_every_step(spec))  # fmt: skip


def spec_of(case: Case) -> RunSpec:
    """The RunSpec of a case.

    dllm divides the steps among the blocks rounded up. Its last block may be shorter; the spec then
    names the answer up to the end of a whole one.
    """
    settings, method = case.settings, case.method
    if method.startswith("dream_"):
        settings = _with_defaults(case)
    if method == "spa" and settings["proxy_rank"] <= 1:  # a share of V's width
        width = case.load_adapter().info.d_kv
        settings = {**settings, "proxy_rank": int(width * settings["proxy_rank"])}
    steps, length = settings["steps"], settings["gen_length"]
    if method == "dllm_fast":
        blocks = -(-length // settings["block_length"])
        steps, length = -(-steps // blocks) * blocks, blocks * settings["block_length"]
    cache, cache_knobs = _cache(settings, method)
    unmasker, knobs = (
        _dream_rule(settings, method) if method.startswith("dream_") else _rule(settings)
    )
    if method == "dkv_greedy":
        knobs |= {"quota.score": "random"}
    if method == "d2":
        knobs |= _d2_score(settings, unmasker)
    return RunSpec(
        gen_length=length,
        block_length=settings["block_length"],
        steps=steps,
        unmasker=unmasker,
        cache=cache,
        cfg_scale=float(settings.get("cfg_scale", 0.0)),
        knobs=cache_knobs | knobs,
    )


def _cache(settings: Mapping[str, Any], method: str) -> tuple[str, dict[str, Any]]:
    """The cache of a case and its knobs."""
    cache, knobs = settings.get("cache", "none"), dict[str, Any]()
    if method == "dllm_cache":
        cache = "dllm_cache"
        knobs["dllm_cache.prompt_interval"] = _interval(settings["kp"])
        knobs["dllm_cache.response_interval"] = _interval(settings["kr"])
        knobs["dllm_cache.recompute_ratio"] = float(settings["rho"])
        knobs["dllm_cache.cfg_interval"] = cfg_interval(settings)
    if method.startswith("dkv_") and settings.get("enable_cache", True):
        cache = "dkv_cache"
        knobs["dkv_cache.reload_interval"] = settings["reload"]
        knobs["dkv_cache.variant"] = method.removeprefix("dkv_")
        if method == "dkv_greedy":
            knobs["dkv_cache.window"] = settings["window"]
    if method == "spa":
        cache = "spa_cache"
        knobs["spa_cache.rank"] = settings["proxy_rank"]
        knobs["spa_cache.refresh_interval"] = _interval(settings["refresh_steps"])
        knobs["spa_cache.response_interval"] = _interval(settings["refresh_gen_steps"])
    if method == "d2" and cache == "d2":
        cache, given = "d2_cache", {"inflate_w": INFLATE_W} | settings.get("cache_args", {})
        knobs |= {f"d2_cache.{name}": value for name, value in given.items()}
    return cache, knobs


def _interval(steps: int) -> int | None:
    """The knob of an interval: None if it is longer than any run; -1 refreshes in every step."""
    return None if steps > MAX_LENGTH else max(steps, 1)


def _rule(settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The unmasker of a case, which the settings imply, and its knobs."""
    rules = {
        "dynamic_threshold_factor": "factor.factor", "factor": "factor.factor",
        "threshold": "threshold.threshold", "sigma": "certainty.sigma",
    }  # fmt: skip
    setting = next((name for name in rules if settings.get(name) is not None), None)
    if setting is None:
        return "quota", {}
    return rules[setting].split(".")[0], {rules[setting]: float(settings[setting])}


def _d2_score(settings: Mapping[str, Any], unmasker: str) -> dict[str, Any]:
    """The knobs of the measure that d2Cache's sampler ranks by.

    Raises UnknownCaseError if it is weighted by the density for another rule than the prior's.
    """
    score = D2_SCORES[settings.get("alg", "maskgit_plus")]
    others = [name for name in ("threshold", "factor") if settings.get(name) is not None]
    if (others and settings.get("sigma")) or (score != "confidence" and unmasker != "quota"):
        raise UnknownCaseError("settings alg, sigma, threshold and factor are unknown together")
    return {} if score == "confidence" else {"quota.score": score}


def _with_defaults(case: Case) -> Mapping[str, Any]:
    """The settings of a case of Dream and the filters that it does not name.

    `diffusion_generate` takes them from the model's config.json, in which transformers writes a
    top_k of 50.
    """
    given = {name: case.config[name] for name in ("top_p", "top_k") if name in case.config}
    return given | case.settings


def _dream_rule(settings: Mapping[str, Any], method: str) -> tuple[str, dict[str, Any]]:
    """The unmasker of a case of Dream, which `alg` names, and its knobs.

    Fast-dLLM's cached sampler ranks by negative entropy, whatever else `alg` names.
    """
    if settings["alg"] == "confidence_threshold":
        return "threshold", {"threshold.threshold": float(settings.get("threshold", THRESHOLD))}
    alg = "entropy" if method == "dream_fast" else settings["alg"]
    given = {f"dream.{name}": settings[name] for name in DREAM if settings.get(name) is not None}
    return "dream", {"dream.alg": alg, "dream.schedule": "released"} | given


def _loop(method: str, spec: RunSpec) -> Callable[[Job], Denoiser]:
    """The loop over the steps of a method."""
    if method == "dream_fast" and spec.unmasker == "dream" and spec.steps == spec.blocks:
        return OneStepDenoiser
    if method in ("fastdllm_llada", "dream_fast") and spec.cache != "none":
        return IdleCallDenoiser
    steps = spec.steps // spec.blocks
    by_confidence = spec.unmasker != "quota"  # a quota needs no more steps than these
    if method == "spa" and by_confidence:
        return lambda job: CappedDenoiser(job, lambda block: steps)
    if method == "dllm_fast":
        if spec.cache != "dual" or not by_confidence:
            return CutDenoiser
        return lambda job: CappedDenoiser(
            job, lambda block: len(rounded_counts(block.stop - block.start, steps))
        )
    return denoiser_of_every_step(spec) if method in EVERY_STEP else Denoiser


def _policy(case: Case, spec: RunSpec) -> CachePolicy:
    """The cache of a case as its authors released it."""
    policy = make_policy(spec)
    return unshifted(policy) if case.method == "dream_fast" else released(policy, case.settings)


def _unmasker(case: Case, spec: RunSpec) -> Unmasker:
    """The unmasker of a case as its authors released it."""
    if "x_rand" in case.arrays:
        return RecordedOrder(case.arrays["x_rand"])
    unmasker = make_unmasker(spec)
    if case.method == "spa":
        return with_earlier_masks(unmasker)
    if case.method == "d2" and isinstance(unmasker, Factor):
        return NeverAllFactor(**asdict(unmasker))
    if case.method == "dllm_fast" and isinstance(unmasker, Quota):
        return RoundedQuota(**asdict(unmasker))
    if case.method == "dream_vanilla":
        threshold = isinstance(unmasker, Threshold)
        unmasker = (CarriedBudget if threshold else ReleasedDream)(**asdict(unmasker))
    if case.method == "dream_fast":
        unmasker = forced(unmasker, spec.cache)
    if isinstance(unmasker, FilteredThreshold):
        given = {name: _with_defaults(case).get(name) for name in ("top_p", "top_k")}
        unmasker.filters = SamplingParams(**{k: v for k, v in given.items() if v is not None})
    return unmasker


def returned_nothing(case: Case) -> bool:
    """Whether the sampler returned an answer of masks: that of SPA-Cache does if masks are left."""
    answer = case.arrays["final_ids"][len(case.prompt) :]
    return case.method == "spa" and bool((answer == case.load_adapter().info.mask_id).all())


def differences(case: Case, found: Decoded, recorder: ObservedRecorder) -> Iterator[str]:
    """Differences in fed positions, row selections and attention roll-out."""
    golden = case.arrays
    length = len(golden["final_ids"])
    fed = np.unpackbits(golden["in_pos_mask"], axis=1)[:, :length].astype(bool)
    if "x_q_mask" in golden:
        fed[1:] = golden["x_q_mask"][:-1]
    if case.method in FED and not np.array_equal(np.array(recorder.fed), fed):
        yield "fed positions differ"
    sets = recorder.sets
    if sets.wrong or sets.compared != len(sets.recorded):
        yield f"{sets.wrong} of {len(sets.recorded)} row selections differ, {sets.compared} made"
    if not recorder.influence_error <= ROLLOUT_ATOL:
        yield f"attention roll-out differs by {recorder.influence_error:.3g}"
    if golden.get("x_nfe_reported", found.state.step_index) != found.state.step_index:
        yield f"x_nfe_reported is {int(golden['x_nfe_reported'])}"
