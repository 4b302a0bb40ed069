"""Guided runs whose guider, from a folder, has another vocabulary."""

import shutil

import numpy as np
import pytest

from engine.core.events import RunStarted, StepEvent
from engine.core.files import ASSETS
from engine.models.loading.families import embedded_models
from engine.serve.session import Session
from engine.trace.trace import Trace
from tests.engine.serve.test_guided_session import events_of, guided_spec
from tests.support.fake_guiders import random_qwen2
from tests.support.traces import trace_of


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The folder of a random guider with a token for each digit."""
    folder = tmp_path_factory.mktemp("digits")
    random_qwen2(vocab=1024).float().save_pretrained(folder)
    for path in (ASSETS / "models" / "tiny-qwen2-digits").glob("tokenizer*"):
        shutil.copy(path, folder)
    return folder


def test_a_public_page_refuses_folders_as_guiders(digits):
    public, own = (Session(embedded_models(ASSETS), public=p) for p in (True, False))
    spec = guided_spec(knobs={"guided.guider": str(digits)})
    with pytest.raises(ValueError, match=r"^guided\.guider: .* is unknown"):
        public.plan(spec)
    assert own.plan(spec)["memory_bytes"] > own.plan(guided_spec(unmasker="quota"))["memory_bytes"]


def test_a_guider_with_another_vocabulary_verifies_text(shipped, digits):
    knobs = {"guided.guider": str(digits), "guided.rule": "topk", "guided.k": 600}
    events = events_of(shipped, guided_spec(record="steps", knobs=knobs, gen_length=32))
    started = next(event for event in events if isinstance(event, RunStarted))
    assert not started.guider["shared"]
    steps = [event for event in events if isinstance(event, StepEvent)]
    assert max(event.guided.accepted for event in steps) > 1
    for event in steps:
        verdicts = event.guided.verdicts
        assert np.isnan(verdicts.kl).all()
        assert len(verdicts.positions) == event.guided.drafted
        assert event.guided.judged == len(verdicts.guider_ids)
        assert verdicts.guider_ends[-1] <= verdicts.ends[-1] or event.guided.stopped
        assert (np.diff(verdicts.ends) >= 0).all()
        assert verdicts.ok[: event.guided.accepted].all()
    assert any(len(e.guided.verdicts.ids) != len(e.guided.verdicts.guider_ids) for e in steps)
    Trace.from_bytes(trace_of(events).to_bytes())


def test_with_another_vocabulary_ar_and_a_shared_prompt_are_refused(shipped, digits):
    for knob, value in (("fallback", "ar"), ("prompt", "shared")):
        knobs = {"guided.guider": str(digits), f"guided.{knob}": value}
        with pytest.raises(ValueError, match=rf"^guided\.{knob}: "):
            shipped.plan(guided_spec(knobs=knobs))
        shipped.plan(guided_spec(knobs={f"guided.{knob}": "auto" if knob == "prompt" else value}))
