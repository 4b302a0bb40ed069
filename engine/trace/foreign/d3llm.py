"""Trajectories of d3LLM: one canvas of token ids after each step, for many samples.

The format is that of `trajectory_data.json`, which
`d3llm/d3llm_LLaDA/distill_1_data_prepare/d3llm_llada_generate_partly.py` and its counterpart for
Dream write in https://github.com/hao-ai-lab/d3LLM (commit e5bfcac, 2026-05-01), and of the data
sets `d3LLM/trajectory_data_llada_32` and `trajectory_data_dream_32` made from it: a list of objects
with `question`, `prompt_ids` [P], `trajectory` [S][P + A], the canvas of prompt and answer after
each step, `final_output` [P + A] and others. Neither the mask's id nor texts are in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.trace.foreign.document import FORMAT, VERSION, check_steps

METHOD = "d3LLM teacher trajectory"


def recognises(data: Any) -> bool:
    """Whether a parsed file is a sample, or a list of samples."""
    first = data[0] if isinstance(data, list) and data else data
    return isinstance(first, dict) and {"prompt_ids", "trajectory"} <= first.keys()


def samples(data: Any) -> int:
    """The number of samples in a file."""
    return len(data) if isinstance(data, list) else 1


def convert(data: Any, sample: int = 1) -> dict[str, Any]:
    """A sample, counted from 1, as a document of the format `driftscope-run`.

    The mask is the one id that the first canvas has where the last has others. Raises ValueError
    naming the field if the sample does not exist or is no list of canvases.
    """
    if not 1 <= sample <= samples(data):
        raise ValueError(f"sample: {sample} is not from 1 to {samples(data)}")
    found = data[sample - 1] if isinstance(data, list) else data
    prompt = found.get("prompt_ids") if isinstance(found, Mapping) else None
    canvases = found.get("trajectory") if isinstance(found, Mapping) else None
    if not isinstance(prompt, list) or not isinstance(canvases, list) or not canvases:
        raise ValueError(f"trajectory: sample {sample} has no prompt_ids or no canvases")
    check_steps("trajectory", len(canvases))
    for step, canvas in enumerate(canvases, 1):
        if not isinstance(canvas, list) or canvas[: len(prompt)] != prompt:
            raise ValueError(
                f"trajectory: the canvas of step {step} does not begin with prompt_ids; give "
                "canvases of prompt and answer, without padding"
            )
    answers = [canvas[len(prompt) :] for canvas in canvases]
    out = {
        "format": FORMAT, "version": VERSION, "method": METHOD, "prompt_tokens": prompt,
        "canvases": answers,
    }  # fmt: skip
    mask = _mask(answers[0], answers[-1])
    if mask is not None:
        out["mask"] = mask
    question = found.get("question")
    return out | ({"prompt": question} if isinstance(question, str) else {})


def _mask(first: list[Any], last: list[Any]) -> Any:
    """The id that stands for a mask; None if the first step committed everything."""
    open_places = {repr(a): a for a, b in zip(first, last, strict=False) if a != b}
    if len(open_places) > 1:
        raise ValueError(
            "trajectory: the canvas of step 1 differs from the last in more ids than one, so none "
            "is the mask; give the trajectory of a masked model"
        )
    return next(iter(open_places.values()), None)
