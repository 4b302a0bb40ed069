"""Runs of other engines: the format, its errors, and the traces made of it."""

import json
import re
import time

import numpy as np
import pytest

from engine.trace.foreign import dllm_rl, strict_json
from engine.trace.foreign.build import trace_of, traces_of
from engine.trace.foreign.document import FIELDS, MAX_FOREIGN_ID, read_run
from engine.trace.foreign.reader import load_run
from engine.trace.trace import Trace
from tests.support.micro import ROOT

README = ROOT / "engine" / "trace" / "foreign" / "README.md"
MAP = {
    "format": "driftscope-run", "version": 1, "tokens": ["a", "b", "a", "<e>"],
    "step_map": [2, 1, 2, 3],
}  # fmt: skip
CANVASES = {
    "format": "driftscope-run", "version": 1,
    "canvases": [[None, "b", None], [None, "b", None], ["a", "b", "c"]],
}  # fmt: skip
IDS = {
    "format": "driftscope-run", "version": 1, "mask": 9, "prompt_tokens": [5, 6],
    "canvases": [[9, 2, 9], [1, 2, 9]], "vocabulary": {"1": "x", "2": "y"},
}  # fmt: skip


def trace(document):
    return (
        trace_of(read_run(document), None)
        if "mask" in document
        else traces_of([read_run(document)])[0]
    )


def without(document, *names):
    return {name: value for name, value in document.items() if name not in names}


def test_the_example_of_the_documentation_is_a_run():
    [example] = re.findall(r"```json\n(.*?)```", README.read_text("utf-8"), re.S)
    found = trace(strict_json.load(example))
    assert found.step_map().tolist() == [1, 1, 0, 2]
    assert found.meta["texts"] == ["It is 9<end>"]
    assert found.meta["spec"]["prompt"] == "What is 4 + 5?"


def test_the_documentation_names_every_field():
    text = README.read_text("utf-8")
    rows = re.findall(r"^\| (`.*?) \|", text, re.M)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(FIELDS)


def test_both_forms_give_the_same_trace():
    as_map = CANVASES | {"tokens": ["a", "b", "c"], "step_map": [3, 1, 3]}
    one, other = trace(CANVASES), trace(without(as_map, "canvases"))
    arrays = zip(one.arrays().items(), other.arrays().values(), strict=True)
    assert all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for (_, a), b in arrays)
    other = trace(without(as_map, "canvases") | {"step_map": [2, 1, 2]})
    assert one.step_map().tolist() != other.step_map().tolist()


def test_a_mask_in_the_padding_leaves_the_text_whole():
    padded = MAP | {"tokens": ["a", "<e>", "b", None], "step_map": [2, 1, 2, None]}
    assert trace(padded | {"end_tokens": ["<e>"]}).meta["reason"] == "done"
    assert trace(padded).meta["reason"] == "stopped"


def test_a_trace_of_ids_has_the_prompt_and_the_masks():
    found = trace(IDS)
    arrays = found.arrays()
    assert arrays["prompt_mask"].tolist() == [True, True, False, False, False]
    assert arrays["masks_left"].tolist() == [2, 1]
    assert found.meta["reason"] == "stopped"  # a mask is left
    assert found.canvas_at(2).tolist()[:4] == [5, 6, 1, 2]
    assert found.pieces[5] == "⟨5⟩".encode()
    assert found.meta["foreign"]["texts"] is False


def test_given_tokens_blocks_times_and_confidences():
    document = MAP | {
        "start": [None, None, None, "<e>"], "step_map": [3, 1, 3, None], "block_length": 2,
        "seconds": [0.5, 0.25, 1], "confidences": [0.5, None, 1, None], "end_tokens": ["<e>"],
    }  # fmt: skip
    found = trace(document)
    arrays, metrics = found.arrays(), found.meta["metrics"]
    assert arrays["fixed_mask"].tolist() == [False, False, False, True]
    assert arrays["block"].tolist() == [0, 0, 0]
    assert arrays["block_step"].tolist() == [0, 1, 2]
    assert arrays["forward_ms"].tolist() == [500, 250, 1000]
    assert (metrics["total_ms"], metrics["tokens"], metrics["nfe"]) == (1750, 3, 3)
    sure = dict(zip(arrays["commit_position"].tolist(), arrays["commit_confidence"], strict=True))
    assert (sure[0], np.isnan(sure[1]), sure[2]) == (0.5, True, 1)
    assert found.meta["texts"] == ["aba"]


