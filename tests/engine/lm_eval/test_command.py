"""The harness's command: scores, figures, run cards, resumption and processes."""

import json
import sys

import pytest

pytest.importorskip("lm_eval")

from engine.config.run_card import specs_of
from engine.distributed.processes import leave_group
from engine.evaluate.exam import evaluate, resized
from engine.evaluate.repeat import differences, repeat
from engine.lm_eval import local_tasks
from engine.lm_eval.__main__ import main
from engine.lm_eval.model import DriftscopeLM
from engine.tiny.corpus import exam_questions
from tests.support.launched import interrupted, start
from tests.support.own_tasks import use_own_tasks

TASKS = ("driftscope_short_problems", "driftscope_short_problems_choice")
LIMIT = 4
OWN = "pretrained=tiny-llada,cache=dual,unmasker=threshold,threshold=0.9,mc_num=2,device=cpu"
COMMAND = [
    "--model", "driftscope", "--model_args", OWN, "--tasks", ",".join(TASKS),
    "--apply_chat_template", "--limit", str(LIMIT), "--log_samples",
]  # fmt: skip
OFFLINE = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}


def results_of(folder):
    (path,) = folder.glob("tiny-llada/results_*.json")
    return json.loads(path.read_text("utf-8"))


def samples(folder, task):
    (path,) = sorted(folder.glob(f"tiny-llada/samples_{task}_2*.jsonl"))[-1:]
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {row["doc_id"]: row for row in rows}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The folder and the results of a run in this process."""
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        use_own_tasks(patch)
        patch.setattr(sys, "argv", [])  # restores those of pytest
        main([*COMMAND, "--output_path", str(folder)])
    return folder, results_of(folder)


def test_the_scores_are_those_of_the_exam(alone):
    folder, results = alone
    model = DriftscopeLM("tiny-llada", cache="dual", unmasker="threshold", threshold=0.9)
    spec = resized(model.spec, "", 64)
    questions = exam_questions(100, local_tasks.SEED, 0, "short_problems")[:LIMIT]
    wanted = evaluate(model.model, spec, questions, 1, False)
    found = samples(folder, TASKS[0])
    assert [found[i]["resps"][0][0] for i in range(LIMIT)] == [one.text for one in wanted]
    assert [found[i]["right"] for i in range(LIMIT)] == [float(one.correct) for one in wanted]
    figures = results["config"]["driftscope"]["tasks"][TASKS[0]]
    assert figures["tokens"] == sum(len(one.ids) for one in wanted)
    assert figures["forwards"] == sum(one.nfe for one in wanted)
    assert figures["gflops"] == pytest.approx(sum(one.gflops for one in wanted))
    assert figures["requests"] == LIMIT
    assert figures["tokens_per_s"] > 0
    assert figures["machine"]["processes"] == 1
    assert figures["peak_bytes"] > 0


def test_a_process_leaves_its_group_at_its_end(monkeypatch):
    """Threads of torch.distributed that run then abort the process, once in many runs."""
    ends = []
    monkeypatch.setattr("engine.lm_eval.model.atexit.register", ends.append)
    DriftscopeLM("tiny-llada", cache="dual")
    assert ends == [leave_group]


@pytest.mark.filterwarnings("ignore:'engine.lm_eval.__main__' found in sys.modules")
def test_control_c_ends_a_launched_process_without_a_traceback(monkeypatch, capsys):
    code = interrupted(monkeypatch, "engine.lm_eval", "lm_eval.api.registry.register_model")
    assert code == 130
    assert capsys.readouterr().err.endswith("stopped\n")


def test_a_run_card_repeats_its_answer(alone, shipped):
    folder, _ = alone
    cards = sorted((folder / "driftscope" / "run-cards").glob("*.json"))
    assert len(cards) == LIMIT
    card = json.loads(cards[0].read_text("utf-8"))
    traces = repeat(shipped, specs_of(card))
    assert differences(card, traces) == []
    card["lanes"]["a"]["results"]["text"] += "."
    assert differences(card, traces) != []


def test_two_processes_give_the_same_and_resume_what_one_began(alone, tmp_path, monkeypatch):
    folder, results = alone
    kept = (folder / "driftscope" / "responses-0.jsonl").read_text("utf-8").splitlines(True)
    (tmp_path / "driftscope").mkdir()
    begun = "".join(kept[:2]) + kept[2][:40]  # a process that was killed while it wrote
    (tmp_path / "driftscope" / "responses-0.jsonl").write_text(begun, "utf-8")
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    command = ("-m", "tests.support.own_tasks", *COMMAND, "--output_path", str(tmp_path))
    processes = start(2, *command)
    said = "".join(process.communicate(timeout=170)[1] for process in processes)
    assert [process.returncode for process in processes] == [0, 0], said[-3000:]
    both = results_of(tmp_path)
    assert f"{LIMIT - 2} of {LIMIT - 2} requests" in said
    assert both["results"] == results["results"]
    for task in TASKS:
        own, other = samples(folder, task), samples(tmp_path, task)
        assert [own[i]["resps"] for i in own] == [other[i]["resps"] for i in own]
    figures = both["config"]["driftscope"]
    assert figures["environment"]["processes"] == 2
    assert figures["tasks"][TASKS[0]]["resumed"] == 2
    assert figures["tasks"][TASKS[0]]["tokens_per_s"] is None
    assert figures["tasks"][TASKS[0]]["machine"] is None
    assert figures["tasks"][TASKS[1]]["requests"] == 4 * LIMIT
    counts = [own["config"]["driftscope"]["tasks"][TASKS[0]]["forwards"] for own in (both, results)]
    assert counts[0] == counts[1]
