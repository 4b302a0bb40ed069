"""Errors of commands: which option they name."""

import os
import sys
from argparse import Namespace
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from engine.__main__ import COMMANDS
from engine.__main__ import main as engine_main
from engine.bench.synthetic_trace import main as synthetic
from engine.core.command_line import command_parser, failure, make_out, table_command
from engine.core.variables import KERNELS

SMALL = ("--layers", "1", "--steps", "2", "--positions", "4")


@pytest.mark.parametrize("place", ["", "file/trace.npz"])
def test_a_file_that_cannot_be_written_is_named_with_its_option(place, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(SystemExit, match=r"^error: out: .* cannot be used .*; name another$"):
        synthetic([*SMALL, "--out", str(tmp_path / place)])


def test_a_folder_in_which_nothing_can_be_written_is_refused(tmp_path, monkeypatch):
    def refuse(dir):
        raise PermissionError(13, "Permission denied", str(dir))

    make_out(tmp_path / "new")
    assert not list((tmp_path / "new").iterdir())
    monkeypatch.setattr("engine.core.files.tempfile.TemporaryFile", refuse)
    with pytest.raises(ValueError, match=r"^--out: .* cannot be used .* \(Permission denied\)"):
        make_out(tmp_path)


def test_an_empty_path_is_refused_and_not_the_current_folder(capsys):
    parser = command_parser("any", None)
    parser.add_argument("--out", type=Path)
    one = parser.add_subparsers().add_parser("part")
    one.add_argument("--init", type=Path)
    assert parser.parse_args(["--out", "."]).out == Path()
    for given, name in ((["--out", ""], "--out"), (["part", "--init", ""], "--init")):
        with pytest.raises(SystemExit):
            parser.parse_args(given)
        assert f"argument {name}: it is empty; name a file or a folder" in capsys.readouterr().err


def test_the_help_of_an_option_ends_with_its_default():
    parser = command_parser("any", None)
    parser.add_argument("--shots", type=int, default=0, help="examples")
    parser.add_argument("--sizes", type=float, nargs=2, default=(0.5, 1.0), help="a range")
    parser.add_argument("--form", default="5%", help="of figures")
    parser.add_argument("--named", default=3, help="by default three")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--images", action="append", default=[], help="files")
    parser.add_argument("--out", type=Path, help="a folder")
    one = parser.add_subparsers().add_parser("part")
    one.add_argument("--steps", default=7, help="of the part")
    shown = " ".join(parser.format_help().split())
    for words in (
        "--shots SHOTS examples (default: 0) --", "a range (default: 0.5 1.0) --",
        "of figures (default: 5%) --", "--named NAMED by default three --", "--json as JSON --",
        "--images IMAGES files --", "--out OUT a folder",
    ):  # fmt: skip
        assert words in shown
    assert "(default" not in shown.partition("--out OUT a folder")[2]
    assert "of the part (default: 7)" in one.format_help()


@pytest.mark.parametrize("words", [*([name] for name in COMMANDS), ["train", "run"]])
def test_no_help_of_a_command_shows_a_default_that_is_no_value(words, capsys):
    with pytest.raises(SystemExit):
        engine_main([*words, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert not {one for one in ("None", "False", "[]", "()") if f"(default: {one})" in shown}
    assert "(default: )" not in shown


@pytest.mark.parametrize(
    "words",
    [
        ["batch", "--family", "balance"], ["advise", "--family", "balance"], ["bench"],
        ["tables", "--out", "out"], ["train", "run", "--out", "out"], ["sweep"], ["calibrate"],
        ["estimate-error"], ["examples"], ["repeat", "card"], ["causal-exam", "--folder", "model"],
    ],
)  # fmt: skip
def test_a_command_that_shares_no_work_is_not_started_by_several_processes(
    words, monkeypatch, tmp_path
):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.chdir(tmp_path)
    said = "^error: WORLD_SIZE is 2, but each .* start this command without torchrun"
    with pytest.raises(SystemExit, match=said):
        engine_main(words)
    assert list(tmp_path.iterdir()) == []


def test_one_process_of_a_launcher_is_alone(monkeypatch):
    parser = command_parser("any", None, alone=True)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    parser.parse_args([])
    monkeypatch.setenv("WORLD_SIZE", "1")
    parser.parse_args([])
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit, match=r"^error: WORLD_SIZE is 2, .* or unset WORLD_SIZE if"):
        parser.parse_args([])
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(SystemExit, match=r"^error: WORLD_SIZE must be a whole number, not 'two'"):
        parser.parse_args([])


@pytest.mark.parametrize("words", [["bench"], ["evaluate"], ["batch", "--family", "balance"]])
def test_an_unknown_choice_of_kernels_is_refused_before_the_work(words, monkeypatch):
    monkeypatch.setenv(KERNELS, "onednn")
    with pytest.raises(SystemExit, match=rf"^error: {KERNELS}: 'onednn' is unknown; set it to"):
        engine_main(words)


@pytest.mark.parametrize(
    ("words", "shown"),
    [(["batch", "--help"], "usage: python -m engine batch"), (["catalog"], "cache `none`"),
     (["train", "card", "--help"], "usage: python -m engine train card")],
)  # fmt: skip
def test_help_and_cheap_commands_may_be_started_by_several_processes(
    words, shown, monkeypatch, capsys
):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with suppress(SystemExit):
        engine_main(words)
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["tables", "--problems", "5"], ["tables", "--timed", "1"], ["tables", "--rounds", "2"],
        ["fronts", "--out", "x", "--publish", "--held-out", "4"],
        ["fronts", "--out", "x", "--publish", "--candidates", "2"],
        ["bench", "--suite", "gpu", "--write-readme", "--rounds", "1"],
    ],
)  # fmt: skip
def test_a_shorter_run_is_not_published(words, capsys):
    with pytest.raises(SystemExit):
        engine_main(words)
    assert f"error: {words[-2]}: a shorter run is not published; " in capsys.readouterr().err


