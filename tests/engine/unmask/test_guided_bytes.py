"""Guided runs whose guider has another vocabulary, found in a folder."""

import numpy as np
import pytest

from engine.core.events import RunStarted, StepEvent
from engine.models.loading.families import embedded_models
from engine.serve.session import Session
from engine.tiny import tokenizer as tiny
from engine.trace.trace import Trace
from tests.engine.serve.test_guided_session import ASSETS, ask, events_of, session, trace_of
from tests.support.fake_guiders import random_qwen2

__all__ = ["session"]  # a fixture


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A random guider whose vocabulary writes numbers digit by digit."""
    folder = tmp_path_factory.mktemp("digits")
    random_qwen2(vocab=768).float().save_pretrained(folder)
    tiny.write(folder, "qwen2", "digits")
    return folder


def test_on_a_public_page_no_folder_is_taken_for_a_guider(digits):
    public, own = (Session(embedded_models(ASSETS), public=p) for p in (True, False))
    spec = ask(knobs={"guided.guider": str(digits)})
    with pytest.raises(ValueError, match=r"^guided\.guider: .* is unknown"):
        public.plan(spec)
    assert own.plan(spec)["memory_bytes"] > own.plan(ask(unmasker="quota"))["memory_bytes"]


def test_a_guider_of_another_vocabulary_judges_bytes(session, digits):
    knobs = {"guided.guider": str(digits), "guided.rule": "topk", "guided.k": 300}
    events = events_of(session, ask(record="steps", knobs=knobs, gen_length=32))
    started = next(event for event in events if isinstance(event, RunStarted))
    assert not started.guider["shared"]
    steps = [event for event in events if isinstance(event, StepEvent)]
    assert max(event.guided.accepted for event in steps) > 1
    for event in steps:
        told = event.guided.verdicts
        assert np.isnan(told.kl).all()
        assert len(told.positions) == event.guided.drafted
        assert event.guided.judged == len(told.guider_ids)
        assert told.guider_ends[-1] <= told.ends[-1] or event.guided.stopped
        assert (np.diff(told.ends) >= 0).all()
        assert told.ok[: event.guided.accepted].all()
    assert any(len(e.guided.verdicts.ids) != len(e.guided.verdicts.guider_ids) for e in steps)
    Trace.from_bytes(trace_of(events).to_bytes())


def test_with_another_vocabulary_ar_and_a_shared_prompt_are_refused(session, digits):
    for knob, value in (("fallback", "ar"), ("prompt", "shared")):
        knobs = {"guided.guider": str(digits), f"guided.{knob}": value}
        with pytest.raises(ValueError, match=rf"^guided\.{knob}: "):
            session.plan(ask(knobs=knobs))
        session.plan(ask(knobs={f"guided.{knob}": "auto" if knob == "prompt" else value}))
