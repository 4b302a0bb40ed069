"""`python -m engine batch` on an embedded model: table, files, resumption."""

import json
import signal

import pytest

from engine.advise.__main__ import main as advise
from engine.batch.__main__ import main
from engine.batch.flags import add_spec_flags
from engine.core.command_line import command_parser

SHORT = ("--gen-length", "16", "--block-length", "8", "--steps", "8")


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    rows = [{"prompt": "Tom has 3 pens. He buys 4.", "answer": 7}, {"prompt": "What is 4 + 5?"}]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_batch_is_written_and_goes_on_after_an_interruption(prompts, tmp_path, capsys):
    out = tmp_path / "out"
    words = ("--prompts", str(prompts), "--cache", "dual", "--out", str(out), *SHORT)
    main(words)
    first = json.loads((out / "results.json").read_text())
    assert (first["finished"], first["total"]) == (4, 4)
    assert [row["name"] for row in first["settings"]] == ["plain decoding", "dual, quota"]
    assert "| 100.0 % |" in " ".join((out / "table.md").read_text().split())
    assert first["settings"][1]["known"] == 1
    assert capsys.readouterr().out == (out / "table.md").read_text()
    kept = (out / "runs.jsonl").read_text().splitlines(keepends=True)
    (out / "runs.jsonl").write_text("".join(kept[:2]) + kept[2][:30])
    main(words)
    again = json.loads((out / "results.json").read_text())
    texts = [[run["text"] for run in row["runs"]] for row in first["prompts"]]
    assert [[run["text"] for run in row["runs"]] for row in again["prompts"]] == texts
    times = [[run["ms"] for run in row["runs"]] for row in first["prompts"]]
    assert [run["ms"] for run in again["prompts"][0]["runs"]] == times[0]
    assert [run["ms"] for run in again["prompts"][1]["runs"]] != times[1]


def test_runs_of_another_version_of_the_code_are_made_again(prompts, tmp_path, monkeypatch):
    out = tmp_path / "out"
    words = ("--prompts", str(prompts), "--cache", "dual", "--record", "steps", "--out", str(out))
    for version in ("old", "new"):
        monkeypatch.setattr("engine.batch.journal.code_version", lambda *names, v=version: v)
        main((*words, *SHORT))
    assert len((out / "runs.jsonl").read_text().splitlines()) == 2 * 4
    found = json.loads((out / "results.json").read_text())["aggregates"]["settings"]
    assert [row["runs"] for row in found] == [2, 2]


def test_a_stopped_batch_ends_with_the_status_of_an_interruption(prompts, monkeypatch, capsys):
    def stop_after_the_first(one):
        signal.raise_signal(signal.SIGINT)
        return ""

    monkeypatch.setattr("engine.batch.__main__._progress", stop_after_the_first)
    with pytest.raises(SystemExit) as ended:
        main(("--prompts", str(prompts), "--cache", "dual", *SHORT))
    assert ended.value.code == 130
    assert "the others were not made" in capsys.readouterr().out


def test_a_batch_that_was_stopped_in_its_last_recording_has_that_status_too(prompts, monkeypatch):
    def stop_after_the_last(one):
        if one.done == one.total:
            signal.raise_signal(signal.SIGINT)
        return ""

    monkeypatch.setattr("engine.batch.__main__._progress", stop_after_the_last)
    words = ("--prompts", str(prompts), "--cache", "dual", *SHORT)
    main(words)
    with pytest.raises(SystemExit) as ended:
        main((*words, "--record", "steps"))
    assert ended.value.code == 130


def test_settings_of_a_file_are_compared_with_the_first(prompts, tmp_path, capsys):
    specs = tmp_path / "specs.json"
    specs.write_text(json.dumps([{"name": "one"}, {"name": "two", "unmasker": "threshold"}]))
    main(("--prompts", str(prompts), "--specs", str(specs), *SHORT))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["one", "two"]


