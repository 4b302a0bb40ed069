"""Measure most tables of assets/results in one run on one machine.

    python -m engine tables

Reads `settings.json` there, which lists tables, their models and their rows, and writes
`results.json`, the chart of growth, and the tables and findings in assets/results/README.md and
README.md. All times are measured in this run, one thread, nothing else running. Accuracies are
kept in `accuracy.json` and computed again if files of a model, the settings or the code that
decodes has changed; --accuracy computes only these, and puts them into the tables of the last run.
--out writes all of this into another folder, the tables as tables.md, and publishes nothing. A
shorter run needs it: with --problems, or fewer --timed or --rounds than by default.

The data name machine, date, commit and versions, with --accuracy those of both runs. Uncommitted
changes of the engine, of the models or of the lists of rows are refused, because the commit would
not be what was measured.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from engine.batch.settings import NamedSpec, check_rules, named_specs
from engine.bench import growth, ratio_sweep, suite
from engine.bench.chart import svg
from engine.catalog import make_rule
from engine.config.spec import RunSpec
from engine.core.command_line import (
    command_parser,
    failure,
    make_out,
    not_negative,
    positive,
    refuse_flags,
    refuse_shorter,
)
from engine.core.control import interrupted_later
from engine.core.files import ASSETS, read_json, write_atomically
from engine.core.tables import README, RESULTS_README, check_section, percentage, update_section
from engine.evaluate import comparison, results_text
from engine.evaluate.causal_exam import beside_generate
from engine.evaluate.exam import evaluate, summarise
from engine.evaluate.kept_accuracy import ANSWERS, KeptAccuracy, folder_digest, row_key
from engine.guider.model import Guider
from engine.models.loading.checkpoint import Checkpoint
from engine.models.loading.families import embedded_models
from engine.serve import environment
from engine.serve.loaded_model import LoadedModel
from engine.serve.model_pool import ModelPool
from engine.tiny.corpus import exam_questions, family_named
from engine.unmask.methods.autoregressive import Autoregressive
from engine.unmask.methods.guided import Guided

RESULTS = ASSETS / "results"
COMMAND = "python -m engine tables"
# Of the exam; each answer has the length of the problem's own text, rounded up to a block.
LENGTHS: dict[str, Any] = {"gen_length": 64, "block_length": 32, "steps": 64}
BATCH = 20  # problems decoded together for accuracy
PACE_PROBLEMS = 10  # at most, of each family, decoded one at a time
TIMED = ROUNDS = 3  # unless flags say otherwise
OF_TIMES = ("timed", "rounds")  # flags
# What decides the results and must be committed, relative to ASSETS.
COMMITTED = ("../engine", "models", "results/settings.json", "results/speed.json")
MACHINE = ("device_name", "cores", "threads", "torch", "python", "system")


@dataclass(frozen=True)
class Block:
    """The rows of a table that share an end-of-text rule; the first is the baseline."""

    eos: str
    specs: list[NamedSpec]


@dataclass(frozen=True)
class Table:
    """A table of settings.json: a model, its exam and its blocks.

    `families` are the families of the exam with their numbers of problems, `shots` the worked
    examples before each problem. A `timed` table is timed on problems of its first family.
    """

    name: str
    model: str
    families: dict[str, int]
    shots: int
    timed: bool
    blocks: list[Block]


def read_settings(path: Path) -> list[Table]:
    """The tables of a settings file; ValueError names the file, or the row and the field."""
    tables = []
    for table in json.loads(path.read_text("utf-8")):
        base = RunSpec(model=table["model"], **LENGTHS)
        for family in table["families"]:
            family_named(family)
        blocks = []
        for block in table["blocks"]:
            rows = [row | {"eos": block["eos"]} for row in block["rows"]]
            specs = check_rules(named_specs(rows, base, path))
            if specs[0].spec.eos != block["eos"]:
                raise ValueError(f"{path}: {table['name']}: a row cannot end by {block['eos']}")
            blocks.append(Block(block["eos"], specs))
        names = ("name", "model", "families", "shots", "timed")
        tables.append(Table(**{name: table[name] for name in names}, blocks=blocks))
    return tables


def run_environment(commit: str) -> dict[str, Any]:
    """Machine, versions, date and commit of a measurement."""
    found = environment.describe(RunSpec(), "")
    today = datetime.now(UTC).date().isoformat()
    return {name: found[name] for name in MACHINE} | {"date": today, "commit": commit}


def evaluate_block(
    table: Table, block: Block, kept: KeptAccuracy, seed: int, most: int | None, workers: int
) -> list[dict[str, Any]]:
    """The rows of a block by family: kept ones, and new ones that are kept from now on.

    `most` is the highest number of problems of a family; None for those of the table.
    """
    return comparison.by_family(
        {
            family: _evaluate_family(
                table, block, kept, workers, problems=min(count, most or count), seed=seed,
                shots=table.shots, family=family,
            )
            for family, count in table.families.items()
        }
    )  # fmt: skip


def _evaluate_family(
    table: Table, block: Block, kept: KeptAccuracy, workers: int, **exam: Any
) -> list[dict[str, Any]]:
    """The accuracy rows of a block in one family; `exam` as exam_questions takes it."""
    baseline = block.specs[0].spec
    keys = {one.name: row_key(one.spec, baseline, _digests(one.spec), exam) for one in block.specs}
    first, before = block.specs[0], kept.get(keys[block.specs[0].name])
    missing = [one for one in block.specs if kept.get(keys[one.name]) is None]

    def evaluate_anew(wanted: Sequence[NamedSpec]) -> None:
        questions = exam_questions(**exam)
        for row in comparison.compare(load_embedded, wanted, questions, BATCH, workers):
            kept.put(keys[row["name"]], row)
            where = f"{table.name}, {block.eos}, {exam['family']}"
            print(f"{where}: {row['name']}: {percentage(row['accuracy'])}", flush=True)

    if missing:
        evaluate_anew(missing if missing[0] is first else [first, *missing])
        now = kept.get(keys[first.name])
        if before and now and any(before[name] != now[name] for name in ANSWERS):
            # Another machine rounds in another way: the other rows were paired with other answers.
            evaluate_anew(block.specs)
    return [{**(kept.get(keys[one.name]) or {}), "name": one.name} for one in block.specs]


def load_embedded(spec: RunSpec) -> LoadedModel | Guider:
    """The embedded model that decodes a spec, loaded anew."""
    return ModelPool(embedded_models(ASSETS)).load_to_run(spec)


def _digests(spec: RunSpec) -> dict[str, str]:
    """The digests of the models that a spec uses, by name."""
    names, rule = [spec.model], make_rule(spec)
    if isinstance(rule, Guided):
        names.append(rule.guider)
    if isinstance(rule, Autoregressive):
        names.append(rule.model)
    return {name: folder_digest(ASSETS / "models" / name) for name in names}


def _checkpoint(table: Table) -> str:
    """The digest of a table's model."""
    return Checkpoint(ASSETS / "models" / table.model).digest()


