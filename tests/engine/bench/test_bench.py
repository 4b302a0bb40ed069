"""The benchmark as a command: suites, any model with any settings, the README's tables."""

import json
import sys
from dataclasses import replace
from xml.dom import minidom

import pytest
import torch

import engine.bench.__main__ as bench
from engine.bench import growth, report, suite, targets
from engine.core.tables import section_marks
from tests.support.micro import ROOT

LLADA = "llada:layers=2,d=32,heads=4,ffn=48,vocab=900"
DREAM = "dream:layers=2,d=32,heads=4,kv=2,ffn=48,vocab=900"
SHORT = {"gen_length": 8, "block_length": 4, "steps": 8}
README = (ROOT / "README.md").read_text("utf-8")
SECTIONS = [section for section, _ in bench.SUITES.values()]


@pytest.fixture(autouse=True)
def threads_and_marks(monkeypatch, tmp_path):
    before = torch.get_num_threads()
    text = "".join(f"{start}old\n{end}\n" for start, end in map(section_marks, SECTIONS))
    (tmp_path / "README.md").write_text(text, "utf-8")
    (tmp_path / "assets" / "results").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    yield
    torch.set_num_threads(before)


def between(text, name):
    """What stands between the marks of a name."""
    start, end = section_marks(name)
    return text.partition(start)[2].partition(end)[0]


def command(monkeypatch, capsys, *words):
    """What a command prints, and its last line read."""
    monkeypatch.setattr(sys, "argv", ["bench", "--rounds", "1", *words])
    bench.main()
    lines = capsys.readouterr().out.splitlines()
    return lines[:-1], json.loads(lines[-1])


def settings_file(folder, *entries):
    path = folder / "specs.json"
    path.write_text(json.dumps([SHORT | entry for entry in entries]))
    return str(path)


def test_any_settings_run_on_a_shape_with_the_recorder_beside(monkeypatch, tmp_path, capsys):
    specs = settings_file(tmp_path, {"name": "plain"}, {"name": "dual", "cache": "dual"})
    lines, found = command(
        monkeypatch,
        capsys,
        "--model",
        LLADA,
        "--specs",
        specs,
        "--tokens",
        "5",
        "--record",
        "steps",
    )
    rows = found["rows"]
    names = ["plain", "plain, recording steps", "dual", "dual, recording steps"]
    assert [row["name"] for row in rows] == names
    assert [row["prompt_tokens"] for row in rows] == [5] * 4
    assert [row["spec"]["record"] for row in rows] == ["off", "steps"] * 2
    assert [bool(row["floor"]) for row in rows] == [True, False] * 2
    assert rows[3]["same"] == 1
    assert found["environment"]["threads"] == 1
    assert sum(name in line for name in names for line in lines) >= 4


def test_a_checkpoint_is_asked_a_problem_of_the_corpus(monkeypatch, tmp_path, capsys):
    specs = settings_file(tmp_path, {"name": "one at once", "unmasker": "threshold"})
    folder = str(ROOT / "assets" / "models" / "tiny-llada")
    _, found = command(monkeypatch, capsys, "--model", folder, "--specs", specs)
    (row,) = found["rows"]
    assert row["prompt_tokens"] > 300
    assert row["nfe"] <= 8
    assert "Question" in row["spec"]["prompt"]


@pytest.mark.parametrize(
    ("words", "named"),
    [(("--model", "llada:width=3"), "model: .*width"),
     (("--model", LLADA, "--device", "auto"), "device"),
     (("--model", LLADA, "--dtype", "int8"), "dtype"),
     (("--model", "nowhere-at-all"), "model"),
     (("--model", LLADA, "--tokens", "4096"), "prompt")],
)  # fmt: skip
def test_what_cannot_run_is_named(monkeypatch, capsys, words, named):
    with pytest.raises(SystemExit, match=f"^error: {named}"):
        command(monkeypatch, capsys, *words)


