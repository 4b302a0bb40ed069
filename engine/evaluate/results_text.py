"""Markdown of the results: tables, and sentences that are computed from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.bench import growth, report
from engine.core.tables import (
    DAGGER_NOTE,
    SIGNIFICANT,
    family_in_words,
    markdown_table,
    marked,
    measured_on,
    percent,
    percentage,
    problem_counts,
)
from engine.evaluate.comparison import TIMED_LENGTH, TIMED_SHOTS, markdown

Row = Mapping[str, Any]
SPEED_UPS = ("speed-up of a step", "of a run", "of its text")
# Rows of the small table in README.md, by end-of-text rule.
MEASURED = {
    "official": (
        "plain decoding", "threshold 0.9", "dual cache", "dual cache, threshold 0.9",
        "dLLM-Cache 25/5/0.25", "dLLM-Cache 100/20/0", "SPA-Cache, threshold 0.9",
    ),
    "fill_safe": (
        "plain decoding", "dual cache, threshold 0.9", "guided", "FreeCache and guided",
    ),
}  # fmt: skip


def sections(document: Row) -> dict[str, str]:
    """The generated sections of assets/results/README.md by name."""
    return {
        "conditions": f"{conditions(document)}\n",
        "tables": "\n".join(_table(table) for table in document["tables"]),
        "pace": pace(document["pace"]),
        "findings": "".join(f"- {text}\n" for text in findings(document)),
        "speed": f"{report.table(document['speed']['rows'])}\n{_rounds(document['speed'])}\n",
        "growth": _growth(document["growth"]["rows"]),
        "generate": beside_generate(document["generate"]["rows"]),
        "recording": f"{recording(document['speed']['rows'])}\n",
        "routines": f"{routines(document['speed']['rows'])}\n",
    }


def check_one_environment(document: Row) -> None:
    """Raise ValueError if parts of the results were measured in different environments.

    The day may change during a run.
    """
    first = document["environment"]
    for name, part in _timed_parts(document):
        for key, value in first.items():
            if key != "date" and part["environment"].get(key) != value:
                raise ValueError(
                    f"results: {name} was measured with another {key} "
                    f"({part['environment'].get(key)!r}, not {value!r}); measure all in one run"
                )


def _timed_parts(document: Row) -> Iterator[tuple[str, Row]]:
    """The parts of the results that hold times, with their names."""
    for table in document["tables"]:
        for block in table["blocks"]:
            if any(row["speed"] for row in block["rows"]):
                yield f"{table['name']}, {block['eos']}", block
    for name in ("speed", "growth", "sweep", "generate"):
        yield name, document[name]


def conditions(document: Row) -> str:
    """Command, machine, date, commit and versions of the run, and those of later accuracies."""
    where, later = document["environment"], document.get("accuracy")
    measured = f"`{document['command']}` measured all of these{' but the accuracies' * bool(later)}"
    text = f"{measured} {_conditions(where)}"
    if not later:
        return text
    return f"{text} `{later['command']}` computed the accuracies {_conditions(later)}"


def _conditions(where: Row) -> str:
    return (
        f"on {where['date']} at commit `{where['commit'][:12]}`: {where['device_name']}, "
        f"{where['cores']} cores of which {where['threads']} was used, {where['system']}, Python "
        f"{where['python']}, torch {where['torch']}."
    )


def _table(table: Row) -> str:
    parts = [f"### {table['name']}\n"]
    for block in table["blocks"]:
        parts.append(f"End of text: `{block['eos']}`.\n\n{markdown(block['rows'])}")
    timed = [row for block in table["blocks"] for row in block["rows"] if row["speed"]]
    counts = problem_counts(table["blocks"][0]["rows"][0])
    note = (
        f"Share of held-out problems that are answered right, {counts}, the same for "
        f"every row, {table['shots']} worked examples before each. {DAGGER_NOTE} Checkpoint "
        f"`{table['checkpoint'][:12]}`."
    )
    if timed:
        note += (
            f" From `forwards` on: {family_in_words(next(iter(timed[0]['families'].values())))} "
            f"after {TIMED_SHOTS} worked examples, answers of {TIMED_LENGTH} positions, "
            f"{timed[0]['speed']['prompts']} prompts, one at a time; medians, "
            "ratios to the first row of the group, measured side by side."
        )
    return "\n".join([*parts, note]) + "\n"


def findings(document: Row) -> list[str]:
    """Sentences about the first table, each computed from its rows."""
    table = document["tables"][0]
    blocks = _rows_by_rule(table)
    lines = [_significance(table["name"], rule, rows) for rule, rows in blocks.items()]
    lines += [
        _tokens_per_forward(blocks["official"]),
        _slow_steps(table["name"], blocks["official"]),
    ]
    lines += [_padding(blocks["official"]), _early_stopping(blocks)]
    for other in document["tables"][1:]:
        of_rule = _rows_by_rule(other).items()
        lines += [_significance(other["name"], rule, rows) for rule, rows in of_rule]
    return lines


def _rows_by_rule(table: Row) -> dict[str, list[Row]]:
    """The rows of a table's blocks by end-of-text rule."""
    return {block["eos"]: block["rows"] for block in table["blocks"]}


