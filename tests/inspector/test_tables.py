"""The tables of a trace: each number is the trace's, and no cell is a formula."""

import csv
import io
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from engine.config.branch_start import BranchStart
from engine.config.spec import RunSpec
from inspector.files.tables import safe, steps_table, tokens_table, written
from inspector.page_data.tokens import block_length, lane_start
from inspector.views.frame import frame_facts
from tests.support.big_trace import make_big_trace
from tests.support.handmade_guided_run import (
    GUIDER_FLOPS,
    GUIDER_MS,
    PREFILL_MS,
    STEPS,
    guided_trace,
)
from tests.support.traces import trace_of


def read(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_one_row_a_step(recorded):
    timed, trace = recorded
    rows, arrays = read(steps_table(trace, timed)), trace.arrays()
    assert [int(row["step"]) for row in rows] == list(range(1, trace.steps + 1))
    for name in ("rows", "forwards", "masks_left"):
        assert [int(row[name]) for row in rows] == arrays[name].tolist()
    for name in ("forward_ms", "decide_ms"):
        assert [float(row[name]) for row in rows] == timed.arrays()[name].tolist()
        assert {row[name] for row in read(steps_table(trace))} == {""}
    assert [int(row["flops_ffn"]) for row in rows] == arrays["flops"][:, 2].tolist()
    assert sum(int(row["committed"]) for row in rows) == len(arrays["commit_id"])
    counted = np.unpackbits(arrays["plan"], axis=-1, count=len(arrays["canvas"]))[:, :, 1]
    shares = counted.sum((1, 2)) / counted[0].size
    assert [float(row["share_v"]) for row in rows] == pytest.approx(shares.tolist())
    assert rows[0]["done_prompt"] == rows[0]["kind"] == "full"
    assert rows[1]["done_prompt"] == "frozen"
    assert "share_v" not in read(steps_table(recorded[0]))[0]


def test_one_row_a_position(recorded):
    trace = recorded[1]
    rows, arrays = read(tokens_table(trace)), trace.arrays()
    assert [int(row["id"]) for row in rows] == trace.canvas_at(trace.steps).tolist()
    prompt = int(arrays["prompt_mask"].sum())
    assert [row["part"] for row in rows] == ["prompt"] * prompt + ["answer"] * 16
    assert {row["step"] for row in rows[:prompt]} == {""}
    for step, position, sure in zip(
        arrays["commit_step"], arrays["commit_position"], arrays["commit_confidence"], strict=True
    ):
        assert int(rows[position]["step"]) == step + 1
        assert np.float32(rows[position]["confidence"]) == sure
    counted = trace.recompute_map()[:, :, 0].sum((0, 1))
    assert [int(row["recomputed_k"]) for row in rows] == counted.tolist()


def test_a_branch_counts_on_and_keeps_the_tokens_of_its_parent(session, recorded):
    parent = recorded[0]
    start = BranchStart("parent.a", 2)
    spec = replace(RunSpec.from_dict(parent.meta["spec"]), start=start)
    child = trace_of(session.run(spec, parents={"parent.a": parent}))
    spec = replace(spec, start=BranchStart("child.b", 1))
    again = trace_of(session.run(spec, parents={"child.b": child}))
    assert [int(row["step"]) for row in read(steps_table(again))] == [4]
    rows, prompt = read(tokens_table(again)), again.prompt_length
    assert {(row["given"], row["step"]) for row in rows[:prompt]} == {("1", "")}
    kept = [row for row in rows[prompt:] if row["given"] == "1"]
    assert len(kept) == int((child.canvas_at(1) != again.meta["model"]["mask_id"]).sum()) - prompt
    assert {row["step"] for row in kept} == {""}
    assert min(int(row["step"]) for row in rows if row["step"]) == 4


def test_given_text_after_the_answer_is_no_block(session, recorded):
    spec = RunSpec.from_dict(recorded[0].meta["spec"])
    trace = trace_of(session.run(replace(spec, suffix=" That is all.")))
    answer = [row for row in read(tokens_table(trace)) if row["part"] == "answer"]
    suffix = [row for row in read(tokens_table(trace)) if row["part"] == "suffix"]
    assert len(answer) == spec.gen_length
    assert {row["given"] for row in answer} == {"0"}
    assert {(row["given"], row["block"], row["step"]) for row in suffix} == {("1", "", "")}


def test_what_a_guider_did_is_in_the_steps(recorded):
    rows = read(steps_table(guided_trace("off")))
    assert [int(row["guider_accepted"]) for row in rows] == [k for _, _, k in STEPS]
    assert [int(row["guider_drafted"]) for row in rows] == [len(ids) for ids, _, _ in STEPS]
    assert [float(row["guider_ms"]) for row in rows] == [GUIDER_MS] * 3
    assert [float(row["guider_prefill_ms"]) for row in rows] == [PREFILL_MS, 0, 0]
    assert [int(row["flops_guider"]) for row in rows] == [GUIDER_FLOPS] * 3
    assert "guider_ms" not in read(steps_table(recorded[0]))[0]
    trace = guided_trace("off")
    trace.meta["spec"] |= {"record": "layers"}
    names = ("guider_ms", "guider_prefill_ms", "forward_ms", "decide_ms")
    assert {row[name] for row in read(steps_table(trace)) for name in names} == {""}


@pytest.mark.parametrize("table", [steps_table, tokens_table])
def test_the_plans_of_a_long_run_are_counted_in_parts(table):
    """A map of them has eight times their bytes: 0.4 GB of a model of 8 billion parameters."""
    trace = make_big_trace(8, 256, 1_024, 256)
    plan = trace.arrays()["plan"]
    tracemalloc.start()
    try:
        table(trace)
        assert tracemalloc.get_traced_memory()[1] < 4 * plan.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-2", "@SUM(A1)", "\t=1", "  =1", "\n1", '=HYPERLINK("x")']
)
def test_no_cell_is_a_formula(text, recorded):
    assert safe(text) == "'" + text
    trace = recorded[1]
    before = trace._pieces
    trace._pieces = {i: text.encode() for i in before}
    try:
        cells = {row["text"] for row in read(tokens_table(trace))}
    finally:
        trace._pieces = before
    (cell,) = cells
    assert cell[0] == "'" or cell.startswith("\\")


@pytest.mark.parametrize("line_break", ["\n", "\r", "\r\n"])
def test_no_line_break_in_a_cell_begins_a_row(line_break):
    """The writer puts only its own kind in quotes, and a spreadsheet would read the next cell."""
    assert read(written(["cell"], [[f"x{line_break}=1"]])) == [{"cell": "x\n=1"}]


def test_other_cells_stay_as_they_are():
    given = ["a=1", "1-2", -2, -0.5, 7, ""]
    assert [safe(cell) for cell in given] == given
    assert [safe(float("nan")), safe(None)] == ["", ""]


@pytest.mark.parametrize("given", [None, 0, -3, True, "8"])
def test_without_the_length_of_a_block_the_positions_behind_the_prompt_are_one(given):
    trace = make_big_trace(1, 4, 16, 8)
    length = len(trace.arrays()["canvas"]) - trace.prompt_length
    trace.meta["spec"] = trace.meta["spec"] | {"block_length": given}
    assert block_length(trace) == lane_start(trace, "")["block"] == length
    assert frame_facts(trace)["block"] == length
    assert {row["block"] for row in read(tokens_table(trace))} == {"", "1"}
