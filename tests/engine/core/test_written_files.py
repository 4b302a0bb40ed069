"""Files that people wrote, and tables that people read."""

import errno
import os
import re
from pathlib import Path

import pytest

from engine.core.files import atomic_file, free_on_disk, read_json, write_atomically
from engine.core.tables import markdown_table, percentage


def test_a_json_file_may_begin_with_a_byte_order_mark(tmp_path):
    (tmp_path / "x.json").write_text('{"a": 1}', "utf-8-sig")
    assert read_json(tmp_path / "x.json", "x") == {"a": 1}


def test_a_folder_on_a_drive_that_does_not_exist_is_named(tmp_path, monkeypatch):
    assert free_on_disk(tmp_path / "not" / "yet") > 0
    with monkeypatch.context() as windows:
        windows.setattr(Path, "exists", lambda path: False)
        with pytest.raises(FileNotFoundError, match="No such drive: 'Z:/cache'"):
            free_on_disk(Path("Z:/cache"))


@pytest.mark.parametrize("place", ["", ".", "folder"])
def test_a_folder_is_not_written_as_a_file(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as refused:
        write_atomically(Path(place), b"x")
    assert refused.value.filename == str(Path(place))
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_device_or_a_pipe_is_not_replaced_by_a_file(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="Not a regular file") as refused:
        write_atomically(path, b"x")
    assert refused.value.filename == str(path)
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]


def test_a_symbolic_link_stays(tmp_path):
    link, target = tmp_path / "link", tmp_path / "folder" / "x"
    link.symlink_to(target)
    write_atomically(link, b"x")
    assert link.is_symlink()
    assert target.read_bytes() == b"x"


def fill_the_disk(path):
    with atomic_file(path) as file:
        file.write(b"{")
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_told_with_the_file(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("before")
    with pytest.raises(OSError, match="No space left") as refused:
        fill_the_disk(path)
    assert refused.value.filename == str(path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_cell_ends_neither_its_column_nor_its_line():
    lines = markdown_table(["name", "n"], [["a|b\nc", 1]]).splitlines()
    assert lines[2] == r"| a\|b c | 1 |"


def test_a_percentage_has_a_space_before_its_sign():
    assert (percentage(0.97), percentage(0.125, 0), percentage(0.5, 0, "+")) == (
        "97.0 %", "12 %", "+50 %",
    )  # fmt: skip
    assert percentage(-0.004) == "-0.4 %"


def test_nothing_writes_percentages_in_another_way():
    """The figures of plotly have formats of their own, `%{z:.1%}`."""
    root = Path(__file__).parents[3]
    files = [*root.glob("engine/**/*.py"), *root.glob("inspector/*/*.py")]
    texts = {one: re.sub(r"%\{.*?\}", "", one.read_text("utf-8")) for one in files}
    assert [one for one, text in texts.items() if re.search(r"\.\d%[}\"']", text)] == []
