"""The bench command: suites, models and settings, and the tables in assets/results/README.md."""

import json
from dataclasses import replace
from xml.dom import minidom

import pytest
import torch

import engine.bench.__main__ as bench
from engine.bench import growth, report, suite, targets
from engine.bench.chart import svg
from engine.bench.models import BenchModels
from engine.catalog import check_model
from engine.config.spec import RunSpec
from engine.core.tables import RESULTS_README, section_marks
from engine.core.variables import KERNELS
from engine.models.kernels.choice import Kernels, ShapeClass
from engine.serve import drift_meter
from tests.support.micro import ROOT

LLADA = "llada:layers=2,d=32,heads=4,ffn=48,vocab=1100"
DREAM = "dream:layers=2,d=32,heads=4,kv=2,ffn=48,vocab=1100"
BLOCKS = "fast_dllm_v2:layers=2,d=32,heads=4,kv=2,ffn=48,vocab=1100,block=24"
SHORT = {"gen_length": 8, "block_length": 4, "steps": 8}


@pytest.fixture(autouse=True)
def results(monkeypatch, tmp_path):
    """A results file with the section of the GPU, in the working directory; restores threads."""
    before = torch.get_num_threads()
    text = "old\n".join(section_marks(bench.GPU_SECTION))
    path = tmp_path / RESULTS_README
    path.parent.mkdir(parents=True)
    path.write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    yield path
    torch.set_num_threads(before)


def section_of(text, name):
    start, end = section_marks(name)
    return text.partition(start)[2].partition(end)[0]


def command(capsys, *words):
    """The lines that the command prints, and the JSON of its last line."""
    bench.main(["--rounds", "1", *words])
    lines = capsys.readouterr().out.splitlines()
    return lines[:-1], json.loads(lines[-1])


def settings_file(folder, *entries):
    path = folder / "specs.json"
    path.write_text(json.dumps([SHORT | entry for entry in entries]))
    return str(path)


def test_settings_of_a_file_run_on_a_shape_with_and_without_recorder(tmp_path, capsys):
    specs = settings_file(tmp_path, {"name": "plain"}, {"name": "dual", "cache": "dual"})
    words = ("--model", LLADA, "--specs", specs, "--tokens", "5", "--record", "steps")
    lines, found = command(capsys, *words)
    rows = found["rows"]
    names = ["plain", "plain, recording steps", "dual", "dual, recording steps"]
    assert [row["name"] for row in rows] == names
    assert [row["prompt_tokens"] for row in rows] == [5] * 4
    assert [row["spec"]["record"] for row in rows] == ["off", "steps"] * 2
    assert [bool(row["floor"]) for row in rows] == [True, False] * 2
    assert rows[3]["same"] == 1
    assert found["environment"]["threads"] == 1
    assert sum(name in line for name in names for line in lines) >= 4


def test_the_conditions_of_a_table_name_the_sizes_of_all_its_rows(tmp_path, capsys):
    longer = {"gen_length": 12, "block_length": 4, "steps": 12}
    specs = settings_file(tmp_path, {"name": "short"}, {"name": "long"} | longer)
    lines, _ = command(capsys, "--model", LLADA, "--specs", specs, "--tokens", "5")
    assert any("answer of 8 in blocks of 4 or 12 in blocks of 4." in line for line in lines)


def test_a_checkpoint_decodes_a_problem_of_the_corpus(tmp_path, capsys):
    specs = settings_file(tmp_path, {"name": "one at once", "unmasker": "threshold"})
    folder = str(ROOT / "assets" / "models" / "tiny-llada")
    _, found = command(capsys, "--model", folder, "--specs", specs)
    (row,) = found["rows"]
    assert row["prompt_tokens"] > 300
    assert row["nfe"] <= 8
    assert "Question" in row["spec"]["prompt"]


def test_a_block_diffusion_model_runs_in_its_blocks_with_its_caches():
    info = BenchModels().info(BLOCKS)
    base = suite.own_blocks(RunSpec(model=BLOCKS), info)
    specs = [one.spec for one in suite.model_cases(base, info, 5)]
    assert [spec.cache for spec in specs] == ["none", "frozen", "sub_block"]
    assert {(one.gen_length, one.block_length) for one in specs} == {(144, 24)}
    for spec in specs:
        check_model(spec, info)


