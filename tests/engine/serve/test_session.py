"""Session: the events of a run, its refusals, its plan and its catalog."""

import json
import sys

import numpy as np
import pytest

from engine.config.spec import RaceSpec, RunSpec
from engine.core.device import keep_freed_memory
from engine.core.events import RunFinished, RunStarted, StepEvent, Waiting
from engine.serve.session import Session
from engine.tiny.suite import examples, families_by_model, known_families
from engine.trace.trace import Trace
from tests.engine.serve.test_race import BASE, FAST, PLAIN
from tests.support.micro import write_checkpoint
from tests.support.traces import trace_of


def events_of(session, **changes):
    return list(session.run(RunSpec(**BASE | changes)))


def started_of(session, **changes):
    return next(e for e in events_of(session, **changes) if isinstance(e, RunStarted))


def test_the_events_of_a_run_come_in_order(session):
    kinds = [type(event) for event in events_of(session)]
    assert kinds == [Waiting, Waiting, RunStarted, *[StepEvent] * 16, RunFinished]


def test_a_model_is_loaded_once(session):
    states = [
        [event.state for event in events_of(session, dtype=dtype) if isinstance(event, Waiting)]
        for dtype in ("float32", "float32", "float64")
    ]
    assert states == [["loading", "warmup"], ["warmup"], ["loading", "warmup"]]


@pytest.mark.parametrize("cache", ["none", "dual"])
def test_metrics_sum_the_events(session, cache):
    *_, end = events = events_of(session, cache=cache, cfg_scale=1.0)
    steps = [e for e in events if isinstance(e, StepEvent)]
    metrics = end.metrics
    assert metrics["nfe"] == len(steps) == 16
    assert metrics["forwards"] == 32
    assert metrics["full_steps"] == sum(e.kind == "full" for e in steps)
    assert metrics["full_steps"] + metrics["partial_steps"] == 16
    assert metrics["rows"] == sum(e.rows for e in steps)
    assert metrics["rows_plain"] == 16 * end.canvas.shape[1]
    assert metrics["total_ms"] == pytest.approx(sum(e.step_ms for e in steps))
    assert metrics["positions"] == 16
    assert metrics["positions_per_s"] == pytest.approx(16e3 / metrics["total_ms"])
    assert (metrics["cache_bytes"] > 0) == (cache == "dual")


def test_tokens_are_counted_up_to_the_first_stop_token(session):
    for seed in range(20):
        *_, end = events_of(session, temperature=2.0, seed=seed, fixed=((9, 1),))
        answer = end.canvas[0, -16:].tolist()
        stops = [i for i, token in enumerate(answer) if token in (1, _stop(session))]
        assert end.metrics["tokens"] == stops[0] <= 9
        assert end.metrics["positions"] == 15


def _stop(session):
    return session._models.tokenizer("micro").stop_ids[0]


def test_texts_are_the_answer_up_to_its_stop_token(session):
    tokenizer = session._models.tokenizer("micro")
    ids = tokenizer.encode(" seven and 7")
    fixed = (*enumerate(ids), (len(ids), 1), (len(ids) + 1, 50))
    *_, end = events_of(session, fixed=fixed)
    assert end.texts == (" seven and 7",)
    assert end.metrics["tokens"] == end.metrics["tokens_per_s"] == 0, "given tokens are not decoded"


@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
def test_fixed_tokens_keep_their_positions(session, cache):
    fixed = ((2, 100), (9, 200), (15, 300))
    events = events_of(session, cache=cache, fixed=fixed)
    start, end = next(e for e in events if isinstance(e, RunStarted)), events[-1]
    where = np.flatnonzero(start.fixed_mask[0]) - (start.canvas.shape[1] - 16)
    assert where.tolist() == [2, 9, 15]
    assert end.canvas[0, -16:][where].tolist() == [100, 200, 300]
    assert sum(isinstance(e, StepEvent) for e in events) == 13


def test_a_mask_token_in_the_prompt_stays_as_it_is(session):
    events = events_of(session, prompt="a <|mdm_mask|> b", chat=False, gen_length=8)
    start = next(e for e in events if isinstance(e, RunStarted))
    mask = start.model["mask_id"]
    typed = (start.canvas[0] == mask) & start.prompt_mask[0]
    assert typed.sum() == 1
    assert events[-1].canvas[0][typed].tolist() == [mask]
    assert mask not in events[-1].canvas[0][~start.prompt_mask[0]]


def test_run_started_describes_the_run(session):
    start = started_of(session, record="steps")
    assert RunSpec.from_dict(start.spec) == RunSpec(**BASE, record="steps")
    assert start.model["name"] == "micro"
    assert len(start.environment["checkpoint"]) == 16
    assert start.environment["dtype"] == "float32"
    assert start.canvas.dtype == np.int32
    assert start.prompt_mask.sum() == start.canvas.shape[1] - 16


def test_every_id_of_a_trace_has_its_bytes(session):
    trace = trace_of(events_of(session, record="steps"))
    arrays = Trace.from_bytes(trace.to_bytes()).arrays()
    shown = np.concatenate([arrays[n].ravel() for n in ("canvas", "commit_id", "candidate_id")])
    assert set(shown.tolist()) == set(trace.pieces)
    tokenizer = session._models.tokenizer("micro")
    assert all(tokenizer.piece(i) == raw for i, raw in trace.pieces.items())


