"""Evaluate an autoregressive model on the exam of the embedded corpus, with greedy decoding.

    python -m engine causal-exam --folder assets/models/tiny-qwen2 --problems 300 --json

Problems, prompts and scoring are those of `python -m engine evaluate`; so is the row it prints.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from engine.core.command_line import command_parser
from engine.evaluate.exam import accuracy_row
from engine.models.tokenizer import Tokenizer
from engine.tiny import corpus

LENGTH = 128  # most tokens of an answer


def generate_greedy(
    model: Any, tokenizer: Tokenizer, prompts: list[str], pad: int
) -> list[list[int]]:
    """Greedy answers to chat prompts in one batch, as ids up to and with the stop token."""
    encoded = [tokenizer.encode_prompt(prompt) for prompt in prompts]
    width = max(map(len, encoded))
    ids = torch.tensor([[pad] * (width - len(one)) + one for one in encoded])
    attended = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in encoded])
    with torch.no_grad():
        out = model.generate(
            ids, attention_mask=attended, max_new_tokens=LENGTH, do_sample=False,
            eos_token_id=list(tokenizer.stop_ids), pad_token_id=pad,
        )  # fmt: skip
    return [_until_stop(answer, tokenizer.stop_ids) for answer in out[:, width:].tolist()]


def _until_stop(ids: list[int], stops: tuple[int, ...]) -> list[int]:
    end = next((i + 1 for i, token in enumerate(ids) if token in stops), len(ids))
    return ids[:end]


def evaluate_causal(
    folder: Path, problems: int, seed: int, shots: int, batch: int, family: str
) -> dict[str, Any]:
    """Accuracy of the model in a folder, as a row of `python -m engine evaluate`."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer, pad = Tokenizer(folder), model.config.pad_token_id
    correct = forwards = 0
    questions = corpus.exam_questions(problems, seed, shots, family)
    for start in range(0, problems, batch):
        group = questions[start : start + batch]
        answers = generate_greedy(model, tokenizer, [text for _, text in group], pad)
        forwards += sum(map(len, answers))
        pairs = zip(group, answers, strict=True)
        correct += sum(corpus.correct(tokenizer.decode(ids), one) for (one, _), ids in pairs)
    spec = {"gen_length": LENGTH, "block_length": 1}
    named = {"name": "greedy", "spec": spec, "shots": shots, "family": family}
    return named | accuracy_row(correct, problems) | {
        "nfe": forwards / problems, "tokens_per_forward": 1.0,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    parser = command_parser("causal-exam", __doc__)
    parser.add_argument("--folder", type=Path, required=True, help="folder of the model")
    parser.add_argument("--problems", type=int, default=300, help="number of problems")
    parser.add_argument("--seed", type=int, default=7, help="seed of the problems")
    parser.add_argument(
        "--family", choices=tuple(corpus.families()), default="word_problems",
        help="family of the problems",
    )  # fmt: skip
    parser.add_argument("--shots", type=int, default=0, help="worked examples before each problem")
    parser.add_argument("--batch", type=int, default=20, help="problems answered in one batch")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    row = evaluate_causal(
        args.folder, args.problems, args.seed, args.shots, args.batch, args.family
    )
    print(f"{args.folder.name}: {row['accuracy']:.1%} of {args.problems} correct")
    if args.json:
        print(json.dumps({"rows": [row]}))