@pytest.mark.parametrize("command", [main, advise])
@pytest.mark.parametrize("flag", ["--problems", "--shots"])
def test_flags_of_drawn_problems_are_refused_beside_a_file(prompts, command, flag, capsys):
    with pytest.raises(SystemExit) as ended:
        command(("--prompts", str(prompts), flag, "2", *SHORT))
    assert ended.value.code == 2
    assert f"error: {flag}: it is of --family; leave it out" in capsys.readouterr().err


def test_an_estimate_of_kept_runs_says_a_time_and_leaves_the_results(prompts, tmp_path, capsys):
    out = tmp_path / "out"
    words = ("--prompts", str(prompts), "--out", str(out), *SHORT)
    main(words)
    before = (out / "results.json").read_bytes()
    capsys.readouterr()
    main((*words, "--estimate"))
    assert "1 of 2 runs, about 0 s left" in capsys.readouterr().err
    assert (out / "results.json").read_bytes() == before


def test_a_run_that_failed_says_why(tmp_path, capsys):
    path = tmp_path / "prompts.txt"
    path.write_text("What is 4 + 5?\n" + "7 " * 3_900)
    main(("--prompts", str(path), *SHORT))
    assert "Runs that failed: 1; the first one: prompt: " in capsys.readouterr().out


def test_a_batch_of_which_every_run_failed_ends_with_an_error(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("7 " * 3_900)
    with pytest.raises(SystemExit) as ended:
        main(("--prompts", str(path), *SHORT))
    assert ended.value.code == 1


def test_a_row_may_not_ask_for_what_a_batch_cannot_do(prompts, tmp_path):
    specs = tmp_path / "specs.json"
    specs.write_text(json.dumps([{"name": "one"}, {"name": "two", "fixed": [[1, 5]]}]))
    with pytest.raises(SystemExit, match=r"^error: settings: a batch takes no start, fixed tokens"):
        main(("--prompts", str(prompts), "--specs", str(specs), *SHORT))


@pytest.mark.parametrize(
    ("field", "said"),
    [({"prompt": "2 + 3"}, "prompt: those of --prompts or --family are run; leave it out"),
     ({"record": "layers"}, "record: leave it out; --record records runs of their own")],
)  # fmt: skip
def test_a_row_may_not_say_what_flags_decide_for_all_rows(field, said, prompts, tmp_path):
    specs = tmp_path / "specs.json"
    specs.write_text(json.dumps([{"name": "one"}, {"name": "two"} | field]))
    with pytest.raises(SystemExit, match=f"^error: specs: two: {said}$"):
        main(("--prompts", str(prompts), "--specs", str(specs), *SHORT))


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--record-every", "2"), "--record-every: only --record layers and --record probe record"),
     (("--record", "steps", "--record-layers", "1"), "--record-layers: only --record layers and"),
     (("--record", "layers", "--probe-steps", "4"), "--probe-steps: only --record probe probes")],
)  # fmt: skip
def test_flags_of_a_recording_need_one(words, said, prompts, capsys):
    with pytest.raises(SystemExit):
        main(("--prompts", str(prompts), *words, *SHORT))
    assert said in capsys.readouterr().err


def test_timed_runs_are_not_recorded(prompts, tmp_path):
    words = ("--record", "layers", "--record-layers", "1", "--out", str(tmp_path), *SHORT)
    main(("--prompts", str(prompts), "--cache", "dual", *words))
    rows = json.loads((tmp_path / "results.json").read_text())["settings"]
    assert [row["spec"]["record"] for row in rows] == ["off", "off"]


@pytest.mark.parametrize("command", [main, advise])
def test_no_command_has_a_flag_of_images_which_none_takes(command, prompts, capsys):
    with pytest.raises(SystemExit):
        command(("--prompts", str(prompts), "--keep-after-image", "true"))
    assert "unrecognized arguments: --keep-after-image" in capsys.readouterr().err