def test_an_entry_that_is_wrong_is_named(monkeypatch, tmp_path, capsys):
    specs = settings_file(tmp_path, {"name": "odd", "cache": "nope"})
    with pytest.raises(SystemExit, match=r"^error: specs: odd: cache"):
        command(monkeypatch, capsys, "--model", LLADA, "--specs", specs)


@pytest.mark.parametrize("words", [("--rounds", "0"), ("--threads", "all"), ("--tokens", "-1")])
def test_a_number_that_is_none_is_refused(monkeypatch, capsys, words):
    with pytest.raises(SystemExit):
        command(monkeypatch, capsys, *words)
    assert f"argument {words[0]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [("--suite", "cpu", "--record", "steps"), ("--suite", "gpu", "--specs", "x.json"),
     ("--model", LLADA, "--write-readme"), ("--suite", "cpu", "--model", LLADA)],
)  # fmt: skip
def test_words_that_do_not_go_together_are_refused(monkeypatch, capsys, words):
    with pytest.raises(SystemExit):
        command(monkeypatch, capsys, *words)
    assert words[2] in capsys.readouterr().err


def test_the_fastest_number_of_threads_is_taken_and_told(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "best_threads", lambda works: len(works[0]()))
    specs = settings_file(tmp_path, {"name": "plain"})
    lines, found = command(
        monkeypatch, capsys, "--model", LLADA, "--specs", specs, "--threads", "auto"
    )
    assert found["environment"]["threads"] == bench.REHEARSED
    assert lines[0].startswith(f"{bench.REHEARSED} of ")


def test_the_suite_of_a_cpu_holds_what_it_promises():
    rows = list(suite.cpu("cpu"))
    plain = [one for one in rows if not one.beside]
    assert [(one.tokens, one.name) for one in plain] == [
        (tokens, name) for tokens in (64, 512) for name in suite.speed_settings()
    ]
    spec = plain[0].spec
    assert (spec.gen_length, spec.block_length, spec.steps, spec.dtype) == (128, 32, 128, "float32")
    assert len(suite.speed_settings()) == 7
    assert [one.beside for one in rows if one.eager] == [suite.DUAL] * 2
    beside = [(one.spec.dtype, one.spec.record, one.beside) for one in rows if one.beside]
    assert beside[:2] == [
        ("bfloat16", "off", suite.PLAIN), ("float32", "steps", suite.PLAIN),
    ]  # fmt: skip
    assert all((one.group, one.beside) in {(o.group, o.name) for o in plain}
               for one in rows if one.beside)  # fmt: skip


