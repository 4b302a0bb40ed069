"""Responses that are kept in a folder: what their keys depend on."""

import pytest

pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance

from engine.lm_eval.model import DriftscopeLM


def test_responses_are_kept_by_the_version_of_the_code(monkeypatch):
    model, found = DriftscopeLM("tiny-llada", gen_length=32, steps=8), []
    request = Instance("generate_until", {}, ("One", {"until": []}), 0, ("task", 0, 1))
    for version in ("old", "new"):
        monkeypatch.setattr("engine.lm_eval.model.code_version", lambda *names, v=version: v)
        found.append({model._asked(request, 0).key, model._likelihood_key([1, 2], [3])})
    assert not found[0] & found[1]