def time_block(block: Block, family: str, prompts: int, seed: int) -> dict[str, Any]:
    """The times of a block's rows by name, on problems of a family after worked examples."""
    pool = ModelPool(embedded_models(ASSETS))
    questions = exam_questions(prompts, seed, comparison.TIMED_SHOTS, family)
    return comparison.time_prompts(pool.load_to_run, block.specs, questions)


def measure_pace(tables: Sequence[Table], seed: int, problems: int) -> list[dict[str, Any]]:
    """Text and forwards of threshold 0.9 on some problems of each family, by model.

    The problems are decoded one at a time, so that forwards are their own. `tokens` of the
    `positions` of a mean answer are text, complete after `text_nfe` of its `nfe` forwards.
    """
    families: dict[str, dict[str, int]] = {}
    plain: dict[str, RunSpec] = {}  # by model, the first row of its first table
    for table in tables:
        families.setdefault(table.model, {}).update(table.families)
        plain.setdefault(table.model, table.blocks[0].specs[0].spec)
    rows = []
    for model, named in families.items():
        spec = replace(plain[model], unmasker="threshold")
        loaded = load_embedded(spec)
        for family in named:
            questions = exam_questions(problems, seed, 0, family)
            found = summarise(spec, evaluate(loaded, spec, questions))
            row = {"model": model, "family": family, "label": family_named(family).label}
            kept = ("problems", "tokens", "positions", "nfe", "text_nfe")
            rows.append(row | {name: found[name] for name in kept})
            pace = found["tokens"] / found["text_nfe"]
            print(f"{model}, {family}: {pace:.2f} text tokens a forward", flush=True)
    return rows


