"""recital: sit the exam of the embedded corpus with a causal model, greedily, token by token.

    python -m engine causal-exam --folder assets/models/tiny-qwen2 --problems 300 --json

The problems, the prompts and the marks are those of engine.evaluate.__main__, whose row it prints.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from engine.config.spec import RunSpec
from engine.models.tokenizer import Tokenizer
from engine.tiny import corpus
from engine.tiny.exam import exam

LENGTH = 112  # tokens an answer may take


def recite(model: Any, tokenizer: Tokenizer, prompts: list[str], pad: int) -> list[list[int]]:
    """Answer chat prompts greedily in one batch; ids [up to LENGTH] each, stop token included."""
    asked = [tokenizer.encode_spec(RunSpec(prompt=prompt)) for prompt in prompts]
    width = max(map(len, asked))
    ids = torch.tensor([[pad] * (width - len(one)) + one for one in asked])
    seen = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in asked])
    with torch.no_grad():
        out = model.generate(
            ids, attention_mask=seen, max_new_tokens=LENGTH, do_sample=False,
            eos_token_id=list(tokenizer.stop_ids), pad_token_id=pad,
        )  # fmt: skip
    return [_cut(answer, tokenizer.stop_ids) for answer in out[:, width:].tolist()]


def row(folder: Path, problems: int, seed: int, shots: int, batch: int) -> dict[str, Any]:
    """Exact match of the final numbers, as a row of engine.evaluate.__main__."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer, right, forwards = Tokenizer(folder), 0, 0
    questions = exam(problems, seed, shots)
    for i in range(0, problems, batch):
        part = questions[i : i + batch]
        answers = recite(model, tokenizer, [text for _, text in part], model.config.pad_token_id)
        forwards += sum(map(len, answers))
        pairs = zip(part, answers, strict=True)
        right += sum(corpus.correct(tokenizer.decode(ids), one) for (one, _), ids in pairs)
    share = right / problems
    return {
        "name": "greedy", "spec": {"gen_length": LENGTH, "block_length": 1}, "shots": shots,
        "problems": problems, "correct": right, "accuracy": share,
        "standard_error": (share * (1 - share) / problems) ** 0.5,
        "nfe": forwards / problems, "tokens_per_forward": 1.0,
    }  # fmt: skip


def _cut(ids: list[int], stops: tuple[int, ...]) -> list[int]:
    ends = [i + 1 for i, token in enumerate(ids) if token in stops]
    return ids[: ends[0]] if ends else ids


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(
        prog="python -m engine causal-exam",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--folder", type=Path, required=True, help="folder of the model")
    parser.add_argument("--problems", type=int, default=300, help="how many to draw")
    parser.add_argument("--seed", type=int, default=7, help="of the problems")
    parser.add_argument("--shots", type=int, default=0, help="worked examples before each")
    parser.add_argument("--batch", type=int, default=20, help="problems answered together")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    found = row(args.folder, args.problems, args.seed, args.shots, args.batch)
    print(f"{args.folder.name}: {found['accuracy']:.1%} of {args.problems} right")
    if args.json:
        print(json.dumps({"rows": [found]}))
