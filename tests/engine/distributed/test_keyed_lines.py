from engine.distributed import keyed_lines
from engine.distributed.keyed_lines import KeyedLines, key_of, read_lines


def test_lines_are_read_back_and_a_damaged_last_one_is_left_out(tmp_path):
    path = tmp_path / "folder" / "samples.jsonl"
    lines = KeyedLines(path)
    lines.put("a", {"text": "é\nb"})
    with path.open("ab") as file:
        file.write(b'{"key": "b", "te')
    lines.put("c", {"n": 1})
    assert list(read_lines(path)) == [("a", {"text": "é\nb"}), ("c", {"n": 1})]


def test_a_line_that_another_command_left_unfinished_spoils_no_other(tmp_path):
    path = tmp_path / "samples.jsonl"
    lines = KeyedLines(path)
    lines.put("a", {"n": 1})
    with path.open("ab") as file:
        file.write(b'{"key": "b", "te')
    lines.put("c", {"n": 2})
    lines.put("d", {"n": 3})
    assert [key for key, _ in read_lines(path)] == ["a", "c", "d"]


def test_lines_that_are_not_ours_are_left_out(tmp_path, monkeypatch):
    path = tmp_path / "samples.jsonl"
    monkeypatch.setattr(keyed_lines, "LINE_BYTES", 64)
    long = b'{"key": "long", "x": "' + b"y" * 200 + b'"}\n'
    path.write_bytes(b'[1]\n{"key": 3}\n\xff\n' + long + b'{"key": "a", "n": 1}\n')
    assert list(read_lines(path)) == [("a", {"n": 1})]
    assert list(read_lines(tmp_path / "none.jsonl")) == []


def test_keys_do_not_depend_on_the_order_of_parts():
    assert key_of({"a": 1, "b": [2]}) == key_of({"b": [2], "a": 1}) != key_of({"a": 1, "b": [3]})