def test_what_is_unknown_is_no_metric():
    metrics = trace(MAP).meta["metrics"]
    assert not {"total_ms", "forwards", "gflops", "recomputed", "rows"} & metrics.keys()


def test_a_trace_survives_its_file_with_what_it_lacks():
    found = trace(MAP)
    again = Trace.from_bytes(found.to_bytes())
    assert again.meta["foreign"] == found.meta["foreign"]
    again = Trace.from_bytes(found.to_json().encode())
    assert again.step_map().tolist() == found.step_map().tolist()


@pytest.mark.parametrize("foreign", [{}, None, {"timed": 1}, {"method": "x" * 2_000}])
def test_crafted_facts_of_a_trace_are_refused(foreign):
    found = trace(MAP)
    found.meta["foreign"] = foreign
    with pytest.raises(ValueError, match=r"meta\.foreign"):
        Trace.from_bytes(found.to_bytes())


def test_equal_texts_get_equal_ids_in_both_lanes():
    spelt = IDS | {"vocabulary": {"1": "a", "2": "b", "5": "p", "6": "q"}}
    one, other = traces_of([read_run(MAP), read_run(spelt)])
    (a,), (b,) = ([i for i, text in t.pieces.items() if text == b"a"] for t in (one, other))
    assert a == b
    assert a in one.canvas_at(3)
    assert a in other.canvas_at(2)


@pytest.mark.parametrize("ends", [{"eos_id": []}, {"stop_ids": 3}, {"stop_ids": [[1], "x", True]}])
def test_crafted_ends_of_a_trace_are_left_out(ends):
    beside = trace(MAP)
    beside.meta["model"] = beside.meta["model"] | ends
    assert len(traces_of([beside, read_run(MAP)])) == 2


def test_ids_of_one_model_are_kept_and_an_end_of_text_counts_for_both():
    named = IDS | {"model": "m", "vocabulary": {"1": "x", "2": "y", "5": "p", "6": "q"}}
    one, other = traces_of([read_run(named | {"end_tokens": [2]}), read_run(named)])
    assert other.canvas_at(2).tolist() == one.canvas_at(2).tolist()
    assert other.canvas_at(2).tolist()[:4] == [5, 6, 1, 2]
    assert other.meta["model"]["stop_ids"] == one.meta["model"]["stop_ids"] == [2]


