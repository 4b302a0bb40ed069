"""Compare the engine with recorded runs of public implementations.

`python -m tests.conformance DIR` runs every case of a folder with the layout of tests/goldens. It
prints one line a case and ends with `N passed, M failed, K skipped`.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import CachePolicy, LayerPlan, StepPlan, StepView
from engine.catalog import make_policy, make_unmasker
from engine.config.spec import RunSpec
from engine.core.rows import to_mask
from engine.generate.capture.capturers import Capturer, TapeCapturer
from engine.generate.job import Job
from engine.generate.loop import Denoiser, denoise
from engine.models.base import ModelAdapter
from engine.models.loading.checkpoint import Checkpoint
from engine.models.loading.families import folder_adapter_class
from engine.record.recorder import Recorder, listen_to_plans
from engine.unmask.base import Unmasker
from tests.compat import IdleCallDenoiser, RecordedOrder, forced, released, unshifted

ATOL, RTOL, ROLLOUT_ATOL = 1e-2, 1e-4, 1e-3
METHODS = (
    "llada_vanilla", "fastdllm_llada", "dllm_fast", "dllm_cache", "dkv_decode", "dkv_greedy",
    "d2", "spa", "dream_vanilla", "dream_fast",
)  # fmt: skip
FED = ("fastdllm_llada", "dllm_fast", "dkv_decode", "dkv_greedy", "d2", "dream_fast")


class GoldenRecorder(Recorder):
    """Requests the logits of the recorded rows and compares them."""

    def __init__(self, golden) -> None:
        self.calls, self.positions = golden["logit_call"], golden["logit_pos"]
        self.logits = golden["logits"]
        self.sets = RecordedSets(golden)
        self.fed: list[np.ndarray] = []
        self._plans: list[LayerPlan] = []
        self.compared = 0
        self.logits_error = self.influence_error = 0.0
        self.influence = golden.get("x_global_importance", ())

    def wrap_policy(self, policy: CachePolicy) -> CachePolicy:
        self._policy = policy
        return listen_to_plans(policy, self._plans)

    def record(self, view, plan, logits, candidates) -> None:
        for layer, layer_plan in enumerate(self._plans):
            self.sets.compare(view, layer, layer_plan)
        self._plans.clear()
        if view.step < len(self.influence):
            gap = np.abs(self._policy.influence[0].numpy() - self.influence[view.step]).max()
            self.influence_error = max(self.influence_error, float(gap))

    def extra_rows(self, view: StepView, plan: StepPlan):
        fed = to_mask(plan.rows, 1, view.run.length)[0].numpy()
        self.fed.append(fed)
        here = np.flatnonzero(self.calls == view.step)
        here = here[np.argsort(self.positions[here])]
        self._here = here[fed[self.positions[here]]]
        unfed = np.setdiff1d(here, self._here)  # recorded as zeros
        self.compared += int((self.logits[unfed] == 0).all(1).sum())
        rows = self.positions[self._here]
        return torch.from_numpy(rows)[None].long() if len(rows) else None

    def receive_logits(self, view: StepView, extra) -> None:
        self.compared += len(self._here)
        if view.step > self.sets.first_unstable:
            return
        expected = self.logits[self._here]
        excess = np.abs(extra[0].numpy() - expected) - RTOL * np.abs(expected)
        self.logits_error = max(self.logits_error, float(excess.max()))


class RecordedSets:
    """The recorded row selections of a run by call and layer; unstable ones are not compared."""

    def __init__(self, golden) -> None:
        self.recorded, self.compared, self.wrong = {}, 0, 0
        self.first_unstable = 10**9
        if "upd_call" not in golden:
            return
        columns = ("upd_call", "upd_layer", "upd_idx", "upd_stable")
        for call, layer, rows, stable in zip(*(golden[c] for c in columns), strict=True):
            self.recorded[int(call), int(layer)] = set(rows[rows >= 0].tolist()) if stable else None
            if not stable:
                self.first_unstable = min(self.first_unstable, int(call))

    def compare(self, view: StepView, layer: int, plan: LayerPlan) -> None:
        expected = self.recorded.get((view.step, layer))
        if (view.step, layer) not in self.recorded:
            return
        self.compared += 1
        start = view.run.prompt_length
        rows = to_mask(plan.ffn, 1, view.run.length)[0, start:].nonzero()[:, 0].tolist()
        self.wrong += expected is not None and set(rows) != expected


def spec_of(case: dict) -> RunSpec:
    """The RunSpec of a case."""
    settings, knobs = case["settings"], {}
    cache = settings.get("cache", "none")
    if case["method"] == "dllm_cache":
        cache = "dllm_cache"
        knobs["dllm_cache.prompt_interval"] = settings["kp"]
        knobs["dllm_cache.response_interval"] = settings["kr"]
        knobs["dllm_cache.recompute_ratio"] = float(settings["rho"])
    if case["method"].startswith("dkv_"):
        cache = "dkv_cache"
        knobs["dkv_cache.reload_interval"] = settings["reload"]
        knobs["dkv_cache.variant"] = case["method"].removeprefix("dkv_")
    if case["method"] == "dkv_greedy":
        knobs |= {"dkv_cache.window": settings["window"], "quota.score": "random"}
    if case["method"] == "spa":
        cache = "spa_cache"
        knobs["spa_cache.rank"] = settings["proxy_rank"]
        knobs["spa_cache.refresh_interval"] = settings["refresh_steps"]
        knobs["spa_cache.response_interval"] = settings["refresh_gen_steps"]
    if case["method"] == "d2":
        cache = {"d2": "d2_cache"}.get(cache, cache)
        knobs |= {f"d2_cache.{k}": v for k, v in settings.get("cache_args", {}).items()}
    rules = {"threshold": "threshold", "factor": "factor", "sigma": "certainty"}
    rule = next((name for name in rules if name in settings), None)
    unmasker = "quota" if rule is None else rules[rule]
    if rule is None and case["method"].startswith("dream_"):
        unmasker = "dream"
        knobs |= {"dream.alg": settings["alg"], "dream.schedule": "released"}
    if rule is not None:
        knobs[f"{unmasker}.{rule}"] = float(settings[rule])
    return RunSpec(
        gen_length=settings["gen_length"],
        block_length=settings["block_length"],
        steps=settings["steps"],
        unmasker=unmasker,
        cache=cache,
        cfg_scale=float(settings.get("cfg_scale", 0.0)),
        knobs=knobs,
    )


def run_case(case: dict, folder: Path) -> list[str]:
    """Differences between the engine's run of a case and the recording; empty if none."""
    golden = np.load(folder / f"{case['id']}.npz", allow_pickle=False)
    files = Checkpoint(folder / "models" / case["model"])
    adapter = folder_adapter_class(files.folder).from_checkpoint(
        files, torch.float32, torch.device("cpu")
    )
    spec, prompt = spec_of(case), torch.from_numpy(golden["prompt"]).long()
    recorder = GoldenRecorder(golden)
    fed = case["method"] in FED
    found, order = _decoded(case, golden, adapter, spec, prompt, recorder)
    captured, captured_order = _decoded(
        case, golden, adapter, spec, prompt, Recorder(), TapeCapturer()
    )
    differences = list(_differences(golden, found, order, recorder, fed))
    if not (np.array_equal(found.ids, captured.ids) and np.array_equal(order, captured_order)):
        differences.append("captured, and without the recorder, the run differs")
    return differences


