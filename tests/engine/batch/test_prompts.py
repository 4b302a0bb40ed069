"""Prompts of a batch: typed, from a file, drawn; what is refused, with its line."""

import json

import pytest

from engine.batch import prompts
from engine.batch.prompts import Prompt, drawn_prompts, read_prompts, typed_prompts
from engine.config.spec import MAX_PROMPT_CHARS
from engine.tiny.corpus import exam_questions


def lines(*rows):
    return "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows).encode()


def test_each_line_that_is_not_empty_is_a_prompt():
    assert typed_prompts(" one \n\n  \ntwo\n") == [Prompt("one"), Prompt("two")]
    assert typed_prompts("a\u2028b\fc\r\nd") == [Prompt("a\u2028b\fc"), Prompt("d")]


def test_a_file_has_prompts_with_and_without_answers():
    data = lines({"prompt": "a", "answer": "4"}, "", {"prompt": "b", "answer": 5}, {"prompt": "ü"})
    assert read_prompts(b"\xef\xbb\xbf" + data) == [Prompt("a", "4"), Prompt("b", "5"), Prompt("ü")]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", "line 2: expected an object"),
        ("[" * 100_000, "line 2: expected an object"),
        ('"text"', "line 2: expected an object"),
        ({"answer": "4"}, "line 2: expected an object"),
        ({"prompt": 4}, "line 2: expected an object"),
        ({"prompt": "a", "seed": 4}, "line 2: the field 'seed' is unknown; use prompt and answer"),
        ({"prompt": "a", "answer": 4.5}, "line 2: answer: give a text or a whole number"),
        ({"prompt": "a", "answer": True}, "line 2: answer: give a text or a whole number"),
        ({"prompt": "a", "answer": " "}, "line 2: answer: it has to have 1 to"),
        ({"prompt": "  "}, "line 2: prompt: it is empty"),
        ({"prompt": "a\udc00"}, "line 2: prompt: holds half a character"),
        ({"prompt": "a", "answer": "\ud800"}, "line 2: answer: holds half a character"),
        ({"prompt": "a" * (MAX_PROMPT_CHARS + 1)}, "line 2: prompt: 8001 characters; at most 8000"),
    ],
)
def test_a_wrong_line_is_named(row, said):
    with pytest.raises(ValueError, match=f"^prompts: {said}"):
        read_prompts(lines({"prompt": "a"}, row))


def test_no_prompt_too_many_and_other_bytes_are_refused(monkeypatch):
    with pytest.raises(ValueError, match=r"^prompts: there are none"):
        typed_prompts("\n \n")
    with pytest.raises(ValueError, match=r"^prompts: byte 0 is not UTF-8"):
        read_prompts(b"\xff")
    monkeypatch.setattr(prompts, "MAX_PROMPTS", 2)
    with pytest.raises(ValueError, match=r"^prompts: there are more than 2"):
        typed_prompts("a\nb\nc")
    monkeypatch.setattr(prompts, "MAX_PROMPT_FILE_BYTES", 4)
    with pytest.raises(ValueError, match=r"^prompts: the file has 0 MB, more than"):
        read_prompts(b"12345")


def test_a_file_of_many_lines_or_of_a_long_one_is_not_taken_apart():
    """Sixteen million empty lines, or lists in one line, take far more memory than their file."""
    with pytest.raises(ValueError, match=r"^prompts: more than 20000 lines; remove the empty ones"):
        read_prompts(b"\n" * 20_000 + lines({"prompt": "a"}))
    with pytest.raises(ValueError, match=r"^prompts: line 1: 160\d\d\d characters; at most 120000"):
        read_prompts(lines({"prompt": "a", "more": [[]] * 40_000}))
    assert read_prompts(b"\n" * 19_999 + lines({"prompt": "a"}) + b"\n") == [Prompt("a")]
    emoji = "\U0001f600" * MAX_PROMPT_CHARS
    assert read_prompts(lines({"prompt": emoji})) == [Prompt(emoji)]


def test_problems_of_a_family_have_their_answers():
    (first, second) = drawn_prompts("balance", 2, seed=3)
    questions = exam_questions(2, 3, 0, "balance")
    assert [first, second] == [Prompt(text, one.answer) for one, text in questions]
    with pytest.raises(ValueError, match=r"^family: 'nope' is unknown"):
        drawn_prompts("nope", 1, 0)
    with pytest.raises(ValueError, match=r"^problems: 0 is outside 1 to"):
        drawn_prompts("balance", 0, 0)
