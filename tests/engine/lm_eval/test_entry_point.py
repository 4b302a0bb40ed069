"""The entry point by which versions of the harness with plugins find the model."""

import re
from importlib.metadata import EntryPoint

import pytest

pytest.importorskip("lm_eval")

from engine.lm_eval.model import DriftscopeLM
from tests.support.micro import ROOT

GROUP = "lm_eval.models"  # as the harness names it since its pull request 4013


def test_the_entry_point_is_the_model():
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    ((name, value),) = re.findall(
        rf'\[project\.entry-points\."{re.escape(GROUP)}"\]\n(\w+) = "(.*)"\n', text
    )
    assert name == "driftscope"
    assert EntryPoint(name, value, GROUP).load() is DriftscopeLM
