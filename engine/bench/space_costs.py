"""What a model of each known family needs on the hardware of Spaces, computed, not measured.

python -m engine costs                  print the table
python -m engine costs --write-readme   update it in assets/results/README.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from engine.catalog import derive_plan
from engine.config.spec import RunSpec
from engine.core.command_line import table_command
from engine.core.tables import RESULTS_README, markdown_table
from engine.estimate.gpu_time import GPUS, forward_seconds, run_seconds, start_seconds
from engine.generate.capture.capturers import WARM_UP_STEPS, CudaCapturer
from engine.models.loading.families import adapter_class
from engine.models.loading.memory_estimate import dtype_of, gigabytes, needed_bytes, weights_bytes
from engine.models.loading.registry import REGISTERED
from engine.serve.memory_budget import spec_run_bytes

MODELS = (
    "GSAI-ML/LLaDA-8B-Instruct", "GSAI-ML/LLaDA-V", "inclusionAI/LLaDA-MoE-7B-A1B-Instruct",
    "inclusionAI/LLaDA2.0-mini", "Gen-Verse/MMaDA-8B-MixCoT", "Dream-org/Dream-v0-Instruct-7B",
    "JetLM/SDAR-8B-Chat", "Efficient-Large-Model/Fast_dLLM_v2_7B",
)  # fmt: skip
TOKENS = 256  # of the prompt
# The single caches that need the most memory at their own settings, by the model's attention.
CACHED = {"full": "dllm_cache", "block_causal": "frozen"}
HEAD = (
    "model", "Space hardware", "of memory", "weights", "plain run", "cached run", "needed", "fits",
    "ms a forward", "s a plain run", "s to a fresh worker",
)  # fmt: skip


def rows() -> Iterator[Sequence[str]]:
    """One row per model and hardware; bytes by `memory_estimate`, seconds by `gpu_time`."""
    for name in MODELS:
        known = REGISTERED[name]
        info = adapter_class(known.config).read_info(known.config)
        for hardware, card in GPUS.items():
            spec = RunSpec(model=name, dtype="bfloat16", device="cuda")
            if info.block_causal:
                spec = replace(spec, block_length=info.block_size)
            cache = CACHED[info.attention]
            cached = spec_run_bytes(replace(spec, cache=cache), info, TOKENS)
            dtype = dtype_of(spec)
            plan = {
                "prompt_tokens": TOKENS, "suffix_tokens": 0, "probe_forwards": 0,
                "calibration_forwards": 0,
                "max_forwards": derive_plan(spec)[0].max_forwards,
            }  # fmt: skip
            needed = needed_bytes(info, dtype, "cuda", cached)
            forward = forward_seconds(card, info, dtype, TOKENS + spec.gen_length)
            zero = hardware.startswith("zero")
            eager = zero or info.experts is not None  # see `make_capturer`
            warm_up = WARM_UP_STEPS if eager else CudaCapturer.warm_up_steps
            yield (
                known.title, f"`{hardware}`, {card.title}", gigabytes(int(card.memory)),
                gigabytes(weights_bytes(info, dtype)),
                gigabytes(spec_run_bytes(spec, info, TOKENS)), gigabytes(cached), gigabytes(needed),
                "yes" if needed <= card.memory else "no", f"{1e3 * forward:.0f}",
                f"{run_seconds(card, spec, info, plan, warm_up):.0f}",
                f"{start_seconds(spec, info):.0f}" if zero else "",
            )  # fmt: skip


def table() -> str:
    """The costs as Markdown."""
    return markdown_table(HEAD, rows())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    about = "Memory and time of large models on Spaces, computed."
    table_command("costs", about, table, "costs", RESULTS_README, arguments)
