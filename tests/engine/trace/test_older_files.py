"""Traces recorded by earlier versions open with the same contents."""

import json

import pytest

from engine.core.files import ASSETS
from engine.trace.file_format import VERSION
from engine.trace.schema import ADDED_AFTER
from engine.trace.synthetic import synthetic_events, synthetic_spec
from engine.trace.trace import Trace
from tests.support.micro import ROOT
from tests.support.traces import trace_of

LENS = ("lens_position", "lens_id", "lens_prob", "lens_token_prob")
EXAMPLES = sorted((ASSETS / "examples").rglob("*.npz"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ASSETS)))
def test_a_bundled_trace_opens(path):
    trace = Trace.load(path)
    assert trace.meta["reason"] == "done"
    assert trace.steps == len(trace.arrays()["rows"]) > 0
    answer = trace.canvas_at(trace.steps)[~trace.arrays()["prompt_mask"]]
    assert trace.meta["model"]["mask_id"] not in answer
    assert set(answer.tolist()) <= set(trace.pieces)


def test_a_json_trace_opens_and_is_written_the_same_but_for_later_fields():
    path = ROOT / "tests" / "data" / "trace.json"
    trace, document = Trace.load(path), json.loads(path.read_text("utf-8"))
    assert trace.steps == 16
    assert document["meta"]["version"] == 6
    written = json.loads(trace.to_json())
    later = {name: written["arrays"].pop(name) for name in ADDED_AFTER[6]}
    assert all(array["data"] == [] for array in later.values())
    assert written == document | {"meta": document["meta"] | {"version": VERSION}}


def version_4(trace):
    """The document of a trace as version 4 wrote it, without a logit lens and proposals."""
    document = json.loads(trace.to_json())
    document["meta"]["version"] = 4
    for name in ADDED_AFTER[4]:
        del document["arrays"][name]
    return document


def test_a_probed_trace_of_version_4_opens_without_a_logit_lens():
    trace = trace_of(synthetic_events(synthetic_spec(8, probe=True), 2, 20))
    assert len(trace.arrays()["lens_id"]) == 8
    document = version_4(trace)
    arrays = Trace.from_bytes(json.dumps(document).encode()).arrays()
    assert len(arrays["probe_step"]) == 8
    assert [len(arrays[name]) for name in LENS] == [0, 0, 0, 0]
    document["arrays"] |= {"lens_position": {"shape": [0], "data": []}}
    with pytest.raises(ValueError, match="version 4 has no field 'lens_position'"):
        Trace.from_bytes(json.dumps(document).encode())
