"""The replay file: data and script keep to their places, whatever the model wrote."""

import base64
import copy
import hashlib
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from engine.trace.schema import empty_arrays
from inspector import static_files
from inspector.files.replay import MOST_PACKED, _packed_bytes, _takes_long, replay_page
from inspector.page_data import messages
from inspector.run_store import RaceRecord
from inspector.views import registry
from tests.support.big_trace import make_synthetic_trace, narrowed

HOSTILE = (
    "</script><script>window.hit=1</script><!-- <script> -->${window.hit=2}"
    "\u2028\u202eabc\u2069`'\""
)


@pytest.fixture
def record(recorded):
    return RaceRecord(state="done", traces={"a": recorded[0]}, recorded={"a": recorded[1]})


def data_of(page):
    return json.loads(re.search(r'id="ds-data">(.*?)</script>', page, re.S)[1])


def test_the_data_are_those_of_the_page(record):
    data = data_of(replay_page(record, str))
    assert data["race"] == json.loads(messages.whole(record, str))
    assert set(data["views"]["a"]) == set(registry.VIEWS)
    for name, found in data["views"]["a"].items():
        trace = record.trace_for_views("a", name in registry.TIMED)
        assert found == json.loads(json.dumps(registry.draw(trace, name)))
    assert data["views"]["a"]["frame"]["level"] == "layers"
    assert "missing" not in data["views"]["a"]["time"]


def test_the_policy_allows_the_one_script_and_no_request(record):
    page = replay_page(record, str)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data: blob:"
    assert rules["style-src"] == "'unsafe-inline'"
    assert "connect-src" not in rules
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#)""", page.replace(script, ""))
    assert page.count("<script") == page.count("</script") == 2
    assert "<!--" not in script


def test_hostile_text_opens_nothing(record):
    hostile = {lane: copy.deepcopy(trace) for lane, trace in record.traces.items()}
    for trace in hostile.values():
        trace.meta["texts"] = [HOSTILE]
        trace.meta["model"]["name"] = HOSTILE
        trace._pieces = {i: HOSTILE.encode() for i in trace.pieces}
    page = replay_page(RaceRecord(state="done", traces=hostile), lambda spec: HOSTILE)
    assert page.count("<script") == page.count("</script") == 2
    assert "\u2028" not in re.search(r'id="ds-data">(.*?)</script>', page, re.S)[1]
    assert data_of(page)["race"]["lanes"]["a"]["end"]["text"] == HOSTILE
    assert data_of(page)["race"]["lanes"]["a"]["start"]["title"] == HOSTILE


def test_the_file_of_a_branch_says_from_where_its_times_count():
    """The words stand beside the key that leads back, which alone is hidden."""
    text = static_files.text("replay.css")
    (hidden,) = re.findall(r"^(.*) \{ display: none !important; \}$", text, re.M)
    assert "[data-back]" in hidden.split(", ")
    assert "[data-parent]" not in hidden.split(", ")


def test_what_is_too_large_is_left_out_and_said(record):
    whole = replay_page(record, str)
    assert "It contains everything that was recorded." in whole
    limit = len(whole.encode()) - 10
    page = replay_page(record, str, limit)
    assert len(page.encode()) <= limit
    views = data_of(page)["views"]["a"]
    sizes = {name: len(json.dumps(view)) for name, view in data_of(whole)["views"]["a"].items()}
    gone = set(sizes) - set(views)
    assert gone == {max(sizes, key=sizes.get)}
    said = f"Left out, to keep the file under {limit / 1e6:g} MB and quick to make: "
    assert f"{said}{gone.pop()} of lane A." in page


@pytest.mark.parametrize(
    ("limit", "names"),
    [("MOST_PACKED", ["drift", "queries"]), ("MOST_LAYERS", ["queries", "error", "scatter"])],
)
def test_views_that_take_minutes_are_left_out_without_making_them(
    record, monkeypatch, limit, names
):
    monkeypatch.setattr(f"inspector.files.replay.{limit}", 0)
    drawn, draw = [], registry.draw
    monkeypatch.setattr(
        registry, "draw", lambda t, name, c=(): (drawn.append(name), draw(t, name, c))[1]
    )
    page = replay_page(record, str)
    assert set(registry.VIEWS) - set(drawn) == set(names)
    assert set(registry.VIEWS) - set(data_of(page)["views"]["a"]) == set(names)
    said = ", ".join(f"{name} of lane A" for name in names)
    assert f"Left out, to keep the file under 8 MB and quick to make: {said}." in page


@pytest.mark.parametrize(("steps", "long"), [(MOST_PACKED, False), (MOST_PACKED + 1, True)])
def test_changes_of_experts_are_left_out_if_packing_them_takes_long(steps, long):
    """Those of the steps and of the probes together, at a byte for each row."""
    names = ("expert_changes", "probe_expert_changes")
    arrays = empty_arrays() | {name: np.zeros((steps, 1, 8), np.uint8) for name in names}
    arrays["canvas"] = np.zeros(8, np.int32)
    trace = SimpleNamespace(layers=1, steps=steps, arrays=lambda: arrays)
    assert _takes_long("experts", trace, 16) is long


@pytest.mark.parametrize(("view", "array"), [("drift", "drift"), ("error", "probe_error")])
def test_the_cells_that_a_narrowed_run_left_out_are_counted_too(view, array):
    """The view has them all, blank."""
    narrow = narrowed(make_synthetic_trace(3, 16, 40), [1], [0], 5, slice(0, 2))
    assert narrow.arrays()[array].nbytes < narrow.cells(array).nbytes
    assert _packed_bytes(view, narrow) == narrow.cells(array).nbytes