def test_a_name_that_cannot_be_written_is_refused_before_the_runs(prompts, tmp_path):
    specs = tmp_path / "specs.json"
    specs.write_text(json.dumps([{"name": "half \ud800"}]))
    with pytest.raises(SystemExit, match=r"^error: specs: name: 'half \\ud800' holds a control"):
        main(("--prompts", str(prompts), "--specs", str(specs), *SHORT))


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--prompts", "nowhere.jsonl"), "error: prompts: nowhere.jsonl is not readable"),
     (("--family", "balance", "--problems", "0"), "error: problems: 0 is outside"),
     (("--family", "balance", "--cache", "nope"), "error: cache: "),
     (("--family", "balance", "--seed", "one"), "error: seed: expected a whole number"),
     (("--family", "balance", "--chat", "no"), "error: chat: expected true or false"),
     (("--family", "balance", "--model", "/nowhere"), "error: config.json: missing"),
     (("--family", "balance", "--specs", "{nested}"), "error: specs: .* is not readable as JSON")],
)  # fmt: skip
def test_a_wrong_flag_is_named(words, said, tmp_path):
    nested = tmp_path / "nested.json"
    nested.write_text("[" * 100_000)
    words = [word.format(nested=nested) for word in words]
    with pytest.raises(SystemExit, match=f"^{said}"):
        main(words)


def test_the_help_lists_the_values_of_a_flag(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    for flag in ("--dtype {float32,", "--quota.score {confidence,", "--frozen.fuse {true,false}"):
        assert f"  {flag}" in shown


def test_the_help_says_the_defaults_of_settings(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for words in ("decode. (default: 64) --", "(default: one a position) --", "(default: true) --",
                  "empty: only at its start. --"):  # fmt: skip
        assert words in shown


def test_a_default_that_a_command_replaces_is_not_said():
    parser = command_parser("any", None)
    add_spec_flags(parser, {"dtype": "bfloat16"}, seed="other values")
    shown = " ".join(parser.format_help().split())
    assert "else float32. (default: bfloat16)" in shown
    assert "--seed SEED other values --dtype" in shown


@pytest.mark.parametrize("chat", [True, False])
def test_the_chat_template_can_be_switched_off(chat, prompts, tmp_path):
    out = tmp_path / "out"
    main(("--prompts", str(prompts), "--chat", str(chat).lower(), "--out", str(out), *SHORT))
    (row,) = json.loads((out / "results.json").read_text())["settings"]
    assert row["spec"]["chat"] is chat


@pytest.mark.parametrize("shots", ["-3", "99"])
def test_worked_examples_are_as_many_as_on_the_page(shots, capsys):
    with pytest.raises(SystemExit):
        main(("--family", "balance", "--shots", shots))
    assert "argument --shots: invalid choice" in capsys.readouterr().err


def test_recorded_runs_are_summed_up_and_kept_for_a_continuation(prompts, tmp_path, capsys):
    out = tmp_path / "out"
    words = ("--prompts", str(prompts), "--cache", "dual", "--out", str(out), *SHORT)
    main((*words, "--estimate", "--record", "layers"))
    said = capsys.readouterr().out
    assert "2 of 4 runs; the others were not made." in said
    assert "plain decoding: 1 runs in the aggregates." in said
    kept = {path: path.stat().st_mtime_ns for path in (out / "recordings").iterdir()}
    main((*words, "--record", "layers"))
    again = json.loads((out / "results.json").read_text())
    assert {path for path in (out / "recordings").iterdir()} == set(kept)
    plain, dual = again["aggregates"]["settings"]
    assert (plain["runs"], dual["runs"]) == (2, 2)
    assert "dual, quota: 2 runs in the aggregates." in capsys.readouterr().out
    assert len(dual["drift"]["mean"][0]) == dual["layers"]
    assert all(run["reason"] == "done" for row in again["prompts"] for run in row["runs"])
