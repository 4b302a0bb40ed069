"""fullsize: every cache on weights of a published size, with its step times and peak memory.

    python -m engine.fullsize --device cuda --dtype bfloat16 --write-readme

The weights are drawn at random in the shape of a registered model, on the device itself, so
nothing is fetched and texts mean nothing; times and memory are those of the real sizes. Where the
machine has no such device the rows say "not run". Prints a table and, last, one JSON document.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch

from engine import environment, memory
from engine.catalog import policies, renewed
from engine.families import adapter_for
from engine.lane import LoadedModel, make_job
from engine.loop import Denoiser, denoise
from engine.models.pretrained import Pretrained
from engine.registry import REGISTERED
from engine.spec import RunSpec
from engine.text import Tokenizer

MODELS = ("GSAI-ML/LLaDA-8B-Instruct", "Dream-org/Dream-v0-Instruct-7B")
MARKS = ("<!-- full size -->\n", "<!-- end of full size -->")
KINDS = ("full", "partial", "reuse")
TOKENIZER = Path(__file__).parent.parent / "assets" / "models" / "tiny-llada"
SPREAD = 0.02


def random_adapter(
    config: Mapping[str, Any], dtype: torch.dtype, device: torch.device, seed: int = 0
) -> Pretrained:
    """A model of a config with normal weights of deviation 0.02 and norms of 1."""
    kind = adapter_for(config)
    with torch.device("meta"):
        adapter = kind(kind.read_info(config))
    adapter.to(dtype).to_empty(device=device)
    if adapter.info.tied:
        adapter.head.weight = adapter.embedding.weight
    draw = torch.Generator(device).manual_seed(seed)
    for tensor in adapter.parameters():
        tensor.normal_(0, SPREAD, generator=draw) if tensor.dim() > 1 else tensor.fill_(1)
    return adapter.eval()


def caches() -> list[str]:
    """Every cache, alone or, where it stands on nothing, on the dual cache too."""
    stacked = [f"dual+{name}" for name, one in policies().items() if "dual" in one.stackable_on]
    return [*policies(), *stacked]


def measure(model: LoadedModel, spec: RunSpec, prompt: list[int]) -> dict[str, Any]:
    """Median milliseconds by kind of step, the first of each left out, and the peak in bytes."""
    memory.reset_peak(model.adapter.device)
    state = Denoiser(make_job(model, spec, [prompt]))
    times: dict[str, list[float]] = {}
    for event in denoise(state):
        times.setdefault(event.kind, []).append(event.step_ms)
    steps = {kind: median(found[1:] or found) for kind, found in times.items()}
    return {"cache": spec.cache, "ms": steps, "peak": memory.peak(model.adapter.device)}


def rows(name: str, config: Mapping[str, Any], base: RunSpec, tokens: int) -> Iterator[dict]:
    """One row a cache of a model."""
    device = torch.device(base.device)
    adapter = random_adapter(config, getattr(torch, base.dtype), device)
    digest = f"random-{name.rpartition('/')[2]}-{base.dtype}"
    model = LoadedModel(adapter, Tokenizer(TOKENIZER), digest)
    draw = torch.Generator().manual_seed(1)
    below = min(adapter.info.mask_id, *adapter.info.stop_ids)
    prompt = torch.randint(below, (tokens,), generator=draw).tolist()
    for cache in caches():
        yield {"model": name} | measure(model, dataclasses.replace(base, cache=cache), prompt)


def table(found: list[dict[str, Any]], where: str) -> str:
    """Markdown: a row a model and cache, "not run" where `found` has none."""
    known = {(row["model"], row["cache"]): row for row in found}
    head = ["model", "cache", *(f"{kind} step, ms" for kind in KINDS), "peak memory"]
    lines = [head, ["---"] * len(head)]
    for model in MODELS:
        for cache in caches():
            row = known.get((model, cache))
            cells = ["not run"] * 4 if row is None else _cells(row)
            lines.append([model.rpartition("/")[2], cache, *cells])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n{where}\n"


def _cells(row: dict[str, Any]) -> list[str]:
    times = [f"{row['ms'][kind]:.1f}" if kind in row["ms"] else "" for kind in KINDS]
    return [*times, f"{row['peak'] / 1e9:.1f} GB" if row["peak"] else ""]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--tokens", type=int, default=512, help="of the prompt")
    parser.add_argument("--write-readme", action="store_true", help="renew README.md's table")
    args = parser.parse_args()
    base = RunSpec(device=args.device, dtype=args.dtype, steps=64)
    found, where = [], f"No {args.device} device was at hand."
    if args.device == "cpu" or torch.cuda.is_available():
        for name in MODELS:
            found += list(rows(name, REGISTERED[name].config, base, args.tokens))
        told = environment.describe(base, "random")
        where = (
            f"{told['device_name']}, {base.dtype}, torch {told['torch']}: prompt of {args.tokens}, "
            f"answer of {base.gen_length} in blocks of {base.block_length}, {base.steps} steps."
        )
    text = table(found, where)
    print(text)
    if args.write_readme:
        readme = Path("README.md")
        readme.write_text(renewed(readme.read_text("utf-8"), text, MARKS), "utf-8")
    print(json.dumps({"rows": found, "where": where}))


if __name__ == "__main__":
    main()
