"""Markdown of the results: tables, and sentences that are computed from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.bench import growth, report
from engine.core.tables import markdown_table
from engine.evaluate.comparison import TIMED_LENGTH, markdown, percent

Row = Mapping[str, Any]
SIGNIFICANT = 0.05
MEASURED_HEAD = (
    "method", "end of text", "right", "p", "speed-up of a step", "of a run", "of its text",
)  # fmt: skip
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
        "tables": "\n".join(_table(document, table) for table in document["tables"]),
        "findings": "".join(f"- {text}\n" for text in findings(document)),
        "speed": f"{report.table(document['speed']['rows'])}\n{_rounds(document['speed'])}\n",
        "growth": _growth(),
        "recording": f"{recording(document['speed']['rows'])}\n",
    }


def conditions(document: Row) -> str:
    """Command, machine, date, commit and versions of the run, as a sentence."""
    where = document["environment"]
    return (
        f"`{document['command']}` measured all of these on {where['date']} at commit "
        f"`{where['commit'][:12]}`: {where['device_name']}, {where['cores']} cores of which "
        f"{where['threads']} was used, {where['system']}, Python {where['python']}, torch "
        f"{where['torch']}."
    )


def _table(document: Row, table: Row) -> str:
    parts = [f"### {table['name']}\n"]
    for block in table["blocks"]:
        parts.append(f"End of text: `{block['eos']}`.\n\n{markdown(block['rows'])}")
    timed = [row for block in table["blocks"] for row in block["rows"] if row["speed"]]
    note = (
        f"Accuracy: {document['problems']} held-out problems, the same for every row, "
        f"{table['shots']} worked examples before each; `p` is McNemar's exact test against the "
        f"first row of the block. Checkpoint `{table['checkpoint'][:12]}`."
    )
    if timed:
        note += (
            f" From `forwards` on: another, longer task ({TIMED_LENGTH}-token answers after eight "
            f"worked examples, {timed[0]['speed']['prompts']} prompts, one at a time), medians, "
            "ratios to the first row of the block, side by side."
        )
    return "\n".join([*parts, note]) + "\n"


def findings(document: Row) -> list[str]:
    """Sentences about the first table, each computed from its rows."""
    table = document["tables"][0]
    blocks = _rows_by_rule(table)
    lines = [_significance(table["name"], rule, rows) for rule, rows in blocks.items()]
    lines += [_tokens_per_forward(blocks["official"]), _slow_steps(blocks["official"])]
    lines += [_padding(blocks["official"]), _early_stopping(blocks)]
    for other in document["tables"][1:]:
        of_rule = _rows_by_rule(other).items()
        lines += [_significance(other["name"], rule, rows) for rule, rows in of_rule]
    return lines


def _rows_by_rule(table: Row) -> dict[str, list[Row]]:
    """The rows of a table's blocks by end-of-text rule."""
    return {block["eos"]: block["rows"] for block in table["blocks"]}


def _significance(name: str, rule: str, rows: Sequence[Row]) -> str:
    """Which rows differ significantly from the first, and by how many points."""
    first, *others = rows
    found = [row for row in others if row["p"] < SIGNIFICANT]
    worse = [row for row in found if row["accuracy"] < first["accuracy"]]
    better = [row for row in found if row["accuracy"] > first["accuracy"]]
    head = f"On {name} (`{rule}`), {first['name']} solves {percent(first)}."
    if not found:
        compared = f"any of the {len(others)} other rows" if len(others) > 1 else others[0]["name"]
        return f"{head} No significant difference (p < {SIGNIFICANT}) from it in {compared}."
    parts = []
    if worse:
        parts.append(f"Significantly less accurate (p < {SIGNIFICANT}): {_points(first, worse)}.")
    if better:
        parts.append(f"Significantly more accurate: {_points(first, better)}.")
    rest = len(others) - len(found)
    parts.append(f"The other {rest} rows do not differ significantly." if rest else "")
    return " ".join([head, *filter(None, parts)])


def _points(first: Row, rows: Iterable[Row]) -> str:
    return ", ".join(
        f"{row['name']} ({100 * (row['accuracy'] - first['accuracy']):+.1f} points, "
        f"p = {row['p']:.2g})"
        for row in rows
    )