@pytest.mark.parametrize("words", [["tables"], ["fronts", "--out", "x"], ["synthetic"]])
def test_a_negative_seed_is_refused(words, capsys):
    """It would draw the problems of its absolute value."""
    with pytest.raises(SystemExit):
        engine_main([*words, "--seed", "-7"])
    assert "argument --seed: '-7' is not a whole number from 0" in capsys.readouterr().err


def test_the_option_is_that_of_the_file():
    args = Namespace(steps=3, seed=None, out=Path("kept"), image=[Path("a.png"), Path("b.png")])
    missing = FileNotFoundError(2, "No such file", "b.png")
    assert str(failure(missing, args)).startswith("error: image: b.png cannot be used (No such")
    within = PermissionError(13, "Permission denied", "kept/runs.jsonl")
    assert str(failure(within, args)).startswith("error: out: kept/runs.jsonl cannot be used")
    other = PermissionError(13, "Permission denied", "elsewhere")
    assert str(failure(other, args)) == f"error: {other}"
    assert str(failure(ValueError("seed: give one"), args)) == "error: seed: give one"


def full_gpu(*given):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def full_host(*given):
    torch.empty(1 << 60, dtype=torch.uint8)


def full_interpreter(*given):
    raise MemoryError


@pytest.mark.parametrize(
    ("full", "found"),
    [(full_gpu, r" \(CUDA out of memory.*\)"), (full_host, r" \(.*DefaultCPUAllocator: .*\)"),
     (full_interpreter, "")],
)  # fmt: skip
@pytest.mark.parametrize(
    ("command", "work"),
    [("bench", "engine.bench.__main__._model"), ("sweep", "engine.bench.ratio_sweep.measure"),
     ("evaluate", "engine.evaluate.__main__._run")],
)  # fmt: skip
def test_memory_that_runs_out_ends_a_command_with_the_remedies(
    command, work, full, found, monkeypatch
):
    monkeypatch.setattr(work, full)
    said = "^error: the device ran out of memory; give shorter prompts .* or another device"
    with pytest.raises(SystemExit, match=f"{said}{found}$"):
        engine_main([command])


@pytest.mark.parametrize("said", ["shapes do not match", "handle was not allocated"])
def test_another_failure_of_a_command_keeps_its_traceback(said, monkeypatch):
    def broken(*given):
        raise RuntimeError(said)

    monkeypatch.setattr("engine.bench.__main__._model", broken)
    with pytest.raises(RuntimeError, match=said):
        engine_main(["bench"])


def test_output_whose_reader_ends_first_is_no_error_of_a_command():
    broken = BrokenPipeError(32, "Broken pipe")
    assert failure(broken, Namespace(out=Path("kept"))) is broken


@pytest.fixture
def output(monkeypatch):
    """Lets standard output go to a file descriptor, until the end of the test."""
    files = []

    def redirect(number):
        files.append(os.fdopen(number, "w"))
        monkeypatch.setattr(sys, "stdout", files[0])

    yield redirect
    for file in files:
        file.close()


COSTLY = "engine.bench.ratio_sweep.measure"  # replaced, so that the command prints at once


@pytest.mark.parametrize("printed", ["a line", "a line longer than the buffer" * 1_000])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_ends_a_command_without_a_traceback(printed, output, monkeypatch):
    monkeypatch.setattr(COSTLY, lambda rounds: printed)
    output(os.open("/dev/full", os.O_WRONLY))
    with pytest.raises(SystemExit, match=r"^error: the output cannot be written .*No space left"):
        engine_main(["sweep"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_another_error_is_told_though_the_disk_is_full(output, monkeypatch):
    def failing(rounds):
        sys.stdout.write("a line")
        raise ValueError("rounds: too many")

    monkeypatch.setattr(COSTLY, failing)
    output(os.open("/dev/full", os.O_WRONLY))
    with pytest.raises(SystemExit, match=r"^error: rounds: too many"):
        engine_main(["sweep"])


@pytest.mark.parametrize("words", [["sweep"], []])
def test_a_reader_that_ends_first_ends_a_command_with_status_1(words, output, monkeypatch):
    monkeypatch.setattr(COSTLY, lambda rounds: "a line")
    reader, writer = os.pipe()
    os.close(reader)
    output(writer)
    with pytest.raises(SystemExit) as ended:
        engine_main(words)
    assert ended.value.code == 1


def test_a_command_whose_output_is_closed_ends_as_usual(monkeypatch):
    monkeypatch.setattr(COSTLY, lambda rounds: "a line")
    monkeypatch.setattr(sys, "stdout", None)
    engine_main(["sweep"])


def test_a_table_that_cannot_be_written_ends_the_command(tmp_path, monkeypatch):
    readme = tmp_path / "README.md"
    readme.write_text("<!-- rows -->\n<!-- end of rows -->\n")

    def refuse(path, data):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("engine.core.tables.write_atomically", refuse)
    with pytest.raises(SystemExit, match=r"^error: .*Permission denied: .*README.md"):
        table_command("rows", None, lambda: "| a |\n", "rows", readme, ["--write-readme"])