REFUSALS = [
    ({"prompt": "  \n"}, "prompt: it is empty"),
    ({"prompt": "", "messages": (("user", " "),)}, "prompt: it is empty"),
    ({"prompt": "x " * 3000}, r"prompt: \d+ tokens and an answer of 16 exceed the context of 1024"),
    (
        {"prompt": "x " * 900, "suffix": "x " * 190},
        r"prompt: \d+ tokens, a suffix of \d+ and an answer of 16 exceed the context of 1024; "
        "shorten the texts",
    ),
    ({"model": "gpt"}, "model: 'gpt' is unknown; choose from micro"),
    ({"cache": "best"}, "cache: 'best' is unknown"),
    ({"unmasker": "best"}, "unmasker: 'best' is unknown"),
    ({"steps": 15}, "steps: 15 is not a multiple of the 2 blocks; nearest valid: 14 or 16"),
    (
        {"knobs": {"dual.refresh_interval": 2}},
        r"dual\.refresh_interval: .* not use that method",
    ),
]


@pytest.mark.parametrize(("changes", "message"), REFUSALS)
def test_an_impossible_run_is_refused_before_any_computation(session, changes, message):
    spec = RunSpec(**BASE | changes)
    for ask in (session.plan, lambda s: next(session.run(s))):
        with pytest.raises(ValueError, match=message):
            ask(spec)
    with pytest.raises(ValueError, match=message):
        next(session.race(RaceSpec(PLAIN, spec)))


@pytest.mark.parametrize("fixed", [((0, 10**6),), ((0, 2),)])
def test_a_fixed_token_that_the_model_lacks_is_refused(session, fixed):
    with pytest.raises(ValueError, match="fixed: token id"):
        session.plan(RunSpec(**BASE, fixed=fixed))
    with pytest.raises(ValueError, match="fixed: token id"):
        next(session.run(RunSpec(**BASE, fixed=fixed)))


def test_an_unavailable_device_is_named(session):
    with pytest.raises(ValueError, match="device: 'tpu' is not available; choose from cpu"):
        events_of(session, device="tpu")


def test_a_damaged_checkpoint_is_listed_and_its_file_named(tmp_path):
    folder = write_checkpoint(tmp_path / "cut")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    session = Session({"cut": folder})
    assert session.catalog()["models"][0]["name"] == "cut"
    end = list(session.run(RunSpec(**BASE | {"model": "cut"})))[-1]
    assert (end.reason, "model.safetensors: damaged" in end.message) == ("failed", True)


def test_a_session_without_models_refuses_a_run():
    with pytest.raises(ValueError, match="model: there is none"):
        next(Session({}).run(PLAIN))


def test_the_plan_counts_the_tokens_of_the_prompt(session):
    plan, start = session.plan(FAST), started_of(session)
    assert plan["prompt_tokens"] == start.prompt_mask.sum()
    assert (plan["context"], plan["scheduled"], plan["blocks"]) == (1024, False, 2)


def test_the_catalog_is_plain_data(session):
    catalog = json.loads(json.dumps(session.catalog()))
    assert {row["name"] for row in catalog["models"]} == {"micro"}
    assert catalog["caches"][0]["name"] == "none"
    assert {"quota", "threshold", "factor", "frechet"} <= {r["name"] for r in catalog["unmaskers"]}


def test_examples_and_the_default_race_can_be_run(session):
    race = session.default_race()
    assert session.plan(race.a)["blocks"] == session.plan(race.b)["blocks"]
    for example in session.examples():
        session.plan(RunSpec(**BASE | {"prompt": example["prompt"]}))
        assert example["label"]
    assert session.problem(3) == session.problem(3) != session.problem(4)
    assert len(session.problem(3, 4)["prompt"]) > len(session.problem(3)["prompt"])


def test_the_allocator_is_set_when_a_model_is_loaded_and_not_by_each_run(checkpoint, monkeypatch):
    calls = []
    for module in list(sys.modules.values()):  # under whatever name it was imported
        if getattr(module, "keep_freed_memory", None) is keep_freed_memory:
            monkeypatch.setattr(module, "keep_freed_memory", lambda: calls.append(1))
    session = Session({"micro": checkpoint})
    for _ in range(2):
        list(session.race(RaceSpec(PLAIN, FAST)))
        assert calls == [1]


def test_the_families_are_those_that_the_models_were_trained_on(session, tmp_path):
    assert session.families() == [("Chained word problems", "word_problems")]
    recipe = {"families": [["lookup", 2.0], ["balance", 1.0], ["word_problems", 1.0]]}
    phase = {"recipe": recipe, "tokens": 1, "step": 1, "seconds": 1.0, "curve": []}
    (tmp_path / "training.json").write_text(json.dumps([phase]))
    folders = {"own": tmp_path, "other": tmp_path / "none"}
    known = ["word_problems", "balance", "lookup"]
    assert known_families(families_by_model(folders), "own") == known
    recipe = {"families": [["reversal", 1.0]]}
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "training.json").write_text(json.dumps([phase | {"recipe": recipe}]))
    trained = families_by_model(folders)
    assert known_families(trained, "other") == ["reversal"]
    for model in ("", "elsewhere"):
        assert len(known_families(trained, model)) == 4
    labels = [row["label"] for row in examples(["balance", "lookup"])]
    assert labels[0] == "Running balance 1 after 2 worked examples"
    assert labels[-1] == "Look-up in a long table"


def test_a_problem_of_an_unknown_family_is_refused(session):
    with pytest.raises(ValueError, match="family: 'poems' is unknown"):
        session.problem(3, 0, "poems")
