"""The Markdown file beside a method: how it is read, and that those of the repository are sound."""

import inspect
from pathlib import Path

import pytest

from engine.catalog import decoding_rules, method_doc, policies
from engine.config.knobs import describe_fields
from engine.core.method_docs import PublishedFigure, read_method_docs

METHODS = policies() | decoding_rules()
FILES = sorted({Path(inspect.getfile(cls)).with_suffix(".md") for cls in METHODS.values()})
WRITTEN = [path for path in FILES if path.exists()]
WHOLE = """# one

First line
of a paragraph.

Second paragraph.

## Knobs

- `size`: Background
  in two lines.
- `other`: More.

## Published figures

| figure | conditions | GPU | lengths | shots | table | source | transcript |
|---|---|---|---|---|---|---|---|
| 1 → 2 | one at a time | card | answer 8 | 4 | Table 5 | paper | 1>2 … 8/4 |

# two

Short.
"""


def test_a_file_has_a_section_for_each_method(tmp_path):
    path = tmp_path / "method.md"
    path.write_text(WHOLE, "utf-8")
    one, two = (read_method_docs(path)[name] for name in ("one", "two"))
    assert one.description == "First line of a paragraph.\n\nSecond paragraph."
    assert one.knobs == {"size": "Background in two lines.", "other": "More."}
    assert one.published == (
        PublishedFigure(
            "1 → 2", "one at a time", "card", "answer 8", "4", "Table 5", "paper", "1>2 … 8/4"
        ),
    )
    assert (two.description, two.knobs, two.published) == ("Short.", {}, ())


def test_a_missing_file_is_empty(tmp_path):
    assert read_method_docs(tmp_path / "method.md") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Text first.", "method.md: must begin with a section"),
        ("# one\n\n# one\n", "two sections `# one`"),
        ("# one\n\n## Notes\n", "method.md, one: unknown subsection 'Notes'"),
        ("# one\n\n## Knobs\n\nsize: big\n", "'size: big' is not of the form"),
        ("# one\n\n## Published figures\n\n| speed | where |\n", "has the columns figure"),
        (WHOLE.replace(" | paper |", " |"), "'1 → 2 | one at a time | .*' has not 8 cells"),
        (WHOLE.replace("| card |", "|  |"), "'1 → 2 | one at a time | .*' has not 8 cells"),
    ],
)
def test_an_error_names_the_file_and_the_place(tmp_path, text, message):
    path = tmp_path / "method.md"
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=message):
        read_method_docs(path)


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_a_file_describes_the_methods_of_the_module_beside_it(path):
    beside = {
        n for n, cls in METHODS.items() if inspect.getfile(cls) == str(path.with_suffix(".py"))
    }
    assert set(read_method_docs(path)) == beside


@pytest.mark.parametrize("name", METHODS)
def test_a_description_is_plain_paragraphs(name):
    doc = method_doc(METHODS[name])
    for part in doc.description.split("\n\n") if doc.description else ():
        assert 80 < len(part) < 1500
        assert part[0].isupper()
        assert part.endswith(".")
        assert part.count("`") % 2 == 0


@pytest.mark.parametrize("name", METHODS)
def test_knobs_named_in_a_document_are_knobs_of_the_method(name):
    doc = method_doc(METHODS[name])
    texts = [doc.description, *(one.conditions for one in doc.published)]
    quoted = {word for text in texts for word in text.split("`")[1::2]}
    assert quoted | set(doc.knobs) <= {row["name"] for row in describe_fields(METHODS[name])}