BAD = [
    ("format", CANVASES | {"format": "x"}),
    ("version", CANVASES | {"version": 2}),
    ("version", CANVASES | {"version": True}),
    ("'colour': unknown", CANVASES | {"colour": 1}),
    ("canvases: missing", without(CANVASES, "canvases")),
    ("tokens: given beside", CANVASES | {"tokens": []}),
    ("canvases: expected a list", CANVASES | {"canvases": 3}),
    ("canvases: 0 steps", CANVASES | {"canvases": []}),
    ("canvases: 4097 steps", CANVASES | {"canvases": [["a"]] * 4_097}),
    ("canvases: step 1 has 0 positions", CANVASES | {"canvases": [[]]}),
    ("canvases: step 2 is no list of 1", CANVASES | {"canvases": [["a"], ["a", "b"]]}),
    ("step 1 holds something other", CANVASES | {"canvases": [[1.5]]}),
    ("step 1 holds something other", CANVASES | {"canvases": [[True]]}),
    ("step 1 holds something other", CANVASES | {"canvases": [[["a"]]]}),
    ("step 1, position 1: -1 is no token", CANVASES | {"canvases": [[-1]]}),
    ("is no token", CANVASES | {"canvases": [[MAX_FOREIGN_ID + 1]]}),
    ("position 1: 1001 characters", CANVASES | {"canvases": [["x" * 1_001]]}),
    ("lone surrogate", CANVASES | {"canvases": [["\ud800"]]}),
    ("step 2 masks the token of position 1", CANVASES | {"canvases": [["a"], [None]]}),
    ("step 2 changes the token of position 1", CANVASES | {"canvases": [["a"], ["b"]]}),
    ("more than 4000000 cells", CANVASES | {"canvases": [[None] * 16_000] * 300}),
    ("16385 positions", CANVASES | {"canvases": [[None] * 16_385]}),
    ("prompt_tokens: with the answer", IDS | {"prompt_tokens": [1] * 16_384}),
    ("some are ids and some are texts", MAP | {"tokens": ["a", 1, "a", "<e>"]}),
    ("step_map: 3 steps for 4 tokens", MAP | {"step_map": [1, 2, 3]}),
    ("position 1: 0 is no step", MAP | {"step_map": [0, 1, 2, 3]}),
    ("position 2: 4097 is no step", MAP | {"step_map": [1, 4_097, 2, 3]}),
    ("position 1: None is no step", MAP | {"step_map": [None, 1, 2, 3]}),
    ("position 1: True is no step", MAP | {"step_map": [True, 1, 2, 3]}),
    ("a step for a mask", MAP | {"tokens": [None, "b", "a", "<e>"]}),
    ("seconds: 2 for 3 steps", MAP | {"seconds": [1, 1]}),
    ("seconds: step 2", MAP | {"seconds": [1, -1, 1]}),
    ("seconds: step 1", MAP | {"seconds": [True, 1, 1]}),
    ("confidences: 1 for 4", MAP | {"confidences": [1]}),
    ("confidences: position 2", MAP | {"confidences": [1, 1.5, 1, 1]}),
    ("block_length", MAP | {"block_length": 5}),
    ("block_length", MAP | {"block_length": "2"}),
    ("prompt: expected a text", MAP | {"prompt": ["a"]}),
    ("prompt: 100001 characters", MAP | {"prompt": "x" * 100_001}),
    ("model: holds a control", MAP | {"model": "a\x00b"}),
    ("method: 301 characters", MAP | {"method": "x" * 301}),
    ("vocabulary: 'x'", IDS | {"vocabulary": {"x": "a"}}),
    ("vocabulary: the text of 1", IDS | {"vocabulary": {"1": 5}}),
]  # fmt: skip


@pytest.mark.parametrize(("said", "document"), BAD, ids=[said for said, _ in BAD])
def test_a_bad_field_is_named(said, document):
    with pytest.raises(ValueError, match=re.escape(said)):
        read_run(document)


@pytest.mark.parametrize("document", [[], None, 3, "driftscope-run"])
def test_a_document_is_an_object(document):
    with pytest.raises(ValueError, match="file: expected one JSON object"):
        read_run(document)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"format": "driftscope-run", "format": "x"}', "'format': given twice"),
        ('{"format": "driftscope-run", "seconds": [NaN]}', "NaN: JSON has no such number"),
        ('{"format": "driftscope-run", "seconds": [-Infinity]}', "-Infinity: JSON has no"),
        ('{"format": ' + "[" * 90_000, "nested too deep"),
        ('{"format": "driftscope-run"', "no JSON"),
        ('{"format": "driftscope-run", "version": ' + "1" * 5000, "no number of a run has 5000"),
        ('<html>"step_map"</html>', "an HTML page without a run"),
    ],
)
def test_a_file_that_is_no_run_says_what_is_wrong(text, said, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=re.escape(said)):
        load_run(path)


def test_a_file_of_another_format_is_left_to_others(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"meta": {}, "arrays": {}}))
    assert load_run(path) is None


def test_text_is_kept_as_it_is():
    markup = "<img src=x onerror=alert(1)>\u202e\x00"
    found = trace(MAP | {"tokens": [markup, "b", "a", "<e>"]})
    assert markup.encode() in found.pieces.values()


@pytest.mark.parametrize(
    "text",
    [
        dllm_rl.DATA * 50_000,
        "{" + ", ".join(f'"n{i}": 0' for i in range(100_000)) + ', "n99999": 0}',
    ],
    ids=["page with 50,000 openings", "object with 100,000 names"],
)
def test_a_hostile_file_is_refused_at_once(text):
    started = time.process_time()
    if text.startswith("<"):
        assert dllm_rl.embedded(text) is None
    else:
        with pytest.raises(ValueError, match="'n99999': given twice"):
            strict_json.load(text)
    assert time.process_time() - started < 5, "the time grows with the square of the size"
