"""What is kept of a run: the tokens of its answer alone, as the run itself counts them."""

import pytest

from engine.batch.outcome import OutcomeBuilder
from engine.config.spec import RunSpec
from engine.core.control import Control
from engine.core.events import RunFinished, StepEvent
from engine.core.files import ASSETS
from engine.evaluate.exam import evaluate
from engine.models.loading.families import embedded_models
from engine.serve.model_pool import ModelPool
from engine.tiny.corpus import exam_questions

BASE = {"gen_length": 16, "block_length": 16, "steps": 16}
CASES = {
    "stop string": {"model": "tiny-llada", "stop": (".",)} | BASE,
    "suffix": {"model": "tiny-llada", "suffix": " Then we go home."} | BASE,
    "block model": {"model": "tiny-block", "cache": "frozen"} | BASE,
    "two forwards a step": {"model": "tiny-llada", "cfg_scale": 1.0} | BASE,
}


@pytest.fixture(scope="module")
def question():
    return exam_questions(1, 3, 0, "short_problems")[0]


@pytest.mark.parametrize("name", CASES)
def test_an_outcome_has_the_tokens_and_steps_that_the_run_counts(shipped, question, name):
    found, end = OutcomeBuilder(None), None
    for event in shipped.run(RunSpec(prompt=question[1], **CASES[name])):
        found.append(event)
        end = event
    assert isinstance(end, RunFinished)
    outcome = found.outcome()
    assert outcome.tokens == end.metrics["tokens"] <= BASE["gen_length"]
    assert (outcome.forwards, outcome.text_forwards) == (
        end.metrics["nfe"],
        end.metrics["text_nfe"],
    )


def test_an_answer_that_was_cut_off_is_not_judged(shipped, question):
    found, control = OutcomeBuilder("42"), Control()
    for event in shipped.run(RunSpec(prompt=question[1], **BASE), control):
        found.append(event)
        if isinstance(event, StepEvent) and event.step == 3:
            control.stop()
    outcome = found.outcome()
    assert outcome.reason == "stopped"
    assert (outcome.number, outcome.right) == (None, None)


@pytest.mark.parametrize("name", CASES)
def test_an_exam_counts_the_same_tokens(shipped, question, name):
    spec = RunSpec(**CASES[name])
    model = ModelPool(embedded_models(ASSETS)).load_to_run(spec)
    (result,) = evaluate(model, spec, [question], fit=False)
    *_, end = shipped.run(RunSpec(prompt=question[1], **CASES[name]))
    assert result.ids == end.answer
    assert result.text_nfe == end.metrics["text_nfe"]
