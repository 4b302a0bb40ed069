"""The problems of the local tasks are those that the corpus draws, with one right choice each."""

import json

import pytest

from engine.config.answers import is_right
from engine.lm_eval import local_tasks
from engine.tiny.corpus import draw


@pytest.mark.parametrize("family", local_tasks.FAMILIES)
def test_the_files_are_what_the_corpus_gives(family):
    written = (local_tasks.FOLDER / f"{family}.jsonl").read_text("utf-8")
    assert written == local_tasks.lines(family)
    rows = [json.loads(line) for line in written.splitlines()]
    problems = draw(local_tasks.SEED, local_tasks.PROBLEMS, family=family)
    assert [row["question"] for row in rows] == [one.question for one in problems]
    for row in rows:
        right = [is_right(text, row["answer"]) for text in row["choices"]]
        assert sum(right) == 1
        assert right[row["right_choice"]]
        assert row["choices"][row["right_choice"]] == row["solution"]


def test_help_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(local_tasks, "FOLDER", tmp_path)
    with pytest.raises(SystemExit) as ended:
        local_tasks.main(["--help"])
    assert ended.value.code == 0
    assert "Write the problems of the local tasks" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    local_tasks.main([])
    assert len(list(tmp_path.iterdir())) == len(local_tasks.FAMILIES)


def test_the_problems_are_written_by_one_process(tmp_path, monkeypatch):
    monkeypatch.setattr(local_tasks, "FOLDER", tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit, match=r"^error: WORLD_SIZE is 2, but each"):
        local_tasks.main([])
    assert list(tmp_path.iterdir()) == []