def _significance(name: str, rule: str, rows: Sequence[Row]) -> str:
    """Which rows differ significantly from the first, in which family and by how many points."""
    first, *others = rows
    solved = ", ".join(
        f"{percent(one)} of {family_in_words(one)}" for one in first["families"].values()
    )
    head = f"On {name} (`{rule}`), {first['name']} solves {solved}."
    worse, better, same = [], [], 0
    for row in others:
        changes = list(_changes(first, row))
        worse += [text for points, text in changes if points < 0]
        better += [text for points, text in changes if points > 0]
        same += not changes
    if not worse + better:
        compared = f"any of the {len(others)} other rows" if len(others) > 1 else others[0]["name"]
        return f"{head} No significant difference (p < {SIGNIFICANT}) from it in {compared}."
    parts = [head]
    if worse:
        parts.append(
            f"Significantly less accurate (p < {SIGNIFICANT}), by points: {', '.join(worse)}."
        )
    if better:
        parts.append(f"Significantly more accurate, by points: {', '.join(better)}.")
    if same:
        others_do = "row does" if same == 1 else f"{same} rows do"
        parts.append(f"The other {others_do} not differ significantly.")
    return " ".join(parts)


def _changes(first: Row, row: Row) -> Iterator[tuple[float, str]]:
    """Points and words of the significant differences of a row from the first one, by family."""
    several = len(row["families"]) > 1
    for family, found in row["families"].items():
        if found["p"] < SIGNIFICANT:
            points = 100 * (found["accuracy"] - first["families"][family]["accuracy"])
            where = f" in {family_in_words(found)}" if several else ""
            yield points, f"{row['name']}{where} ({points:+.1f})"


def _tokens_per_forward(rows: Sequence[Row]) -> str:
    plain, speed = rows[0]["speed"], _named(rows, "threshold 0.9")["speed"]
    return (
        f"On the timed task threshold 0.9 commits {TIMED_LENGTH / speed['nfe']:.1f} positions a "
        f"forward. Its text is complete after {speed['text_nfe']:.0f} forwards, that of plain "
        f"decoding after {plain['text_nfe']:.0f}."
    )


def _slow_steps(name: str, rows: Sequence[Row]) -> str:
    slow = [row for row in rows[1:] if row["speed"] and round(row["speed"]["step_ratio"], 2) < 1]
    if not slow:
        return f"On {name} (`official`), no method makes a step slower than one of plain decoding."
    named = ", ".join(f"{row['name']} ({row['speed']['step_ratio']:.2f}x)" for row in slow)
    return f"On {name} (`official`), these rows have slower steps than plain decoding: {named}."


def _padding(rows: Sequence[Row]) -> str:
    """How far the speed-up of a run is that of its text."""
    speed = _named(rows, "dual cache, threshold 0.9")["speed"]
    plain = rows[0]["families"].values()
    share = sum(one["tokens"] for one in plain) / sum(one["positions"] for one in plain)
    return (
        f"On the exam {percentage(share, 0)} of the positions are text, the others follow its end. "
        "On the timed task a run of dual cache with threshold 0.9 is "
        f"{speed['speed_up']:.1f} times as fast as plain decoding, and "
        f"{speed['text_speed_up']:.1f} times up to the end of the text."
    )


def _early_stopping(blocks: Mapping[str, Sequence[Row]]) -> str:
    """What of the guided rows' speed-up is early stopping."""
    slow, fast = blocks["official"][0]["speed"], blocks["fill_safe"][0]["speed"]
    guided = _named(blocks["fill_safe"], "guided")["speed"]
    early = slow["nfe"] * slow["ms_per_step"] / (fast["nfe"] * fast["ms_per_step"])
    return (
        f"Stopping at the end of the text alone takes plain decoding from {slow['nfe']:.0f} to "
        f"{fast['nfe']:.0f} forwards on the timed task and makes it {early:.1f} times as fast "
        "(the two runs were not timed side by side). "
        "Guided decoding always stops there, so it is compared under `fill_safe` only: `guided` "
        f"needs {guided['nfe']:.0f} forwards there, and its run is {guided['speed_up']:.2f} times "
        "as fast as that of plain decoding."
    )