@pytest.mark.parametrize(
    ("words", "named"),
    [(("--model", "llada:width=3"), "model: .*width"),
     (("--model", LLADA, "--device", "auto"), "device"),
     (("--model", LLADA, "--dtype", "int8"), "dtype"),
     (("--model", "nowhere-at-all"), "model"),
     (("--model", LLADA, "--tokens", "4096"), "prompt")],
)  # fmt: skip
def test_an_invalid_option_is_named_in_the_error(capsys, words, named):
    with pytest.raises(SystemExit, match=f"^error: {named}"):
        command(capsys, *words)


def test_an_invalid_row_of_a_specs_file_is_named(tmp_path, capsys):
    specs = settings_file(tmp_path, {"name": "odd", "cache": "nope"})
    with pytest.raises(SystemExit, match=r"^error: specs: odd: cache"):
        command(capsys, "--model", LLADA, "--specs", specs)


@pytest.mark.parametrize("field", [{"prompt": "2 + 3"}, {"messages": [["user", "2 + 3"]]}])
def test_a_prompt_of_a_shape_is_refused(field, tmp_path, capsys):
    """It would be left out: a shape has no tokenizer of its own."""
    specs = settings_file(tmp_path, {"name": "odd"} | field)
    with pytest.raises(SystemExit, match=rf"^error: specs: odd: {next(iter(field))}: a shape gets"):
        command(capsys, "--model", LLADA, "--specs", specs, "--tokens", "5")


@pytest.mark.parametrize("words", [("--rounds", "0"), ("--threads", "all"), ("--tokens", "-1")])
def test_an_invalid_number_is_rejected(capsys, words):
    with pytest.raises(SystemExit):
        command(capsys, *words)
    assert f"argument {words[0]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [("--suite", "cpu", "--record", "steps"), ("--suite", "gpu", "--specs", "x.json"),
     ("--suite", "gpu", "--tokens", "64"), ("--suite", "growth", "--dtype", "bfloat16"),
     ("--model", LLADA, "--write-readme"), ("--suite", "cpu", "--model", LLADA),
     ("--model", "tiny-llada", "--tokens", "64")],
)  # fmt: skip
def test_options_that_exclude_each_other_are_rejected(capsys, words):
    with pytest.raises(SystemExit) as ended:
        command(capsys, *words)
    assert ended.value.code == 2
    assert f"error: {words[2]}" in capsys.readouterr().err.replace("argument ", "")


def test_the_fastest_number_of_threads_is_used_and_printed(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "best_threads", lambda works: len(works[0]()))
    specs = settings_file(tmp_path, {"name": "plain"})
    lines, found = command(
        capsys, "--model", LLADA, "--specs", specs, "--threads", "auto", "--tokens", "5"
    )
    assert found["environment"]["threads"] == bench.TRIED_STEPS
    assert lines[0].startswith(f"{bench.TRIED_STEPS} of ")


def test_the_cpu_suite_has_all_methods_at_both_prompts():
    rows = list(suite.cpu_suite("cpu"))
    plain = [one for one in rows if not one.baseline]
    assert [(one.tokens, one.name) for one in plain] == [
        (tokens, name) for tokens in (64, 512) for name in suite.speed_settings()
    ]
    spec = plain[0].spec
    assert (spec.gen_length, spec.block_length, spec.steps, spec.dtype) == (128, 32, 128, "float32")
    assert len(suite.speed_settings()) == 7
    assert [one.baseline for one in rows if one.eager] == [suite.DUAL] * 2
    variants = [(one.spec.dtype, one.spec.record, one.baseline) for one in rows if one.baseline]
    assert variants[:2] == [
        ("bfloat16", "off", suite.PLAIN), ("float32", "layers", suite.PLAIN),
    ]  # fmt: skip
    recorded = [(one.tokens, one.baseline) for one in rows if one.spec.record == "layers"]
    assert recorded == [
        (tokens, name) for tokens in (64, 512) for name in (suite.PLAIN, suite.DUAL)
    ]
    torch_alone = [(one.tokens, one.baseline) for one in rows if one.torch_routines]
    assert torch_alone == recorded
    assert {(one.group, one.baseline) for one in rows if one.baseline} <= {
        (one.group, one.name) for one in plain
    }