def _decoded(
    case: dict,
    golden,
    adapter: ModelAdapter,
    spec: RunSpec,
    prompt: Tensor,
    recorder: Recorder,
    capturer: Capturer | None = None,
) -> tuple[Denoiser, np.ndarray]:
    """The final state of a run, and the step that committed each position."""
    masks = torch.full((spec.gen_length,), adapter.info.mask_id)
    job = Job(
        adapter=adapter,
        spec=spec,
        canvas=torch.cat((prompt, masks))[None],
        prompt_length=len(prompt),
        make_policy=lambda: _policy(case, spec),
        unmasker=_unmasker(case, spec, golden),
        recorder=recorder,
        capturer=capturer,
    )
    runs_idle_calls = case["method"] == "fastdllm_llada" and spec.cache != "none"
    state = (IdleCallDenoiser if runs_idle_calls else Denoiser)(job)
    order = np.full(spec.gen_length, -1, np.int32)
    for event in denoise(state):
        order[event.positions - len(prompt)] = event.step
    return state, order


def _policy(case: dict, spec: RunSpec) -> CachePolicy:
    """The cache of a case as its authors released it."""
    policy = make_policy(spec)
    return (
        unshifted(policy) if case["method"] == "dream_fast" else released(policy, case["settings"])
    )


def _unmasker(case: dict, spec: RunSpec, golden) -> Unmasker:
    """The unmasker of a case as its authors released it."""
    if "x_rand" in golden:
        return RecordedOrder(golden["x_rand"])
    unmasker = make_unmasker(spec)
    return forced(unmasker) if case["method"] == "dream_fast" else unmasker


def _differences(
    golden, state: Denoiser, order: np.ndarray, recorder: GoldenRecorder, compare_fed: bool
):
    length = len(golden["final_ids"])
    if not np.array_equal(state.ids[0], golden["final_ids"]):
        yield f"final_ids differ at {int((state.ids[0] != golden['final_ids']).sum())} positions"
    if state.step_index != int(golden["nfe"]):
        yield f"nfe {state.step_index}, recorded {int(golden['nfe'])}"
    if not np.array_equal(order, golden["unmask_call"]):
        yield f"unmask_call differs at {int((order != golden['unmask_call']).sum())} positions"
    fed = np.unpackbits(golden["in_pos_mask"], axis=1)[:, :length].astype(bool)
    if "x_q_mask" in golden:
        fed[1:] = golden["x_q_mask"][:-1]
    if compare_fed and not np.array_equal(np.array(recorder.fed), fed):
        yield "fed positions differ"
    if recorder.compared != len(golden["logit_call"]):
        yield f"{recorder.compared} of {len(golden['logit_call'])} logits rows were computed"
    sets = recorder.sets
    if sets.wrong or sets.compared != len(sets.recorded):
        yield f"{sets.wrong} of {len(sets.recorded)} row selections differ, {sets.compared} made"
    if not recorder.influence_error <= ROLLOUT_ATOL:
        yield f"attention roll-out differs by {recorder.influence_error:.3g}"
    if not recorder.logits_error <= ATOL:
        yield f"logits differ by {recorder.logits_error:.3g}"


def main() -> int:
    """Run the folder named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent / "goldens")
    folder = parser.parse_args().folder
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for case in json.loads((folder / "cases.json").read_text()):
        if case["method"] not in METHODS:
            outcome, why = "skipped", f"the engine does not have {case['method']} yet"
        else:
            differences = run_case(case, folder)
            outcome, why = ("failed" if differences else "passed"), "; ".join(differences)
        counts[outcome] += 1
        print(f"{outcome:8}{case['id']}{': ' if why else ''}{why}")
    print(", ".join(f"{n} {name}" for name, n in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
