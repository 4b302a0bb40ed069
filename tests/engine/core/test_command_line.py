"""Errors of commands: which option they name."""

from argparse import Namespace
from pathlib import Path

import pytest

from engine.bench.synthetic_trace import main as synthetic
from engine.core.command_line import command_parser, failure, table_command

SMALL = ("--layers", "1", "--steps", "2", "--positions", "4")


@pytest.mark.parametrize("place", ["", "file/trace.npz"])
def test_a_file_that_cannot_be_written_is_named_with_its_option(place, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(SystemExit, match=r"^error: out: .* cannot be used .*; name another$"):
        synthetic([*SMALL, "--out", str(tmp_path / place)])


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


def test_the_option_is_that_of_the_file():
    args = Namespace(steps=3, seed=None, out=Path("kept"), image=[Path("a.png"), Path("b.png")])
    missing = FileNotFoundError(2, "No such file", "b.png")
    assert str(failure(missing, args)).startswith("error: image: b.png cannot be used (No such")
    within = PermissionError(13, "Permission denied", "kept/runs.jsonl")
    assert str(failure(within, args)).startswith("error: out: kept/runs.jsonl cannot be used")
    other = PermissionError(13, "Permission denied", "elsewhere")
    assert str(failure(other, args)) == f"error: {other}"
    assert str(failure(ValueError("seed: give one"), args)) == "error: seed: give one"


def test_output_whose_reader_ends_first_is_no_error_of_a_command():
    broken = BrokenPipeError(32, "Broken pipe")
    assert failure(broken, Namespace(out=Path("kept"))) is broken


def test_a_table_that_cannot_be_written_ends_the_command(tmp_path, monkeypatch):
    readme = tmp_path / "README.md"
    readme.write_text("<!-- rows -->\n<!-- end of rows -->\n")

    def refuse(path, data):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("engine.core.tables.write_atomically", refuse)
    with pytest.raises(SystemExit, match=r"^error: .*Permission denied: .*README.md"):
        table_command("rows", None, lambda: "| a |\n", "rows", readme, ["--write-readme"])
