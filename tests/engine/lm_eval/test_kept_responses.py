"""Responses that are kept in a folder: what their keys depend on, and their run cards."""

import json

import pytest

pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance

from engine.config.run_card import specs_of
from engine.config.spec import RunSpec
from engine.lm_eval.model import DriftscopeLM
from engine.lm_eval.responses import write_card


def test_responses_are_kept_by_the_version_of_the_code(monkeypatch):
    model, found = DriftscopeLM("tiny-llada", gen_length=32, steps=8), []
    request = Instance("generate_until", {}, ("One", {"until": []}), 0, ("task", 0, 1))
    for version in ("old", "new"):
        monkeypatch.setattr("engine.lm_eval.model.code_version", lambda *names, v=version: v)
        found.append({model._asked(request, 0).key, model._likelihood_key([1, 2], [3])})
    assert not found[0] & found[1]


def test_a_run_card_can_be_repeated_on_a_machine_with_one_gpu(tmp_path):
    for device, shown in (("cuda:3", "cuda"), ("cpu", "cpu"), ("auto", "auto")):
        spec = RunSpec(prompt="One", device=device).to_dict()
        write_card(tmp_path, ("task", 0, 0, 0), spec, {"model": {}, "results": {}})
        card = json.loads((tmp_path / "task-0-0-0.json").read_text("utf-8"))
        assert specs_of(card)["a"].device == shown
