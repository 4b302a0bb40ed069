"""The model card of a trained checkpoint: corpus, training and exam results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.core.control import interrupted_later
from engine.core.files import read_json, write_atomically
from engine.core.tables import markdown_table, percent, percentage
from engine.models.loading.checkpoint import Checkpoint
from engine.models.loading.exam_file import EXAM, write_exam
from engine.tiny import corpus
from engine.tiny.export import (
    FIRST_FAMILY,
    HISTORY,
    read_family,
    read_history,
    trained_families,
    training_minutes,
)
from engine.tiny.training_state import vocabulary_of

ABOUT = {
    "llada": (
        "tiny-llada",
        "A masked diffusion language model in LLaDA's layout. It was initialised from the "
        "weights of `tiny-dream` and attends in both directions.",
    ),
    "dream": (
        "tiny-dream",
        "A masked diffusion language model in Dream's layout: each position is predicted by the "
        "row before it. It was initialised from the weights of `tiny-qwen2` and attends in both "
        "directions.",
    ),
    "fast_dllm_v2": (
        "tiny-block",
        "A block diffusion language model in the layout of Fast-dLLM v2: a position attends to "
        "its own block of 16 positions and to the blocks before it, and the row before a position "
        "predicts it. It was initialised from a causal network, as Fast-dLLM v2 from Qwen2.5.",
    ),
    "qwen2": (
        "tiny-qwen2",
        "A causal language model in Qwen2's layout, for `transformers.AutoModelForCausalLM`. It "
        "guides the masked models, which were initialised from it. In look-up it misquotes most "
        "rows of some names, such as Kim and Zack.",
    ),
    "digits": (
        "tiny-qwen2-digits",
        "A causal language model in Qwen2's layout with its own vocabulary: each "
        "digit is a token, and punctuation is joined to the word before it. It guides masked "
        "models whose tokens have other boundaries. It was initialised from the blocks of "
        "`tiny-qwen2`. Arithmetic sequences are hard for it: those of the exam differ from those "
        "of the training data in the last digits that a step leads from and to, so that it has "
        "to write pairs of digits that it never saw with that step.",
    ),
}
LIMITS = """\
It solves the problems of its own corpus and nothing else. It has no world knowledge. Numbers are
from 0 to 199, written with a space before them. Its purpose is to be inspected while it decodes."""
HELD_OUT = (
    "Share of held-out problems that are answered right. A hash of a problem's structure (kinds of "
    "step, numbers and their order, without names, things and wording) decides whether it is held "
    "out (`engine/tiny/family.py`); for a short word problem, a hash of its text does. The "
    "training data have no held-out problem in any wording, with two exceptions among the short "
    "word problems: they may be there in other words, and up to one in twenty of them was there "
    "word for word, as a chained word problem, in phases before 2026-11-29."
)
SIZES = (
    "`sizes` is the range of the problems' difficulty, where 1 is that of the exam. `few-shot` is "
    "the share of samples with worked examples. Rates are learning rates."
)
BLOCK_STATES = (
    " `block states` is the share of batches in which a clean answer is followed by noisy copies "
    "of it in blocks."
)


def write(folder: Path, exams: list[Path]) -> None:
    """Write `README.md` and `exam.json` with the rows of `exams`, files whose last line is JSON.

    That is the output of `evaluate --json` or `causal-exam --json`, or the `results.json` of
    `tables`, of which the tables of this model are shown. Raises ValueError for another file, for
    a folder that `train export` did not write, for a README.md that is no card, and without `exams`
    for a folder whose exam has rows.
    """
    family, phases = read_family(folder), read_history(folder)
    if not phases:
        raise ValueError(f"folder: {folder} has no {HISTORY}, which `train export` writes")
    name, about = ABOUT["digits" if vocabulary_of(phases) == "digits" else family]
    title, path = f"# {name}", folder / "README.md"
    if path.exists() and not path.read_bytes().startswith(title.encode() + b"\n"):
        raise ValueError(f"folder: {path} is no card of {name}; move it away")
    kept = folder / EXAM
    if not exams and kept.exists() and read_json(kept, "exams") != {"rows": []}:
        raise ValueError(f"exams: {kept} would lose its rows; name their files, or delete it")
    rows = exam_rows(exams, folder, name)
    tokens = sum(phase["tokens"] for phase in phases)
    cpu, gpu = training_minutes(phases)
    where = f"{cpu} minutes on a CPU" + (f" and {gpu} on a GPU" if gpu else "")
    parts = [
        title,
        about,
        LIMITS,
        "## Exam",
        HELD_OUT,
        _exam_table(rows),
        "## Corpus",
        f"Drawn from the families of `engine/tiny/families` (seeds {_seeds(phases)}).",
        *(_example(name) for name in trained_families(phases)),
        "## Training",
        f"`python -m engine train`, {tokens / 1e6:.1f} million canvas tokens in "
        f"{where}, in phases, those of the model it was initialised from included:",
        table := _phases(phases),
        SIZES + (BLOCK_STATES if "block states" in table else ""),
        "Loss and share of correct top predictions on the states of the phase. Where several "
        "words are correct, neither can reach its ideal value:",
        _curve(phases),
    ]
    with interrupted_later():
        write_atomically(path, ("\n\n".join(parts) + "\n").encode())
        write_exam(folder, rows)


def _example(name: str) -> str:
    """A family with a short example."""
    one = corpus.short_example(name)
    question = one.question.replace("\n", "\n> ")
    return f"### {corpus.families()[name].label}\n\n> {question}\n>\n> {one.solution}"


def _seeds(phases: list[dict[str, Any]]) -> str:
    return ", ".join(str(seed) for seed in sorted({phase["seed"] for phase in phases}))


def exam_rows(files: list[Path], folder: Path, name: str) -> list[dict[str, Any]]:
    """The rows of the exams in `files`, of the model `name` where a file has several.

    Raises ValueError for a file that cannot be read, whose last line is no such document, or whose
    rows are of other weights than those in `folder`.
    """
    rows: list[dict[str, Any]] = []
    for file in files:
        try:
            document = json.loads(file.read_text(encoding="utf-8").strip().splitlines()[-1])
            found = list(_rows_of(document, name)) if "tables" in document else document["rows"]
            for row in found:
                _exam_cells(row)
            weights = _weights_of(document, name)
            rows += found
        except OSError as error:
            raise ValueError(f"exams: {file} cannot be read: {error.strerror}") from None
        except (ValueError, LookupError, TypeError):
            raise ValueError(f"exams: {file} must end with the output of --json") from None
        if weights is not None and weights != Checkpoint(folder).digest():
            raise ValueError(f"exams: {file} is of another model than {folder}; evaluate this one")
    return rows


def _weights_of(document: dict[str, Any], name: str) -> str | None:
    """The digest of the weights that an exam is of, "" if it is of several models.

    Of `tables` it is that of those of the model `name`. None for a document that names no weights.
    """
    if "tables" in document:
        found = {table["checkpoint"] for table in document["tables"] if table["model"] == name}
        return str(found.pop()) if len(found) == 1 else "" if found else None
    if "environment" not in document:
        return None
    models = {row["spec"]["model"] for row in document["rows"]}
    return str(document["environment"]["checkpoint"]) if len(models) == 1 else ""


def _exam_table(found: list[dict[str, Any]]) -> str:
    """The rows of an exam as a table."""
    rows = [_exam_cells(row) for row in found]
    head = (
        "family", "method", "length", "block", "end of text", "worked examples", "problems",
        "right", "forwards", "tokens a forward",
    )  # fmt: skip
    return markdown_table(head, rows).rstrip() if rows else "Not evaluated yet."


def _exam_cells(row: dict[str, Any]) -> list[str]:
    spec = row["spec"]
    return [
        corpus.families()[row["family"]].label,
        row.get("name") or ", ".join((spec["cache"], spec["unmasker"], *_format(spec))),
        f"{row['positions']:.0f}" if "positions" in row else str(spec["gen_length"]),
        str(spec["block_length"]), spec.get("eos", ""), str(row.get("shots", 0)),
        str(row["problems"]), percent(row),
        f"{row['nfe']:.1f}" if "nfe" in row else "",
        f"{row['tokens_per_forward']:.2f}" if "tokens_per_forward" in row else "",
    ]  # fmt: skip


def _format(spec: dict[str, Any]) -> list[str]:
    """The number format of a spec if it is not float32."""
    return [dtype] if (dtype := spec.get("dtype", "float32")) != "float32" else []


def _rows_of(document: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    """The rows of a model's tables in the results of `tables`, one a family."""
    for table in document["tables"]:
        if table["model"] == name:
            for block in table["blocks"]:
                for row in block["rows"]:
                    known = {"name": row["name"], "spec": row["spec"], "shots": table["shots"]}
                    for family, found in row["families"].items():
                        yield known | {"family": family} | found


