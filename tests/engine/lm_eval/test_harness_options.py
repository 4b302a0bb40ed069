"""Options of the harness: system prompt, worked examples as turns, template, names of tasks."""

import json
import shutil
import sys

import pytest

pytest.importorskip("lm_eval")

from lm_eval.evaluator import simple_evaluate
from lm_eval.tasks import TaskManager

from engine.core.files import ASSETS
from engine.distributed.processes import Processes
from engine.lm_eval.__main__ import TASKS, main
from engine.lm_eval.model import DriftscopeLM
from engine.lm_eval.options import device_of
from tests.support.own_tasks import use_own_tasks

TASK = "driftscope_short_problems"
SYSTEM = "Answer in one line."
SHOTS = 2
MODEL = {"unmasker": "threshold", "gen_length": 64, "steps": 64}


def evaluated(model, **options):
    """The harness's sample of the first problem."""
    manager = TaskManager(include_path=str(TASKS), include_defaults=False)
    found = simple_evaluate(
        model=model, tasks=[TASK], task_manager=manager, limit=1, bootstrap_iters=0,
        log_samples=True, **options,
    )  # fmt: skip
    return found["samples"][TASK][0]


def turns_of(context):
    """The turns of a context, read from its text by the markers of the template."""
    parts = context.removeprefix("<|startoftext|>").split("<|start_header_id|>")[1:]
    turns = [part.partition("<|end_header_id|>\n\n") for part in parts]
    return [(role, text.removesuffix("<|eot_id|>")) for role, _, text in turns]


def test_system_prompt_and_worked_examples_are_turns_of_the_template():
    model = DriftscopeLM("tiny-llada", **MODEL)
    sample = evaluated(
        model, apply_chat_template=True, system_instruction=SYSTEM, num_fewshot=SHOTS,
        fewshot_as_multiturn=True,
    )  # fmt: skip
    context = sample["arguments"][0][0]
    turns = turns_of(context)
    assert turns[0] == ("system", SYSTEM)
    assert [role for role, _ in turns[1:]] == ["user", "assistant"] * (SHOTS + 1)
    assert turns[-2:] == [("user", sample["doc"]["question"]), ("assistant", "")]
    assert all("answer is" in text for role, text in turns[1:-1] if role == "assistant")
    assert model.tok_encode(context) == model.model.tokenizer.encode_prompt("", turns[:-1], True)


def test_without_these_options_the_context_is_the_question():
    sample = evaluated(DriftscopeLM("tiny-llada", **MODEL))
    assert sample["arguments"][0][0] == sample["doc"]["question"]


def test_a_model_without_a_template_is_named(tmp_path):
    folder = tmp_path / "plain"
    shutil.copytree(ASSETS / "models" / "tiny-llada", folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text("utf-8"))
    assert config.pop("chat_template")
    path.write_text(json.dumps(config), "utf-8")
    model = DriftscopeLM(str(folder), **MODEL)
    with pytest.raises(ValueError, match="chat: this model has no chat template"):
        evaluated(model, apply_chat_template=True)


def test_an_unknown_task_is_named(monkeypatch):
    use_own_tasks(monkeypatch)
    monkeypatch.setattr(sys, "argv", [])  # restores those of pytest
    with pytest.raises(SystemExit, match="error: Tasks not found: no_such_task"):
        main(["--model", "driftscope", "--model_args", "pretrained=tiny-llada", "--tasks",
              "no_such_task"])  # fmt: skip


def test_each_process_has_a_gpu_of_its_own_though_the_harness_names_the_first(monkeypatch):
    """The harness gives cuda:0 to all processes where no device is named."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    process = Processes({"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "1"})
    process.count = 2
    assert process.device(device_of("cuda:0")) == "cuda:1"
    assert device_of("cuda:1") == "cuda:1"


def test_without_a_gpu_the_device_of_the_harness_is_the_cpu(monkeypatch, caplog):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert device_of("cuda:0") == "cpu"
    assert "cuda:0 is not available; the CPU is used" in caplog.text


def test_a_missing_model_is_named():
    with pytest.raises(ValueError, match=r"^pretrained: give a folder or a name"):
        DriftscopeLM(cache="dual")


@pytest.mark.parametrize("name", ["record_layers", "probe_steps", "keep_after_image"])
def test_an_argument_without_effect_is_unknown(name):
    with pytest.raises(ValueError, match=f"^{name}: unknown model argument"):
        DriftscopeLM("tiny-llada", **{name: 1})


def test_a_recording_is_refused_since_an_evaluation_makes_none():
    with pytest.raises(ValueError, match=r"^record: an evaluation records nothing; leave it out"):
        DriftscopeLM("tiny-llada", record="steps")


@pytest.mark.parametrize(("name", "value"), [("batch_size", "auto"), ("mc_num", 0)])
def test_a_number_of_things_is_whole_and_from_1(name, value):
    with pytest.raises(ValueError, match=f"^{name}: {value!r} is not a whole number from 1"):
        DriftscopeLM("tiny-llada", **{name: value})


def test_a_largest_batch_is_refused_since_no_batch_is_automatic(monkeypatch):
    use_own_tasks(monkeypatch)
    monkeypatch.setattr(sys, "argv", [])  # restores those of pytest
    with pytest.raises(SystemExit, match=r"^error: max_batch_size: leave it out"):
        main(["--model", "driftscope", "--model_args", "pretrained=tiny-llada", "--tasks", TASK,
              "--max_batch_size", "8"])  # fmt: skip
