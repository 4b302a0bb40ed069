"""Run many prompts under several settings and compare each setting with the first.

    python -m engine batch --prompts prompts.jsonl --specs settings.json --out results
    python -m engine batch --prompts questions.txt --cache dual --out results
    python -m engine batch --family short_problems --problems 50 --shots 8 --cache spa_cache

--prompts reads a JSON object with "prompt" and optionally "answer" from each line of a .jsonl file,
and a prompt from each line of any other. --specs reads a JSON list of {"name", fields of a spec}
over the settings of the flags; without it, plain decoding is compared with the settings of the
flags. All settings have the same end-of-text rule; prompts and recorder are those of the flags.

--out keeps every run in runs.jsonl as it ends. The same command continues from there after an
interruption: only runs of other settings, prompts, checkpoints, machines or versions of torch or of
the code that decodes are run again. Control-C stops after a step and shows what there is.
results.json has the figures of each setting and each prompt, table.md those of each setting.
--estimate runs the first prompt only, says how long the others will take, and leaves results.json
and table.md as they are. The exit status is 1 if every run failed.

--record makes every run again with the recorder on, which is not timed, and adds it to the
aggregates of its setting: drift, similarity and error by layer with their spread over the runs,
accepted lengths. They are "aggregates" of results.json; recordings/ keeps them for a continuation.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine.batch.flags import (
    add_prompt_flags,
    add_spec_flags,
    check_prompt_flags,
    check_recording_flags,
    prompts_from_flags,
    spec_from_flags,
)
from engine.batch.journal import Journal
from engine.batch.recordings import Recordings
from engine.batch.results import BatchResults
from engine.batch.runner import Finished, batch_events, check_size
from engine.batch.settings import PLAIN, NamedSpec, batch_settings, plain_decoding, read_specs
from engine.core.command_line import command_parser, failure, make_out, thread_count
from engine.core.control import STOPPED, Control, stopped_by_interrupt
from engine.core.files import ASSETS, write_atomically
from engine.core.tables import markdown_table, percentage
from engine.models.loading.families import named_checkpoints
from engine.serve.session import Session

HEAD = (
    "setting", "runs", "same tokens", "95 %", "same answer", "right", "p", "forwards",
    "to text end", "recomputed", "ms", "a run", "its text", "tokens/s",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    parser = _parser()
    args = parser.parse_args(arguments)
    check_prompt_flags(parser, args)
    check_recording_flags(parser, args)
    folders, args.model = named_checkpoints(args.model, ASSETS)
    torch.set_num_threads(args.threads)
    try:
        recordings = _recordings(args)
        settings, prompts = _settings(args), prompts_from_flags(args)
        check_size(settings, prompts)
        make_out(args.out)
        results = BatchResults(settings, prompts)
        first = 1 if args.estimate else None
        finished, stopped = _run(Session(folders), results, args.out, recordings, first)
        done = _show(results, finished, None if args.estimate else args.out, recordings)
    except (ValueError, OSError) as error:
        raise failure(error, args) from None
    cut = stopped and recordings is not None  # perhaps within a recording
    if cut or finished < (first or len(prompts)) * len(settings):
        raise SystemExit(STOPPED)
    if not done:
        raise SystemExit(1)


def _recordings(args: argparse.Namespace) -> Recordings | None:
    """The aggregates that `--record` asks for; the timed runs are then not recorded."""
    level, args.record = args.record or "off", None
    return None if level == "off" else Recordings(level, args.out and args.out / "recordings")


def _settings(args: argparse.Namespace) -> list[NamedSpec]:
    """The settings of the flags, all with one end-of-text rule."""
    base = spec_from_flags(args)
    if args.specs:
        named = read_specs(args.specs, base)
        for one in named:
            _check_row(one)
    else:
        plain = plain_decoding(base)
        given = NamedSpec(f"{base.cache}, {base.unmasker}", base)
        named = [NamedSpec(PLAIN, plain), *([given] if base != plain else [])]
    return batch_settings(named)


def _check_row(one: NamedSpec) -> None:
    """Raise ValueError naming the field of a row of `--specs` that flags decide for all rows."""
    if one.spec.prompt:
        raise ValueError(
            f"specs: {one.name}: prompt: those of --prompts or --family are run; leave it out"
        )
    if one.spec.record != "off":
        raise ValueError(
            f"specs: {one.name}: record: leave it out; --record records runs of their own"
        )


def _run(
    session: Session,
    results: BatchResults,
    out: Path | None,
    recordings: Recordings | None,
    first: int | None,
) -> tuple[int, bool]:
    """Run the batch with progress on standard error.

    Returns how many runs are over, and whether the batch was stopped.
    """
    control, done = Control(), 0
    journal = Journal(out and out / "runs.jsonl")
    with stopped_by_interrupt(control):
        for one in batch_events(
            partial(session.run, control=control), results.settings, results.prompts, journal,
            session.environment, control, recordings, first,
        ):  # fmt: skip
            if isinstance(one, Finished):
                results.add(one.setting, one.prompt, one.outcome)
                done = one.done
                print(_progress(one), end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return done, control.state == "stopped"


def _progress(one: Finished) -> str:
    left = "" if one.seconds_left is None else f", about {one.seconds_left:.0f} s left"
    return f"\r{one.done} of {one.total} runs{left}      "


def _show(
    results: BatchResults, finished: int, out: Path | None, recordings: Recordings | None
) -> int:
    """Print the table; write it and the results, if there is a folder.

    Returns how many runs are done.
    """
    rows, total = results.summary(), len(results.settings) * len(results.prompts)
    text = markdown_table(HEAD, map(_cells, rows))
    if finished < total:
        text += f"\n{finished} of {total} runs; the others were not made.\n"
    prompts = results.table()
    runs = [run for row in prompts for run in row["runs"] if run is not None]
    if failed := [run["message"] for run in runs if run["reason"] != "done"]:
        text += f"\nRuns that failed: {len(failed)}; the first one: {failed[0]}\n"
    found = recordings and recordings.to_dict([row["name"] for row in rows])
    for row in found["settings"] if found else ():
        text += f"\n{row['name']}: {row['runs']} runs in the aggregates"
        text += f" ({row['problem']}).\n" if row["problem"] else ".\n"
    print(text, end="")
    if out:
        document = {"finished": finished, "total": total, "settings": rows}
        document |= {"prompts": prompts} | ({"aggregates": found} if found else {})
        write_atomically(out / "results.json", (json.dumps(document) + "\n").encode())
        write_atomically(out / "table.md", text.encode())
    return len(runs) - len(failed)


def _cells(row: dict[str, Any]) -> list[str]:
    """The cells of a setting; empty where there is no figure."""
    interval = row["interval"]

    def cell(name: str, form: str) -> str:
        return "" if row[name] is None else format(row[name], form)

    def share(name: str) -> str:
        return "" if row[name] is None else percentage(row[name])

    return [
        row["name"], str(row["runs"]), share("agreement"),
        "" if interval is None else " to ".join(map(percentage, interval)),
        share("same_answer"),
        f"{row['right']} of {row['known']}" if row["known"] else "", cell("p", ".2g"),
        cell("forwards", ".1f"), cell("text_forwards", ".1f"), share("recomputed"),
        cell("ms", ".0f"), cell("speed_up", ".2f"), cell("text_speed_up", ".2f"),
        cell("tokens_per_s", ".0f"),
    ]  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("batch", __doc__, alone=True)
    add_prompt_flags(parser, problems=20)
    parser.add_argument("--specs", type=Path, help="JSON file of settings to compare")
    parser.add_argument("--estimate", action="store_true", help="run the first prompt only")
    parser.add_argument("--threads", type=thread_count, default=1, help="torch threads")
    parser.add_argument("--out", type=Path, help="folder for runs, results and table")
    add_spec_flags(parser)
    return parser


if __name__ == "__main__":
    main()