def causal_models(tables: Sequence[Table]) -> list[tuple[str, str]]:
    """The models that rows decode with autoregressively, each with the first family of a table."""
    found: dict[str, str] = {}
    for table in tables:
        for one in (one for block in table.blocks for one in block.specs):
            rule = make_rule(one.spec)
            if isinstance(rule, Autoregressive):
                found.setdefault(rule.model, next(iter(table.families)))
    return list(found.items())


def measure(
    tables: Sequence[Table], accuracies: Sequence[Any], args: Any, command: str, commit: str
) -> dict[str, Any]:
    """Measure all times; returns the document of results.json, which names the `command`."""
    few = min(PACE_PROBLEMS, args.problems or PACE_PROBLEMS)
    document: dict[str, Any] = {
        "environment": run_environment(commit), "command": command, "seed": args.seed,
        "pace": measure_pace(tables, args.seed, few), "tables": [],
    }  # fmt: skip
    for table, of_table in zip(tables, accuracies, strict=True):
        blocks = []
        for block, rows in zip(table.blocks, of_table, strict=True):
            family = next(iter(table.families))
            speed = time_block(block, family, args.timed, args.seed) if table.timed else {}
            timed = [row | {"speed": speed.get(row["name"])} for row in rows]
            where = run_environment(commit)
            blocks.append({"eos": block.eos, "environment": where, "rows": timed})
            print(comparison.markdown(timed), flush=True)
        document["tables"].append(
            {"name": table.name, "model": table.model, "checkpoint": _checkpoint(table)}
            | {"shots": table.shots, "blocks": blocks}
        )
    cases = list(suite.cpu_suite("cpu"))
    rows, _ = suite.run_cases(cases, args.rounds)
    works = {
        "speed": {"rounds": args.rounds, "rows": rows},
        "growth": {"rounds": args.rounds, "rows": growth.measure_growth("cpu", args.rounds)},
        "sweep": ratio_sweep.measure(args.rounds),
        "generate": {"rows": beside_generate(causal_models(tables), few, args.seed)},
    }
    where = run_environment(commit)
    return document | {name: found | {"environment": where} for name, found in works.items()}


def with_accuracies(
    document: Mapping[str, Any], accuracies: Sequence[Any], where: Mapping[str, Any]
) -> dict[str, Any]:
    """The results of a run with other accuracies of its tables, computed `where`; times stay."""
    found = []
    for saved, of_table in zip(document["tables"], accuracies, strict=True):
        blocks = [
            block | {"rows": [a | b for a, b in zip(block["rows"], rows, strict=True)]}
            for block, rows in zip(saved["blocks"], of_table, strict=True)
        ]
        found.append(saved | {"blocks": blocks})
    return {**document, "tables": found, "accuracy": dict(where)}


def check_tables(document: Mapping[str, Any], tables: Sequence[Table]) -> None:
    """Raise ValueError if results are of other tables, rows, specs or checkpoints than `tables`."""
    saved = [
        (one["name"], one["checkpoint"], one["shots"], [
            [NamedSpec(row["name"], RunSpec.from_dict(row["spec"])) for row in block["rows"]]
            for block in one["blocks"]
        ])
        for one in document["tables"]
    ]  # fmt: skip
    wanted = [
        (one.name, _checkpoint(one), one.shots, [block.specs for block in one.blocks])
        for one in tables
    ]
    if saved != wanted:
        raise ValueError(
            "--accuracy: the tables of results.json are not those of settings.json with these "
            "checkpoints; leave --accuracy out to measure all anew"
        )


