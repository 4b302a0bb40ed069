"""Files that people wrote, and tables that people read."""

from engine.core.files import read_json
from engine.core.tables import markdown_table


def test_a_json_file_may_begin_with_a_byte_order_mark(tmp_path):
    (tmp_path / "x.json").write_text('{"a": 1}', "utf-8-sig")
    assert read_json(tmp_path / "x.json", "x") == {"a": 1}


def test_a_cell_ends_neither_its_column_nor_its_line():
    lines = markdown_table(["name", "n"], [["a|b\nc", 1]]).splitlines()
    assert lines[2] == r"| a\|b c | 1 |"