def test_the_cpu_suite_prints_its_rows(monkeypatch, results, capsys):
    monkeypatch.setattr(suite, "CPU_SHAPE", LLADA)
    monkeypatch.setattr(suite, "CPU_PROMPTS", (6,))
    monkeypatch.setattr(suite, "speed_settings", lambda: {suite.PLAIN: SHORT})
    monkeypatch.delenv(KERNELS)
    lines, found = command(capsys, "--suite", "cpu")
    assert len(found["rows"]) == 4
    assert sum("| prompt 6" in line for line in lines) == 4
    *chosen, alone = [row["measured_routines"] for row in found["rows"]]
    assert (chosen, alone) == ([True] * 3, False)
    assert found["rows"][-1]["same"] == 1
    assert "1 round(s)" in "".join(lines)
    with pytest.raises(SystemExit):
        command(capsys, "--suite", "cpu", "--write-readme")
    assert "old" in results.read_text("utf-8")


@pytest.mark.parametrize(
    ("given", "words", "measured"),
    [("", (), True), ("torch", (), False), ("", ("--kernels", "torch"), False),
     ("torch", ("--kernels", "measured"), True)],
)  # fmt: skip
def test_measured_routines_are_printed_where_they_are_used(
    given, words, measured, monkeypatch, tmp_path, capsys
):
    """Times that an earlier run left in the cache are none of a run with torch's routines."""
    times = {ShapeClass.of("linear", torch.float32, 8, (32, 32)): {"torch": 1e-6, "onednn": 5e-7}}
    monkeypatch.setattr(bench, "machine_kernels", lambda shapes: Kernels(times))
    monkeypatch.setattr("engine.bench.models.choose_kernels", lambda adapter: None)
    monkeypatch.setenv(KERNELS, given)
    specs = settings_file(tmp_path, {"name": "plain"})
    lines, found = command(capsys, "--model", LLADA, "--specs", specs, "--tokens", "5", *words)
    assert any(line.startswith("| operation") for line in lines) == measured
    assert any("torch's routines only" in line for line in lines) != measured
    assert ("kernels" in found["environment"]) != measured


def test_a_results_file_without_the_section_is_named_before_the_suite(results, monkeypatch, capsys):
    results.write_text("", "utf-8")
    monkeypatch.setitem(bench.SUITES, "gpu", lambda args: pytest.fail("the suite was run"))
    said = f"^error: {RESULTS_README}: <!-- {bench.GPU_SECTION} --> is missing"
    with pytest.raises(SystemExit, match=said):
        bench.main(["--suite", "gpu", "--write-readme"])


@pytest.mark.parametrize(("shape", "group"), [(LLADA, "one"), (DREAM, "other")])
def test_the_gpu_suite_times_every_cache(monkeypatch, shape, group):
    monkeypatch.setattr(suite, "GPU_MODELS", {shape: group})
    monkeypatch.setattr(suite, "GPU_PROMPT", 6)
    monkeypatch.setattr(drift_meter, "PROBLEMS", 1)
    monkeypatch.setattr(targets, "SIDE", 8)
    monkeypatch.setattr(targets, "COPIED", 64)
    cases = [
        replace(one, spec=replace(one.spec, dtype="float32", **SHORT))
        for one in suite.gpu_suite("cpu")
    ]
    found, goals = suite.run_cases(cases, 1, with_targets=True)
    assert [row["name"] for row in found if not row["baseline"]] == suite.full_caches()
    eager = [row for row in found if row["name"].endswith(", eager")]
    captured = [name for name in suite.full_caches() if name in targets.COMPARED]
    assert [row["baseline"] for row in eager] == captured
    assert all(row["same"] == 1 and row["waits"] is None for row in eager)
    assert {"dual", "spa_cache", "dare_o"} <= set(suite.full_caches())
    assert all(row["kinds"]["full"]["ms"] > 0 and row["peak_bytes"] > 0 for row in found)
    assert [goal["cache"] for goal in goals] == ["none", "dual", "dllm_cache", "spa_cache"]
    assert all(goal["reached"] > 0 for goal in goals)
    assert len(report.captured_table(found).splitlines()) == 2 + len(captured)