def test_the_suite_of_a_cpu_renews_its_table(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(suite, "CPU_SHAPE", LLADA)
    monkeypatch.setattr(suite, "CPU_PROMPTS", (6,))
    monkeypatch.setattr(suite, "speed_settings", lambda: {suite.PLAIN: {}})
    _, found = command(monkeypatch, capsys, "--suite", "cpu", "--write-readme")
    assert len(found["rows"]) == 3
    written = (tmp_path / "README.md").read_text("utf-8")
    section = between(written, "speed")
    assert section.count("| prompt 6 |") == 3
    assert "not run" not in section
    assert "1 round(s)" in section
    assert written.count("old") == 2


@pytest.mark.parametrize(("shape", "group"), [(LLADA, "one"), (DREAM, "other")])
def test_every_cache_is_timed_at_the_published_layout(monkeypatch, shape, group):
    monkeypatch.setattr(suite, "GPU_MODELS", {shape: group})
    monkeypatch.setattr(suite, "GPU_PROMPT", 6)
    monkeypatch.setattr(targets, "SIDE", 8)
    monkeypatch.setattr(targets, "COPIED", 64)
    settings = [
        replace(one, spec=replace(one.spec, dtype="float32", **SHORT)) for one in suite.gpu("cpu")
    ]
    found, goals = bench.run_settings(settings, 1, rated=True)
    assert [row["name"] for row in found if not row["beside"]] == suite.caches()
    eager = [row for row in found if row["name"].endswith(", eager")]
    assert [row["beside"] for row in eager] == [n for n in suite.caches() if n in suite.CAPTURED]
    assert all(row["same"] == 1 and row["waits"] is None for row in eager)
    assert {"dual", "spa_cache", "dual+dare_o"} <= set(suite.caches())
    assert all(row["kinds"]["full"]["ms"] > 0 and row["peak_bytes"] > 0 for row in found)
    assert [goal["cache"] for goal in goals] == ["none", "dual", "dllm_cache", "spa_cache"]
    assert all(goal["reached"] > 0 for goal in goals)
    text = bench.size_text(found, goals, "here")
    assert "not run" not in text


def test_captured_forwards_stand_beside_eager_ones():
    row = {"group": "LLaDA-8B", "name": "dual", "ms": 2.0, "waits": [0.0, 1.0]}
    found = [row, row | {"name": "dual, eager", "ms": 5.0, "speed_up": 0.4, "same": 0.5}]
    lines = report.table(found).splitlines()
    assert [cell.strip() for cell in lines[3].split("|")[1:-1]] == [
        "LLaDA-8B", "dual", "2.00", "5.00", "2.50x", "50.0%", "0.00", "1.00",
    ]  # fmt: skip
    assert sum(report.NOT_RUN in line for line in lines) == len(lines) - 3


def test_targets_are_ratios_to_what_the_device_can():
    step = {"ms": 1.0, "flops": 7e8, "bytes": 2e6, "weight_bytes": 1e6}
    found = [
        {"group": "LLaDA-8B", "name": name, "kinds": {"full": step, "partial": step}}
        for name in ("none", "dual", "dllm_cache")
    ]
    goals = targets.check(found, {"flops_per_s": [1e12, 1e12], "bytes_per_s": [1e9]})
    assert [goal["reached"] for goal in goals] == pytest.approx([0.7, 1.0, 0.5, None])
    assert [goal["met"] for goal in goals] == [True, True, True, None]
    slow = targets.check(found, {"flops_per_s": [1e13], "bytes_per_s": [1e10]})
    assert [goal["met"] for goal in slow] == [False, False, False, None]
    lines = targets.table(goals).splitlines()
    assert lines[2].endswith("| 0.70    | yes |")
    assert lines[5].count("not run") == 1


def test_without_the_device_the_rows_say_so(monkeypatch, tmp_path, capsys):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    _, found = command(monkeypatch, capsys, "--suite", "gpu", "--write-readme")
    assert found["rows"] == []
    assert "No cuda device was at hand." in (tmp_path / "README.md").read_text("utf-8")


def test_growth_is_drawn(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(growth, "CPU_SHAPE", LLADA.replace("layers=2", "layers=12"))
    monkeypatch.setattr(growth, "BASE", {"prompt": 6, "answer": 64, "layers": 2, "batch": 1})
    monkeypatch.setattr(growth, "AXES", {"prompt": (6, 12), "layers": (1, 2), "batch": (1, 2)})
    lines, found = command(monkeypatch, capsys, "--suite", "growth", "--write-readme")
    rows = found["rows"]
    assert len(rows) == 6 * len(growth.SHOWN)
    assert all(row["ms"] > 0 for row in rows)
    assert any(line.startswith("| layers | 2") for line in lines)
    drawn = minidom.parse(str(tmp_path / bench.CHART))
    assert len(drawn.getElementsByTagName("polyline")) == 3 * len(growth.SHOWN)
    assert f"]({bench.CHART})" in (tmp_path / "README.md").read_text("utf-8")


def test_the_readme_has_a_line_for_every_row():
    for name, settings in (("speed", suite.cpu("cpu")), ("full size", suite.gpu("cuda"))):
        section = between(README, name)
        lines = [[cell.strip() for cell in line.split("|")[1:3]] for line in section.splitlines()]
        for one in settings:
            assert [one.group, one.name] in lines
    assert section_marks("growth")[0] in README
    if str(bench.CHART) in README:
        assert (ROOT / bench.CHART).is_file()