def _tokens_per_forward(rows: Sequence[Row]) -> str:
    plain, speed = rows[0]["speed"], _named(rows, "threshold 0.9")["speed"]
    return (
        f"On the timed task threshold 0.9 commits {TIMED_LENGTH / speed['nfe']:.1f} positions a "
        f"forward. Its text is complete after {speed['text_nfe']:.0f} forwards, that of plain "
        f"decoding after {plain['text_nfe']:.0f}."
    )


def _slow_steps(rows: Sequence[Row]) -> str:
    slow = [row for row in rows[1:] if row["speed"] and row["speed"]["step_ratio"] < 1]
    if not slow:
        return "No method makes a step slower than one of plain decoding."
    named = ", ".join(f"{row['name']} ({row['speed']['step_ratio']:.2f}x)" for row in slow)
    return f"A step is slower than one of plain decoding with {named}."


def _padding(rows: Sequence[Row]) -> str:
    """How far the speed-up of a run is that of its text."""
    row = _named(rows, "dual cache, threshold 0.9")
    speed, plain = row["speed"], rows[0]
    share = plain["tokens"] / plain["spec"]["gen_length"]
    return (
        f"On the exam {share:.0%} of the positions are text, the others follow its end. On the "
        f"timed task a run of dual cache with threshold 0.9 is {speed['speed_up']:.1f}x as fast as "
        f"plain decoding, and {speed['text_speed_up']:.1f}x up to the end of the text."
    )


def _early_stopping(blocks: Mapping[str, Sequence[Row]]) -> str:
    """What of the guided rows' speed-up is early stopping."""
    slow, fast = blocks["official"][0]["speed"], blocks["fill_safe"][0]["speed"]
    guided = _named(blocks["fill_safe"], "guided")["speed"]
    early = slow["nfe"] * slow["ms_per_step"] / (fast["nfe"] * fast["ms_per_step"])
    return (
        f"Stopping at the end of the text alone takes plain decoding from {slow['nfe']:.0f} to "
        f"{fast['nfe']:.0f} forwards on the timed task and makes it {early:.1f}x as fast. Guided "
        f"decoding always stops there, so it is compared under `fill_safe` only: `guided` needs "
        f"{guided['nfe']:.0f} forwards there, and its run is {guided['speed_up']:.2f}x as fast as "
        "that of plain decoding."
    )


def recording(rows: Sequence[Row]) -> str:
    """What a recorder costs a step, from the rows of the speed table that record."""
    parts = []
    for row in rows:
        if row["spec"]["record"] != "off":
            cost = 100 * (1 / row["speed_up"] - 1)
            level = row["spec"]["record"]
            parts.append(f"{row['baseline']} at {row['group']}: {cost:+.0f} % (`{level}`)")
    return "Recording changes the time of a run by: " + "; ".join(parts) + "."


def _rounds(part: Row) -> str:
    return f"Measured in {part['rounds']} round{'s' * (part['rounds'] != 1)}."


def _growth() -> str:
    alt = "Milliseconds of a forward by prompt, answer, layers and batch"
    return f"![{alt}](growth.svg)\n\n{growth.base_sizes()[0].upper()}{growth.base_sizes()[1:]}.\n"


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
    where = document["environment"]
    return (
        f"{document['problems']} held-out word problems on the embedded model `{table['model']}`, "
        f"one thread of {where['device_name']}, {where['date']}. `p` is McNemar's exact test "
        "against plain decoding. Speed-ups are over plain decoding under the same end-of-text "
        "rule, on prompts of about 512 tokens; that of the text ends with its last token, before "
        "the padding.\n\n"
        f"{markdown_table(MEASURED_HEAD, lines)}\n"
        f"{_significance(table['name'], 'official', blocks['official'])} "
        f"{_early_stopping(blocks)}\n\nAll {count} rows, step times against bare matrix products, "
        "and the command that makes every table: "
        "[assets/results/README.md](assets/results/README.md).\n"
    )


def _measured_cells(rule: str, row: Row) -> list[str]:
    speed = row["speed"]
    ratios = (speed[name] for name in ("step_ratio", "speed_up", "text_speed_up"))
    return [
        row["name"],
        f"`{rule}`",
        percent(row),
        f"{row['p']:.2g}",
        *(f"{x:.2f}x" for x in ratios),
    ]


def _named(rows: Sequence[Row], name: str) -> Row:
    """The row of a name; ValueError if there is none."""
    for row in rows:
        if row["name"] == name:
            return row
    raise ValueError(f"settings.json: a row {name!r} is missing; the findings are about it")
