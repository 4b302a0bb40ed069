"""The glossary has an entry for every term, and every link to a term has an entry."""

import re

import pytest

from inspector import static_files
from inspector.page.run_tab import SETTINGS_TERMS
from tests.support.browser import ROOT

TERMS = {
    "row", "canvas", "lane", "step", "block", "drift", "probe", "refresh", "recompute", "reuse",
    "frozen", "threshold", "nfe", "cache", "token-layer", "logit-lens", "expert",
    "commit-call", "commit", "unmasker", "confidence", "guider", "end-of-text-rule",
    "plain-decoding", "draft", "branch", "proxy", "budget", "block-causal-attention",
}  # fmt: skip
STATIC = ROOT / "inspector" / "static"
SOURCES = ROOT / "inspector" / "web" / "src"
LINK = re.compile(r'data-term=\\?"([^"$]*?)\\?"|termButton\("([\w-]+)"')


def test_every_term_has_an_entry():
    assert set(static_files.glossary()) == TERMS


@pytest.mark.parametrize("name", sorted(TERMS))
def test_an_entry_is_one_to_three_plain_sentences(name):
    entry = static_files.glossary()[name]
    assert set(entry) == {"title", "forms", "text"}
    assert entry["title"]
    assert entry["forms"][0].lower() == entry["title"].lower()
    assert 1 <= len(re.findall(r"\.(?: |$)", entry["text"])) <= 3
    assert 40 <= len(entry["text"]) <= 260
    assert not re.search("[<>&`]", entry["text"])


def test_a_form_belongs_to_one_entry():
    forms = [form.lower() for entry in static_files.glossary().values() for form in entry["forms"]]
    assert len(forms) == len(set(forms))


def test_every_link_in_the_files_has_an_entry():
    links = {
        name
        for path in (*STATIC.rglob("*.html"), *SOURCES.rglob("*.ts"))
        for found in LINK.findall(path.read_text())
        for name in filter(None, found)
    }
    assert links <= TERMS
    assert set(SETTINGS_TERMS) <= TERMS


def test_term_links_are_buttons_with_the_title():
    html = static_files.term_links(("row", "nfe"))
    assert html.count('<button type="button" class="ds-term"') == 2
    assert 'data-term="nfe"' in html
    assert ">row</button>" in html


@pytest.mark.parametrize("bundle", ["page.js", "replay.js"])
def test_a_bundle_has_the_entries(bundle):
    text = static_files.text(bundle)
    assert all(text.count(entry["text"]) == 1 for entry in static_files.glossary().values())