def pace(rows: Sequence[Row]) -> str:
    """The table of text share and text tokens a forward by model and family."""
    head = (
        "model", "family", "problems", "answer length", "text tokens", "share of text",
        "forwards to text end", "text tokens a forward",
    )  # fmt: skip
    lines = [
        (
            row["model"], row["label"], row["problems"], f"{row['positions']:.0f}",
            f"{row['tokens']:.1f}", percentage(row["tokens"] / row["positions"], 0),
            f"{row['text_nfe']:.1f}", f"{row['tokens'] / row['text_nfe']:.2f}",
        )
        for row in rows
    ]  # fmt: skip
    return f"{markdown_table(head, lines)}\nMeans over the problems.\n"


def beside_generate(rows: Sequence[Row]) -> str:
    """The table of autoregressive decoding beside `generate` of transformers."""
    head = ("model", "family", "problems", "equal answers", "time of generate over ours")
    lines = [
        (row["model"], row["label"], row["compared"], row["equal"], f"{row['speed_up']:.2f}x")
        for row in rows
    ]
    return f"{markdown_table(head, lines)}\nMedians over the problems.\n"


def recording(rows: Sequence[Row]) -> str:
    """What a recorder costs a step, from the rows of the speed table that record."""
    parts = []
    for row in rows:
        if row["spec"]["record"] != "off":
            cost = 100 * (1 / row["speed_up"] - 1)
            level = row["spec"]["record"]
            parts.append(f"{row['baseline']} at {row['group']}: {cost:+.0f} % (`{level}`)")
    return "Recording changes the time of a run by: " + "; ".join(parts) + "."


def routines(rows: Sequence[Row]) -> str:
    """What the choice of routines gains, from the rows of the speed table with torch's alone."""
    measured = {(row["group"], row["name"]): row["measured_routines"] for row in rows}
    parts = [
        f"{row['baseline']} at {row['group']}: {1 / row['speed_up']:.2f}x"
        for row in rows
        if row["baseline"] and not row["measured_routines"]
        if measured[row["group"], row["baseline"]]
    ]
    if not parts:
        return "No routine was chosen by measurement."
    return f"Time of a run with torch's routines over that with chosen ones: {'; '.join(parts)}."


def _rounds(part: Row) -> str:
    return f"Measured in {part['rounds']} round{'s' * (part['rounds'] != 1)}."


def _growth(rows: Sequence[Row]) -> str:
    alt = "Milliseconds of a forward by prompt, answer, layers and batch"
    sizes = growth.base_sizes()
    return f"![{alt}](growth.svg)\n\n{sizes[0].upper()}{sizes[1:]}.\n\n{growth.findings(rows)}\n"


def measured(document: Row) -> str:
    """The section of README.md: a short table and what it says."""
    table = document["tables"][0]
    blocks = _rows_by_rule(table)
    lines = [
        _measured_cells(rule, _named(blocks[rule], name))
        for rule, names in MEASURED.items()
        for name in names
    ]
    count = sum(len(block["rows"]) for one in document["tables"] for block in one["blocks"])
    labels = [one["label"] for one in blocks["official"][0]["families"].values()]
    head = ("method", "end of text", *labels, *SPEED_UPS)
    return (
        "Share of held-out problems that the embedded model "
        f"`{table['model']}` answers correctly ({problem_counts(blocks['official'][0])}), on one "
        f"thread of {document['environment']['device_name']}, {measured_on(document)}. "
        f"{DAGGER_NOTE} Speed-ups compare with plain decoding under the same end-of-text rule, on "
        "prompts of about 512 tokens. The last column counts the time until the last token of the "
        f"text is committed, without the padding after it.\n\n{markdown_table(head, lines)}\n"
        f"{_early_stopping(blocks)}\n\n"
        f"All {count} rows, step times against bare matrix products, and the commands that make "
        "the tables: "
        "[assets/results/README.md](assets/results/README.md).\n"
    )


def _measured_cells(rule: str, row: Row) -> list[str]:
    speed = row["speed"]
    ratios = (speed[name] for name in ("step_ratio", "speed_up", "text_speed_up"))
    right = [marked(one, percentage(one["accuracy"])) for one in row["families"].values()]
    return [row["name"], f"`{rule}`", *right, *(f"{x:.2f}x" for x in ratios)]


def _named(rows: Sequence[Row], name: str) -> Row:
    """The row of a name; ValueError if there is none."""
    for row in rows:
        if row["name"] == name:
            return row
    raise ValueError(f"settings.json: a row {name!r} is missing; the findings are about it")
