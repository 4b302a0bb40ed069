"""Every method's page: description, published figures, knobs, and the race that tries it."""

import copy
import json
import re
from dataclasses import fields, replace

import gradio as gr
import pytest

from engine import catalog
from engine.catalog import decoding_rules, derive_plan, method_doc, policies
from engine.config.spec import RaceSpec, RunSpec
from engine.core.files import ASSETS
from engine.core.method_docs import PublishedFigure
from inspector.page.methods_tab import build_methods
from inspector.page_data.method_pages import document, trial

RESULTS = json.loads((ASSETS / "results" / "results.json").read_text("utf-8"))
BLOCKS = RESULTS["tables"][0]["blocks"]
PLAIN = RunSpec(prompt="Mia has 3 pens & 4 = 7? “yes”\n+1 %2B")
METHODS = [("cache", name) for name in policies()]
METHODS += [("unmasker", name) for name in decoding_rules()]


MODELS = [
    {"name": name, "embedded": True, "available": True, "attention": attention,
     "block_sizes": [size] * bool(size)}
    for name, attention, size in (("tiny-llada", "full", 0), ("tiny-block", "block_causal", 16))
]  # fmt: skip


def pages(results=RESULTS, models=MODELS):
    made = document(catalog.describe() | {"models": models}, PLAIN, results)
    json.dumps(made)
    return {page["name"]: page for group in made["groups"] for page in group["methods"]}


def test_a_page_shows_the_method_document():
    doc, page = method_doc(policies()["dual"]), pages()["dual"]
    assert page["description"] == doc.description.split("\n\n")
    assert [row["figure"] for row in page["published"]] == [one.figure for one in doc.published]
    (row,) = page["knobs"]
    assert row["background"] == doc.knobs["refresh_interval"]


def test_a_method_without_a_document_has_an_empty_description(monkeypatch):
    monkeypatch.setattr(catalog, "read_method_docs", lambda path: {})
    for page in pages().values():
        assert page["description"] == page["published"] == []
        assert all(row["background"] == "" for row in page["knobs"])


