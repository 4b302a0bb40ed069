"""Evaluate an autoregressive model on the exam of the embedded corpus, with greedy decoding.

    python -m engine causal-exam --folder assets/models/tiny-qwen2 --problems 300 --json
    python -m engine causal-exam --folder assets/models/tiny-qwen2 --problems 20 --generate

Problems, prompts and scoring are those of `python -m engine evaluate`; so is the row it prints.
With --json the last line is a document as that of `evaluate`, {"environment", "rows"}.
--generate decodes each problem with `generate` of transformers as well, in turn, and says how many
answers are equal token for token and how the times compare.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from engine.config.spec import RunSpec
from engine.core.command_line import command_parser, failure, not_negative, positive
from engine.core.files import ASSETS
from engine.core.tables import percentage
from engine.evaluate.exam import Questions, evaluate, summarise
from engine.generate.autoregressive import AutoregressiveDecoder
from engine.guider.model import Guider, load_guider
from engine.models.loading.checkpoint import Checkpoint
from engine.serve import environment
from engine.serve.loaded_model import prompt_ids
from engine.tiny import corpus
from engine.tiny.suite import DEFAULT_FAMILY

Row = dict[str, Any]
LENGTH = 128  # most tokens of an answer


def exam_spec(folder: Path) -> RunSpec:
    """Greedy autoregressive decoding of at most LENGTH tokens by the model in a folder."""
    return RunSpec.from_dict(
        {
            "model": str(folder), "gen_length": LENGTH, "block_length": LENGTH, "steps": LENGTH,
            "eos": "fill_safe", "unmasker": "autoregressive", "autoregressive.model": str(folder),
        }
    )  # fmt: skip


def generate_greedy(model: Guider, prompt: list[int]) -> list[int]:
    """The greedy answer of transformers to a prompt, before the first end of text."""
    with torch.inference_mode():
        ids = torch.tensor([prompt], device=model.model.device)
        out = model.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=LENGTH, do_sample=False,
            eos_token_id=list(model.stop_ids), pad_token_id=model.stop_ids[0],
        )  # fmt: skip
    answer: list[int] = out[0, len(prompt) :].tolist()
    end = next((i for i, token in enumerate(answer) if token in model.stop_ids), len(answer))
    return answer[:end]


def decode_greedy(model: Guider, spec: RunSpec, prompt: list[int]) -> list[int]:
    """The answer of this engine to a prompt, before the first end of text."""
    decoder = AutoregressiveDecoder(model, spec, prompt)
    for _ in decoder.steps():
        pass
    return list(decoder.answer().ids)


def compare_with_generate(model: Guider, spec: RunSpec, questions: Questions) -> dict[str, Any]:
    """Decode each problem here and by transformers, in turn, after a first problem untimed.

    Both get the same prompt ids and are timed by the same clock, from these ids to the answer's.
    Returns `equal`, the number of answers that are equal token for token, of `compared`, and
    `speed_up`, the median time of generate over the one of this engine.
    """
    equal, ratios = 0, []
    for index, (_, text) in enumerate([questions[0], *questions]):
        prompt = prompt_ids(RunSpec(prompt=text), model.tokenizer)
        begun = time.perf_counter()
        own = decode_greedy(model, spec, prompt)
        between = time.perf_counter()
        other = generate_greedy(model, prompt)
        ended = time.perf_counter()
        if index:
            equal += own == other
            ratios.append((ended - between) / (between - begun))
    return {"equal": equal, "compared": len(questions), "speed_up": median(ratios)}


def beside_generate(asked: Iterable[tuple[str, str]], problems: int, seed: int) -> list[Row]:
    """What `compare_with_generate` finds for pairs of an embedded model and a family, as rows."""
    rows = []
    for name, family in asked:
        folder = ASSETS / "models" / name
        model = load_guider(name, folder, torch.float32, torch.device("cpu"))
        questions = corpus.exam_questions(problems, seed, 0, family)
        found = compare_with_generate(model, exam_spec(folder), questions)
        rows.append({"model": name, "label": corpus.family_named(family).label, **found})
    return rows


def evaluate_causal(folder: Path, questions: Questions, generate: bool = False) -> dict[str, Any]:
    """The model in a folder as a row of `python -m engine evaluate`.

    `generate` adds what `compare_with_generate` finds. Raises CheckpointError naming a file, and
    ValueError naming `prompt` if one exceeds the context together with its answer.
    """
    model = load_guider(folder.name, folder, torch.float32, torch.device("cpu"))
    spec = exam_spec(folder)
    row = summarise(spec, evaluate(model, spec, questions, fit=False)) | {"name": "greedy"}
    return row | (compare_with_generate(model, spec, questions) if generate else {})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    parser = command_parser("causal-exam", __doc__, alone=True)
    parser.add_argument("--folder", type=Path, required=True, help="folder of the model")
    parser.add_argument("--problems", type=positive, default=300, help="number of problems")
    parser.add_argument("--seed", type=not_negative, default=7, help="seed of the problems")
    parser.add_argument(
        "--family", choices=tuple(corpus.families()), default=DEFAULT_FAMILY,
        help="family of the problems",
    )  # fmt: skip
    parser.add_argument(
        "--shots",
        type=not_negative,
        default=0,
        help="worked examples before each problem, as far as they fit",
    )
    parser.add_argument("--generate", action="store_true", help="compare with transformers")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        questions = corpus.exam_questions(args.problems, args.seed, args.shots, args.family)
        row = evaluate_causal(args.folder, questions, args.generate)
    except (ValueError, OSError, RuntimeError) as error:
        raise failure(error, args) from None
    row |= {"shots": args.shots, "family": args.family}
    print(
        f"{args.folder.name}, {args.family}, {corpus.example_counts(questions)}: "
        f"{percentage(row['accuracy'])} of {args.problems} correct"
    )
    if args.generate:
        print(
            f"{row['equal']} of {row['compared']} answers equal those of generate, which takes "
            f"{row['speed_up']:.2f}x the time"
        )
    if args.json:
        weights = Checkpoint(args.folder).digest()
        where = environment.describe(exam_spec(args.folder), weights)
        print(json.dumps({"environment": where, "rows": [row]}))