@interrupted_later()
def write(document: Mapping[str, Any], folder: Path) -> None:
    """Write results.json, the chart, and the sections of both Markdown files or tables.md."""
    results_text.check_one_environment(document)
    write_atomically(folder / "results.json", (json.dumps(document) + "\n").encode())
    chart = svg(growth.panels(document["growth"]["rows"]), "ms a forward")
    write_atomically(folder / "growth.svg", chart.encode())
    sections = results_text.sections(document)
    if not _is_published(folder):
        write_atomically(folder / "tables.md", "\n".join(sections.values()).encode())
        return
    for name, text in sections.items():
        update_section(RESULTS_README, text, name)
    update_section(README, results_text.measured(document), "measured")


def clean_commit() -> str:
    """The commit of the repository; ValueError if engine, models or lists of rows differ."""

    def git(*words: str) -> str:
        try:
            done = subprocess.run(["git", *words], cwd=ASSETS, capture_output=True, text=True)
        except OSError as error:
            raise ValueError(f"commit: git cannot be run ({error}); install it") from None
        if done.returncode:
            raise ValueError(f"commit: {done.stderr.strip()}; run this in a clone")
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", *COMMITTED)
    if changed:
        raise ValueError(f"commit: uncommitted changes, commit them first:\n{changed}")
    return git("rev-parse", "HEAD")


def _is_published(folder: Path) -> bool:
    return folder.resolve() == RESULTS.resolve()


def _saved(folder: Path, seed: int, tables: Sequence[Table]) -> dict[str, Any]:
    """The results of the last run.

    Raises ValueError if there are none, or if they are of other tables or of another seed.
    """
    path, anew = folder / "results.json", "leave --accuracy out to measure all anew"
    if not path.exists():
        raise ValueError(f"--accuracy: {path}, which has the times, is not there; {anew}")
    found: dict[str, Any] = read_json(path, "--accuracy")
    if found.get("seed", seed) != seed:
        raise ValueError(
            f"--seed: results.json has the times of seed {found['seed']}; give that one, or {anew}"
        )
    check_tables(found, tables)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    parser = command_parser("tables", __doc__, alone=True)
    parser.add_argument("--problems", type=positive, help="most of a family; needs --out")
    parser.add_argument("--seed", type=not_negative, default=7, help="seed of the problems")
    parser.add_argument("--timed", type=positive, default=TIMED, help="long prompts timed a row")
    parser.add_argument("--rounds", type=positive, default=ROUNDS, help="of the speed tables")
    parser.add_argument("--workers", type=positive, default=2, help="processes for accuracy")
    parser.add_argument("--accuracy", action="store_true", help="measure no times")
    parser.add_argument("--out", type=Path, help="folder; by default that of the published results")
    given = list(sys.argv[1:] if arguments is None else arguments)
    args = parser.parse_args(given)
    if args.accuracy:
        left_out = "leave it out with --accuracy, which"
        refuse_flags(parser, args, OF_TIMES, f"{left_out} measures no times")
        refuse_flags(parser, args, ["problems"], f"{left_out} computes the whole exam")
    folder = args.out or RESULTS
    if _is_published(folder):
        refuse_shorter(parser, args, ("problems", *OF_TIMES), "give another folder with --out")
    command = f"{COMMAND} {shlex.join(given)}".strip()
    torch.set_num_threads(1)
    try:
        # All errors before hours of work.
        commit, tables = clean_commit(), read_settings(RESULTS / "settings.json")
        saved = _saved(folder, args.seed, tables) if args.accuracy else {}
        make_out(args.out)
        if _is_published(folder):  # in the current folder
            check_section(RESULTS_README, "tables")
            check_section(README, "measured")
        kept = KeptAccuracy(folder / "accuracy.json")
        accuracies = []
        for table in tables:
            work = (kept, args.seed, args.problems, args.workers)
            accuracies.append([evaluate_block(table, block, *work) for block in table.blocks])
        if args.problems is None:  # a shorter exam has other keys, and drops no row of the whole
            kept.drop_unused()
        if args.accuracy:
            where = run_environment(commit) | {"command": command}
            write(with_accuracies(saved, accuracies, where), folder)
        else:
            write(measure(tables, accuracies, args, command, commit), folder)
    except (ValueError, OSError) as error:
        raise failure(error, args) from None