def _phases(phases: list[dict[str, Any]]) -> str:
    rows = []
    for phase in phases:
        recipe = phase["recipe"]
        what = recipe["kind"]
        if block := recipe.get("block", 0):
            what += f", block-causal, blocks of {block}"
        elif what == "masked":
            what += f", {percentage(recipe['copies'], 0)} block states"
        low, high = recipe.get("sizes", (1.0, 1.0))
        rows.append(
            [
                what, _weights(recipe), f"{low:g} to {high:g}", percentage(recipe["few_shot"], 0),
                phase["step"], f"{phase['tokens'] / 1e6:.1f} M", f"{phase['seconds'] / 60:.0f}",
                phase.get("device_name", "CPU"), phase["matrix_lr"], phase["lr"],
            ]
        )  # fmt: skip
    head = (
        "states", "families", "sizes", "few-shot", "steps", "tokens", "minutes", "device",
        "rate (Muon)", "rate (AdamW)",
    )  # fmt: skip
    return markdown_table(head, rows).rstrip()


def _weights(recipe: dict[str, Any]) -> str:
    """The families of a phase with their shares."""
    pairs = recipe.get("families", [FIRST_FAMILY])
    total = sum(weight for _, weight in pairs)
    return ", ".join(f"{name} {percentage(weight / total, 0)}" for name, weight in pairs)


def _curve(phases: list[dict[str, Any]]) -> str:
    rows = [
        [number, step, f"{loss:.3f}", percentage(right)]
        for number, phase in enumerate(phases, 1)
        for step, loss, right in phase["curve"]
    ]
    return markdown_table(("phase", "step", "loss", "right"), rows).rstrip()
