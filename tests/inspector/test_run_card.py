"""The run card: it holds what repeats a run, and repeating it gives the same."""

import copy
import json
from dataclasses import replace

import pytest

from engine.config.run_card import race_of, specs_of
from engine.config.spec import RunSpec
from engine.core.files import ASSETS
from engine.evaluate.repeat import differences, is_cut, repeat
from engine.models.loading.checkpoint import Checkpoint
from inspector.files.run_card import run_card
from inspector.run_store import RaceRecord
from tests.inspector.conftest import small_race
from tests.support import looking


@pytest.fixture
def card(recorded):
    return json.loads(json.dumps(run_card(RaceRecord(state="done", traces={"b": recorded[0]}))))


def test_what_a_card_says(card, recorded):
    row, meta = card["lanes"]["b"], recorded[0].meta
    assert RunSpec.from_dict(row["spec"]) == RunSpec.from_dict(meta["spec"])
    assert row["seed"] == 0
    assert row["model"]["digest"] == Checkpoint(ASSETS / "models" / "tiny-llada").digest()
    assert row["versions"]["torch"] == meta["environment"]["torch"]
    assert row["device"]["device"] == "cpu"
    assert row["results"]["text"] == meta["texts"][0]
    assert row["results"]["steps"] == 4
    assert card["repeat"] == f"python -m engine repeat driftscope-{card['run']}-run-card.json"


def test_times_with_the_recorder_in_them_are_not_told(recorded):
    timed, kept = (run_card(RaceRecord(traces={"a": trace}))["lanes"]["a"] for trace in recorded)
    gone = set(timed["results"]["metrics"]) - set(kept["results"]["metrics"])
    assert gone == {
        "total_ms", "text_ms", "forward_ms", "decide_ms", "ms_per_step", "tokens_per_s",
        "positions_per_s",
    }  # fmt: skip


def test_repeating_a_card_gives_the_same(card, session):
    traces = repeat(session, specs_of(card))
    assert list(traces) == ["b"]
    assert differences(card, traces) == []
    other = copy.deepcopy(card)
    other["lanes"]["b"]["results"]["text"] += "!"
    other["lanes"]["b"]["model"]["digest"] = "0"
    assert len(differences(other, traces)) == 2


def test_the_answer_of_a_stopped_run_is_not_compared(card, session):
    traces = repeat(session, specs_of(card))
    card["lanes"]["b"]["results"] |= {"reason": "stopped", "text": "cut"}
    assert differences(card, traces) == []
    assert is_cut(card["lanes"]["b"])


def test_a_lane_alone_races_plain_decoding_with_steps_that_divide(card):
    changes = {"unmasker": "threshold", "gen_length": 24, "block_length": 8, "steps": 32}
    card["lanes"]["b"]["spec"] |= changes | {"knobs": {}}
    race = race_of(card)
    assert (race.a.unmasker, race.a.steps, race.b.steps) == ("quota", 24, 32)


def test_a_branch_is_not_repeated_from_a_card(card, recorded):
    start = {"trace": "x.a", "step": 1, "edits": []}
    card["lanes"]["b"]["spec"]["start"] = start
    with pytest.raises(ValueError, match="continues another run"):
        specs_of(card)
    trace = copy.deepcopy(recorded[0])
    trace.meta["spec"] |= {"start": start}
    assert run_card(RaceRecord(traces={"b": trace}))["repeat"] is None


@pytest.mark.parametrize(
    "odd",
    [None, [], {}, {"lanes": {}}, {"lanes": {"a": 1}}, {"lanes": "a"},
     {"lanes": {"a": {"spec": {}}}}, {"lanes": {"a": {"spec": {}, "model": {}, "results": None}}}],
)  # fmt: skip
def test_another_document_is_refused(odd):
    with pytest.raises(ValueError, match="card"):
        specs_of(odd)


def test_odd_metadata_is_cut_to_plain_values(recorded):
    trace = copy.deepcopy(recorded[0])
    trace.meta["environment"] = {"torch": ["x"] * 999, "threads": float("nan"), "checkpoint": {}}
    row = run_card(RaceRecord(traces={"a": trace}))["lanes"]["a"]
    assert len(row["versions"]["torch"]) == 200
    assert row["device"]["threads"] is None
    json.dumps(row, allow_nan=False)


def test_a_whole_number_that_a_browser_would_round_is_a_text(recorded):
    trace = copy.deepcopy(recorded[0])
    trace.meta["environment"] = {"threads": 2**64, "cores": 2**53}
    device = run_card(RaceRecord(traces={"a": trace}))["lanes"]["a"]["device"]
    assert (device["threads"], device["cores"]) == (str(2**64), 2**53)


def test_a_number_that_json_does_not_have_is_left_out_of_a_spec(recorded):
    """The page reads strict JSON, and a trace that is not imported has an unchecked spec."""
    trace = copy.deepcopy(recorded[0])
    trace.meta["spec"] |= {"temperature": float("nan"), "knobs": {"x": [float("inf"), 1.5]}}
    row = run_card(RaceRecord(traces={"a": trace}))["lanes"]["a"]
    json.dumps(row, allow_nan=False)
    assert row["spec"]["temperature"] is None
    assert row["spec"]["knobs"] == {"x": [None, 1.5]}


def test_a_guider_is_named_with_its_digest_and_repeated(session):
    spec = replace(small_race(session).a, unmasker="guided", cache="freecache")
    trace = looking.recorded(session, spec)
    card = json.loads(json.dumps(run_card(RaceRecord(state="done", traces={"a": trace}))))
    row = card["lanes"]["a"]["guider"]
    assert row["name"] == "tiny-qwen2"
    assert row["digest"] == Checkpoint(ASSETS / "models" / "tiny-qwen2").digest()
    assert differences(card, repeat(session, specs_of(card))) == []
    card["lanes"]["a"]["guider"]["digest"] = "0"
    assert differences(card, {"a": trace}) == ["lane a: another guider than the card's"]
    plain = run_card(RaceRecord(traces={"a": looking.recorded(session, small_race(session).a)}))
    assert plain["lanes"]["a"]["guider"] is None