def test_captured_and_eager_forwards_share_a_row():
    row = {"group": "LLaDA-8B", "name": "dual", "ms": 2.0, "waits": [0.0, 1.0]}
    other = row | {"name": "spa_cache"}
    found = [row, row | {"name": "dual, eager", "ms": 5.0, "speed_up": 0.41, "same": 0.5}, other]
    lines = report.captured_table(found).splitlines()
    assert [cell.strip() for cell in lines[2].split("|")[1:-1]] == [
        "LLaDA-8B", "dual", "2.00", "5.00", "2.50x", "50.0 %", "0.00", "1.00",
    ]  # fmt: skip
    assert len(lines) == 3


def test_targets_are_ratios_to_the_measured_rates():
    step = {"ms": 1.0, "flops": 7e8, "bytes": 2e6, "weight_bytes": 1e6}
    found = [
        {"group": "LLaDA-8B", "name": name, "kinds": {"full": step, "partial": step}, "waits": None}
        for name in ("none", "dual", "dllm_cache")
    ]
    goals = targets.check(found, {"flops_per_s": [1e12, 1e12], "bytes_per_s": [1e9]})
    assert [goal["cache"] for goal in goals] == ["none", "dual", "dllm_cache"]
    assert [goal["reached"] for goal in goals] == pytest.approx([0.7, 1.0, 0.5])
    assert all(goal["met"] for goal in goals)
    slow = targets.check(found, {"flops_per_s": [1e13], "bytes_per_s": [1e10]})
    assert not any(goal["met"] for goal in slow)
    assert targets.table(goals).splitlines()[2].endswith("| 0.70    | yes |")


@pytest.mark.parametrize(
    ("waits", "peak", "met"),
    [([0.0, 2.0], 102, [True, True]), ([0.5, 1.0], 96, [False, False]), (None, 100, [])],
)
def test_waits_and_memory_of_a_gpu_have_targets(waits, peak, met):
    row = {
        "group": "LLaDA-8B", "name": "dual", "kinds": {}, "waits": waits, "peak_bytes": peak,
        "planned_bytes": 100,
    }  # fmt: skip
    found = targets.check([row], {"flops_per_s": [1.0], "bytes_per_s": [1.0]})
    assert [goal["met"] for goal in found] == met
    assert [goal["reached"] for goal in found] == ([] if waits is None else [waits[0], peak / 100])


def test_a_suite_without_its_device_writes_one_line(results, capsys):
    if torch.cuda.is_available():
        pytest.skip("the suite would run")
    lines, found = command(capsys, "--suite", "gpu")
    assert found["rows"] == []
    assert "Not run: no cuda device was available." in lines
    assert not any(line.startswith("| operation") for line in lines)
    before = results.read_text("utf-8")
    for device in ("cuda", "cpu"):
        with pytest.raises(SystemExit, match=rf"^error: --write-readme: {device} is no GPU"):
            bench.main(["--suite", "gpu", "--write-readme", "--device", device])
    assert results.read_text("utf-8") == before


def test_the_growth_suite_has_a_row_for_every_point(monkeypatch, capsys):
    monkeypatch.setattr(growth, "CPU_SHAPE", LLADA.replace("layers=2", "layers=12"))
    monkeypatch.setattr(growth, "BASE", {"prompt": 6, "answer": 64, "layers": 2, "batch": 1})
    monkeypatch.setattr(growth, "AXES", {"prompt": (6, 12), "layers": (1, 2), "batch": (1, 2)})
    lines, found = command(capsys, "--suite", "growth")
    rows = found["rows"]
    assert len(rows) == 6 * len(growth.SHOWN)
    assert all(row["ms"] > 0 for row in rows)
    assert any(line.startswith("| layers | 2") for line in lines)
    drawn = minidom.parseString(svg(growth.panels(rows), "ms"))
    assert len(drawn.getElementsByTagName("polyline")) == 3 * len(growth.SHOWN)
