"""Responses that are kept in a folder: what their keys depend on, and their run cards."""

import json

import pytest

pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance

from engine.config.run_card import specs_of
from engine.config.spec import RunSpec
from engine.distributed.processes import Processes
from engine.lm_eval.model import DriftscopeLM
from engine.lm_eval.responses import Responses, write_card


def lane(device="cpu"):
    spec = RunSpec(prompt="One", device=device).to_dict()
    return {"spec": spec, "model": {}, "results": {}}


def test_responses_are_kept_by_the_version_of_the_code(monkeypatch):
    model, found = DriftscopeLM("tiny-llada", gen_length=32, steps=8), []
    request = Instance("generate_until", {}, ("One", {"until": []}), 0, ("task", 0, 1))
    for version in ("old", "new"):
        monkeypatch.setattr("engine.lm_eval.model.code_version", lambda *names, v=version: v)
        found.append({model._asked(request, 0).key, model._likelihood_key([1, 2], [3])})
    assert not found[0] & found[1]


def test_a_run_card_can_be_repeated_on_a_machine_with_one_gpu(tmp_path):
    for device, shown in (("cuda:3", "cuda"), ("cpu", "cpu"), ("auto", "auto")):
        write_card(tmp_path, ("task", 0, 0, 0), lane(device))
        card = json.loads((tmp_path / "task-0-0-0.json").read_text("utf-8"))
        assert specs_of(card)["a"].device == shown


def test_cards_of_an_earlier_run_of_a_task_do_not_stay_beside_those_of_the_last(tmp_path):
    """In its last run the task `a` has the documents 0 and 1, and document 1 has no card."""
    other, longer = {("a-1", 0): lane()}, {("a", document): lane() for document in range(3)}
    for cards in (other, longer, {("a", 0): lane(), ("a", 1): None}):
        responses = Responses(Processes({}), tmp_path, cards=True)
        for where, own in cards.items():
            responses.put_card((*where, 0, 0), own)
        responses.end()
    found = sorted(path.name for path in tmp_path.rglob("*.json"))
    assert found == ["a-0-0-0.json", "a-1-0-0-0.json"]