def test_the_catalog_gives_descriptions_and_figures_under_their_older_names_too():
    caches = {row["name"]: row for row in catalog.describe()["caches"]}
    row, figure = caches["dual"], caches["dual"]["published"][0]
    assert row["account"] == row["description"] == method_doc(policies()["dual"]).description
    own = {one.name for one in fields(PublishedFigure)}
    assert {"figure", "conditions", "gpu", "lengths", "shots", "table", "source"} < own
    assert figure.keys() == own | {"where"}
    assert figure["where"] == figure["source"]
    assert caches["dare_o"]["stackable_on"] == (
        "none", "prefix", "dual", "freecache", "frozen",
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_a_link_restores_the_race_exactly(kind, name):
    base = PLAIN
    if kind == "cache" and "full" not in policies()[name].attention:
        assert pages(models=MODELS[:1])[name]["query"] == ""
        base = replace(PLAIN, model="tiny-block", block_length=16)
    race = RaceSpec.from_query(pages()[name]["query"])
    assert race == RaceSpec(base, replace(base, **{kind: name})) == trial(kind, name, base)
    assert race.a == base
    derive_plan(race.b)
    plain = name in ("none", "quota")
    assert (race.a == race.b) == plain


def test_pages_are_in_the_order_of_the_catalog():
    assert list(pages()) == [name for _, name in METHODS]


def test_a_page_shows_its_knobs_with_default_and_range():
    rows = {row["key"]: row for row in pages()["dllm_cache"]["knobs"]}
    assert len(rows) == 8
    assert rows["dllm_cache.prompt_interval"]["default"] == "25"
    assert rows["dllm_cache.prompt_interval"]["range"] == "1 to 1,024, or empty"
    assert rows["dllm_cache.recompute_ratio"]["range"] == "0.0 to 1.0"
    assert rows["dllm_cache.layer0_dense"] == {
        "key": "dllm_cache.layer0_dense", "label": "All rows of layer 1", "default": "yes",
        "range": "yes or no",
        "help": "Layer 1 (layer 0 in the code) recomputes all its rows in every step, as released.",
        "background": method_doc(policies()["dllm_cache"]).knobs["layer0_dense"],
    }  # fmt: skip
    assert rows["dllm_cache.ref"]["range"] == "last_step, last_update"
    assert pages()["dual"]["knobs"][0]["default"] == "empty"


def test_a_page_names_the_methods_that_it_combines_with():
    found = pages()
    below = ["prefix", "dual", "freecache", "frozen"]
    assert [row["name"] for row in found["dare_o"]["stands_on"]] == below
    assert found["dare_o"]["stands_on"][1]["title"] == "Fast-dLLM dual cache"
    assert {"dare_kv", "dare_o"} <= {row["name"] for row in found["dual"]["carries"]}
    for name in ("none", "spa_cache", "threshold"):
        assert found[name]["stands_on"] == found[name]["carries"] == []


def shown(name, results=RESULTS):
    measured = pages(results)[name]["measured"]
    return measured and [row[0] for row in measured["rows"]]


def rows_of(*names):
    """The names of measured rows, those of a block after its baseline."""
    found = []
    for block in BLOCKS:
        own = [row["name"] for row in block["rows"] if row["name"] in names]
        found += ["plain decoding", *own] if own else []
    return found


def test_measured_rows_are_those_of_the_method_after_the_baseline():
    assert shown("none") == ["plain decoding"] * len(BLOCKS)
    assert shown("quota") == ["plain decoding", "plain decoding, bfloat16", "plain decoding"]
    assert shown("threshold") == rows_of("threshold 0.9", "threshold 0.5")
    assert shown("dare_o") == rows_of("DARE-O on dual cache", "DARE-O on dual cache, threshold 0.9")
    assert shown("guided") == rows_of("guided", "guided, other vocabulary")
    assert "DARE-O on dual cache" in shown("dual")
    assert shown("frechet") is shown("certainty") is None
    assert all(page["measured"] is None for page in pages(None).values())


def test_percents_of_the_measurements_are_written_in_one_way():
    cells = [
        cell
        for page in pages().values() if page["measured"]
        for row in page["measured"]["rows"] for cell in row if "%" in cell
    ]  # fmt: skip
    assert len(cells) > 50
    assert [cell for cell in cells if not re.search(r"\d %( †)?$", cell)] == []


def test_guided_is_shown_beside_plain_decoding_by_its_rule_only():
    measured = pages()["guided"]["measured"]
    rule = measured["head"].index("End of text")
    assert {row[rule] for row in measured["rows"]} == {"fill_safe"}


def test_measured_cells_are_those_of_the_saved_results():
    measured = pages()["dllm_cache"]["measured"]
    (found,) = (row for row in BLOCKS[0]["rows"] if row["name"] == "dLLM-Cache 100/20/0")
    (shown_row,) = (row for row in measured["rows"] if row[0] == found["name"])
    cells = dict(zip(measured["head"], shown_row, strict=True))
    assert cells["End of text"] == "official"
    own = found["families"]["word_problems"]
    assert cells["Chained word problems"].startswith(f"{100 * own['accuracy']:.1f} ±")
    assert cells["Chained word problems"].endswith("†") == (own["p"] < 0.05)
    assert cells["Forwards"] == f"{found['speed']['nfe']:.0f}"
    assert cells["To text end"] == f"{found['speed']['text_nfe']:.0f}"
    for name, key in (
        ("A step", "step_ratio"),
        ("A run", "speed_up"),
        ("Its text", "text_speed_up"),
    ):
        assert cells[name] == f"{found['speed'][key]:.2f}×"


def test_a_row_that_was_not_timed_has_no_ratios():
    untimed = copy.deepcopy(RESULTS)
    for block in untimed["tables"][0]["blocks"]:
        for row in block["rows"]:
            row["speed"] = None
    made = document(catalog.describe(), PLAIN, untimed)
    assert made["groups"][0]["methods"][0]["measured"]["rows"][0][-7:] == ["–"] * 7
    assert "speed-ups" not in made["note"]
    assert "speed-ups" in document(catalog.describe(), PLAIN, RESULTS)["note"]


def test_the_note_says_when_accuracies_of_a_later_run_were_measured():
    later = RESULTS | {"accuracy": RESULTS["environment"] | {"date": "2027-01-02"}}
    first = RESULTS["environment"]["date"]
    note = document(catalog.describe(), PLAIN, later)["note"]
    assert f"{first} (accuracies: 2027-01-02), " in note


@pytest.mark.parametrize(
    ("text", "rows"), [(json.dumps(RESULTS), 2), ("{broken", None), (None, None)],
    ids=["whole", "broken", "missing"],
)  # fmt: skip
def test_the_tab_works_without_measurements(tmp_path, text, rows):
    path = tmp_path / "results.json"
    if text is not None:
        path.write_text(text, "utf-8")
    with gr.Blocks() as demo:
        build_methods(catalog.describe(), PLAIN, path)
    (tab,) = (block for block in demo.blocks.values() if block.elem_id == "ds-methods")
    made = json.loads(tab.methods(""))
    measured = made["groups"][0]["methods"][1]["measured"]
    assert (measured and len(measured["rows"][1:])) == rows
