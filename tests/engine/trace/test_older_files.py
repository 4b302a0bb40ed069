"""Traces recorded by earlier versions open with the same contents."""

import json

import pytest

from engine.core.files import ASSETS
from engine.trace.trace import Trace
from tests.support.micro import ROOT

EXAMPLES = sorted((ASSETS / "examples").rglob("*.npz"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ASSETS)))
def test_a_bundled_trace_opens(path):
    trace = Trace.load(path)
    assert trace.meta["reason"] == "done"
    assert trace.steps == len(trace.arrays()["rows"]) > 0
    answer = trace.canvas_at(trace.steps)[~trace.arrays()["prompt_mask"]]
    assert trace.meta["model"]["mask_id"] not in answer
    assert set(answer.tolist()) <= set(trace.pieces)


def test_a_json_trace_opens_and_is_written_the_same():
    path = ROOT / "tests" / "data" / "trace.json"
    trace, document = Trace.load(path), json.loads(path.read_text("utf-8"))
    assert trace.steps == 16
    assert json.loads(trace.to_json()) == document
