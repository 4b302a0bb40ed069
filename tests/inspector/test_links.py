"""What a link needs to bring a race back: settings, branches, bundled recorded runs."""

import json
from dataclasses import replace

import pytest

from engine.config.spec import BranchStart, RaceSpec, RunSpec
from engine.core.files import ASSETS
from inspector.handlers.branching import Branching
from inspector.handlers.file_service import FileService
from inspector.page_data import links, messages
from inspector.run_store import RaceRecord
from tests.inspector.test_branching import asked, values_of


def branched(handlers, request_of, record, **data):
    values = values_of(handlers, **data.pop("values", {}))
    wish = asked(run=record.run_id, **data)
    said = list(Branching(handlers).branch(wish, request_of(), values))
    last = json.loads(said[-1][0])
    assert last["state"] == "done"
    return handlers.store.get(last["run"]), last["link"]


def test_the_settings_of_a_race_are_those_that_ran(handlers, record):
    shown = json.loads(messages.whole(record, handlers.form.catalog.title))
    specs = {lane: RunSpec.from_dict(trace.meta["spec"]) for lane, trace in record.traces.items()}
    assert RaceSpec.from_query(shown["link"]["query"]) == RaceSpec(**specs)
    assert (shown["link"]["branches"], shown["link"]["recorded"]) == ([], "")


def test_a_recording_does_not_change_the_link(handlers, record):
    before = links.link(record)
    for trace in record.traces.values():
        trace.meta["spec"] = {**trace.meta["spec"], "record": "layers"}
    assert links.link(record) == before


def test_a_single_lane_has_no_link(record):
    assert links.link(RaceRecord(state="imported", traces={"a": record.traces["a"]})) is None


def test_branches_stand_one_after_the_other_in_a_link(handlers, record, request_of):
    child, first = branched(handlers, request_of, record, lane="a", step=5, edits=[])
    assert first == links.link(record) | {"branches": ["a.6"]}
    _, second = branched(handlers, request_of, child, lane="b", step=9, edits=[[0, -1]])
    assert second["branches"] == ["a.6", "b.10.1-m"]


def test_the_settings_of_a_branch_are_in_its_link_and_bring_it_back(handlers, record, request_of):
    form = {"b.cache": "prefix", "b.unmasker": "threshold", "prompt": "Other?"}
    child, link = branched(
        handlers, request_of, record, lane="a", step=3, edits=[], settings="form", values=form
    )
    (text,) = link["branches"]
    assert text.startswith("a.4?")
    assert "prompt" not in text
    again, second = branched(
        handlers, request_of, record, lane="a", step=3, edits=[], settings=text[3:]
    )
    assert second == link
    specs = [one.traces["b"].meta["spec"] for one in (child, again)]
    assert specs[0] == specs[1]


def test_a_branch_of_odd_settings_is_refused(handlers, record, request_of):
    for settings in ("?nonsense=1", "?cache=" + "x" * 100, "?" + "[" * 5000):
        wish = asked(run=record.run_id, lane="a", step=3, edits=[], settings=settings)
        (said,) = Branching(handlers).branch(wish, request_of(), values_of(handlers))
        assert json.loads(said[0])["state"] == "failed"


def test_the_text_of_a_branch_counts_from_one():
    parent = RunSpec(gen_length=32, block_length=16, steps=32)
    start = BranchStart("p", 4, ((2, 17), (3, -1)))
    assert links.branch_text(replace(parent, start=start), parent, "a") == "a.5.3-17,4-m"
    other = replace(parent, start=start, cache="dual", record="layers")
    assert links.branch_text(other, parent, "b") == (
        "b.5.3-17,4-m?block_length=16&steps=32&cache=dual"
    )


def test_a_link_shows_a_bundled_recorded_run(handlers, request_of):
    files = FileService(handlers, ASSETS / "examples")
    document, name = files.show_linked(request_of(recorded="dual"))
    shown = json.loads(document)
    assert (shown["state"], shown["link"]["recorded"], name) == ("example", "dual", "dual")
    for odd in ("../a", "plain"):
        said = json.loads(files.show_linked(request_of(recorded=odd))[0])
        assert "no recorded run of the name in the link. Choose one" in said["message"]
        nothing, _ = files.show_linked(request_of(recorded=odd, gen_length="32"))
        assert nothing["__type__"] == "update", "the settings of the link can be run"
    assert files.show_linked(request_of(recorded=""))[0]["__type__"] == "update"


def test_the_link_of_a_recorded_run_that_the_form_cannot_show_has_no_settings(handlers, request_of):
    files = FileService(handlers, ASSETS / "examples")
    document, _ = files.show_linked(request_of(recorded="frozen"))
    assert json.loads(document)["link"] == {"query": "", "branches": [], "recorded": "frozen"}


@pytest.mark.parametrize(
    ("a", "b"),
    [({}, {"seed": 3}), ({}, {"dtype": "bfloat16"}), ({}, {"temperature": 0.5}),
     ({"fixed": [[3, 17]]},) * 2, ({"prompt": "", "messages": [["user", "Hello"]]},) * 2],
)  # fmt: skip
def test_a_race_that_the_form_cannot_show_has_no_link(record, a, b):
    assert links.link(record) is not None
    for lane, changes in (("a", a), ("b", b)):
        record.traces[lane].meta["spec"] = {**record.traces[lane].meta["spec"], **changes}
    assert links.link(record) is None


def test_the_parts_of_a_link_that_are_not_settings_are_not_read_as_such(handlers, request_of):
    parts = dict.fromkeys(("cursor", "look", "show", "align", "colour", "branch", "recorded"), "x")
    notice, given = handlers.restore(request_of(**parts))
    assert (notice.get("__type__"), given) == ("update", None)
