"""The converters of public formats, on fixtures written by their descriptions."""

import json

import pytest

from engine.__main__ import main
from engine.core.files import ASSETS
from engine.evaluate import convert
from engine.trace.foreign import d3llm, dllm_rl
from engine.trace.foreign.document import read_run
from engine.trace.foreign.reader import as_document, load_run

MASK = 126_336
SAMPLE = {
    "idx": 0, "question": "2 + 3?", "prompt_ids": [7, 8],
    "trajectory": [[7, 8, MASK, 5, MASK], [7, 8, MASK, 5, 6], [7, 8, 4, 5, 6]],
    "final_output": [7, 8, 4, 5, 6], "generated_text": "x", "llm_answer": "5", "gt_answer": "5",
    "is_correct": True, "nfe": 3,
}  # fmt: skip
VIEWER = {
    "pieces": [" The", " sum", " is", "5", "<|im_end|>", "<|pad|>"],
    "step_map": [2, 1, 2, 3, 3, 4],
    "is_special": [False, False, False, False, True, True],
}
PAGE = (
    '<!doctype html><script id="data" type="application/json">{}</script>'
    "<script>const DATA = 1;</script>"
)


def test_a_trajectory_is_read_with_the_mask_that_it_does_not_name():
    run = read_run(d3llm.convert([SAMPLE]))
    assert run.prompt_tokens == (7, 8)
    assert run.start == (None, None, None)
    assert run.commits == (((1, 5),), ((2, 6),), ((0, 4),))
    assert run.prompt == "2 + 3?"


def test_a_trajectory_of_one_step_has_no_mask():
    run = read_run(d3llm.convert(SAMPLE | {"trajectory": [[7, 8, 4, 5, 6]]}))
    assert run.commits == (((0, 4), (1, 5), (2, 6)),)


@pytest.mark.parametrize(
    ("said", "sample"),
    [
        ("does not begin with prompt_ids", {"prompt_ids": [7, 9]}),
        ("differs from the last in more ids", {"trajectory": [[7, 8, 1, 2, 3], [7, 8, 4, 5, 6]]}),
        ("no prompt_ids or no canvases", {"trajectory": []}),
        ("trajectory: 5000 steps", {"trajectory": [None] * 5000}),
        ("no prompt_ids or no canvases", {"prompt_ids": None}),
        ("canvas of step 1 does not begin", {"trajectory": [None]}),
    ],
)
def test_a_trajectory_that_cannot_be_read_says_why(said, sample):
    with pytest.raises(ValueError, match=said):
        d3llm.convert(SAMPLE | sample)


def test_of_many_trajectories_one_is_chosen():
    other = SAMPLE | {"question": "other"}
    with pytest.raises(ValueError, match="it has 2 trajectories"):
        as_document([SAMPLE, other])
    assert as_document([SAMPLE, other], 2)["prompt"] == "other"
    with pytest.raises(ValueError, match="sample: 3 is not from 1 to 2"):
        as_document([SAMPLE, other], 3)


@pytest.mark.parametrize("text", [json.dumps(VIEWER), PAGE.format(json.dumps(VIEWER))])
def test_the_trace_viewer_is_read_as_page_and_as_json(text, tmp_path):
    path = tmp_path / "viewer.html"
    path.write_text(text, "utf-8")
    run = load_run(path)
    assert run.commits[0] == ((1, " sum"),)
    assert run.commits[1] == ((0, " The"), (2, " is"))
    assert run.end_tokens == ("<|im_end|>",)
    assert run.seconds is None


def test_a_special_token_within_the_text_of_a_viewer_does_not_end_it():
    pieces = ["A", "<sep>", "B", "<sep>", "<sep>"]
    flags = [piece == "<sep>" for piece in pieces]
    found = dllm_rl.convert({"pieces": pieces, "step_map": [1] * 5, "is_special": flags})
    assert found["end_tokens"] == []


@pytest.mark.parametrize(
    ("said", "data"),
    [
        ("lists of one length", {"step_map": [1]}),
        ("lists of one length", {"pieces": "text"}),
        ("token 2 has step 0", {"step_map": [1, 0, 1, 1, 1, 1]}),
    ],
)
def test_a_trace_viewer_that_cannot_be_read_says_why(said, data):
    with pytest.raises(ValueError, match=said):
        dllm_rl.convert(VIEWER | data)


def test_a_file_of_one_run_has_no_other():
    for document in (VIEWER, {"format": "driftscope-run"}):
        assert as_document(document, 1) is not None
        with pytest.raises(ValueError, match=r"^sample: the file has one run, no number 5"):
            as_document(document, 5)


def test_the_command_refuses_a_sample_of_no_number(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["convert", str(tmp_path), "--sample", "0", "--out", str(tmp_path / "run.json")])
    assert "argument --sample: '0' is not a whole number from 1" in capsys.readouterr().err


def test_the_command_does_not_write_over_its_source(tmp_path):
    source = tmp_path / "trajectory_data.json"
    text = json.dumps([SAMPLE, SAMPLE])
    source.write_text(text)
    with pytest.raises(SystemExit, match=r"^error: --out: .* is the other engine's file"):
        main(["convert", str(source), "--sample", "2", "--out", str(source)])
    assert source.read_text() == text


def test_canvases_that_are_too_large_for_the_page_become_a_step_map(tmp_path, monkeypatch):
    source, out = tmp_path / "trajectory_data.json", tmp_path / "run.json"
    open_places = [[7, 8, *[MASK] * 40, 4, *[5] * i, *[MASK] * (9 - i)] for i in range(10)]
    source.write_text(json.dumps(SAMPLE | {"trajectory": open_places}))
    command = ["convert", str(source), "--out", str(out)]
    main(command)
    whole = load_run(out)
    assert "canvases" in json.loads(out.read_text("utf-8"))
    monkeypatch.setattr(convert, "MAX_JSON_BYTES", out.stat().st_size - 1)
    main(command)
    assert "canvases" not in json.loads(out.read_text("utf-8"))
    assert load_run(out) == whole
    monkeypatch.setattr(convert, "MAX_JSON_BYTES", 300)
    with pytest.raises(SystemExit, match=r"^error: file: the run has 0\.0 MB as JSON, more than"):
        main(command)
    assert load_run(out) == whole


def test_the_command_writes_a_run_with_the_texts_of_a_tokenizer(tmp_path):
    source, out = tmp_path / "trajectory_data.json", tmp_path / "run.json"
    source.write_text(json.dumps([SAMPLE, SAMPLE]))
    folder = ASSETS / "models" / "tiny-llada"
    options = ["--sample", "2", "--tokenizer", str(folder), "--out", str(out)]
    main(["convert", str(source), *options])
    assert load_run(out).is_spelt
    with pytest.raises(SystemExit, match="error: file: it has 2 trajectories"):
        main(["convert", str(source), "--out", str(out)])
    source.write_text(json.dumps(VIEWER))
    with pytest.raises(SystemExit, match="leave the option out"):
        main(["convert", str(source), "--tokenizer", str(folder), "--out", str(out)])
