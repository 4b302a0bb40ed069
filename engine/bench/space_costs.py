"""Costs: what LLaDA-8B and Dream-7B take on the hardware of Spaces, computed and not measured.

python -m engine costs                  prints the table
python -m engine costs --write-readme   renews the one in README.md
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.catalog import derive_plan
from engine.config.spec import RunSpec
from engine.core.tables import table_command
from engine.models.loading.families import adapter_for
from engine.models.loading.memory_estimate import gigabytes, needed_bytes, weights_bytes
from engine.models.loading.registry import REGISTERED
from engine.serve.gpu_time import GPUS, forward_seconds, run_seconds, start_seconds
from engine.serve.memory_budget import bytes_of_run, dtype_of

MODELS = ("GSAI-ML/LLaDA-8B-Instruct", "Dream-org/Dream-v0-Instruct-7B")
TOKENS, CACHED = 256, "dllm_cache"  # it keeps the most
HEAD = (
    "model", "Space hardware", "of memory", "weights", "plain run", "dLLM-Cache", "needed", "fits",
    "ms a forward", "s a plain run", "s to a fresh worker",
)  # fmt: skip


def rows() -> list[list[str]]:
    """The table's rows; memory by engine.models.loading.memory_estimate, seconds by engine.serve.gpu_time."""
    out = []
    for name in MODELS:
        known = REGISTERED[name]
        info = adapter_for(known.config).read_info(known.config)
        for hardware, card in GPUS.items():
            spec = RunSpec(model=name, dtype="bfloat16", device="cuda")
            most, dtype = bytes_of_run(_cached(spec), info, TOKENS), dtype_of(spec)
            plan = {
                "prompt_tokens": TOKENS, "probe_forwards": 0,
                "max_forwards": derive_plan(spec)[0].max_forwards,
            }  # fmt: skip
            need = needed_bytes(info, dtype, "cuda", most)
            one = forward_seconds(card, info, dtype, TOKENS + spec.gen_length)
            zero = hardware.startswith("zero")
            out.append([
                known.title, f"`{hardware}`, {card.title}", gigabytes(int(card.memory)),
                gigabytes(weights_bytes(info, dtype)),
                gigabytes(bytes_of_run(spec, info, TOKENS)), gigabytes(most), gigabytes(need),
                "yes" if need <= card.memory else "no", f"{1e3 * one:.0f}",
                f"{run_seconds(card, spec, info, plan):.0f}",
                f"{start_seconds(info, dtype):.0f}" if zero else "",
            ])  # fmt: skip
    return out


def _cached(spec: RunSpec) -> RunSpec:
    return RunSpec.from_dict(spec.to_dict() | {"cache": CACHED})


def table() -> str:
    """The table in Markdown."""
    lines = [HEAD, tuple("---" for _ in HEAD), *rows()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; `arguments` default to those of the process."""
    table_command("costs", "What big models cost on a Space, computed.", table, "costs", arguments)
