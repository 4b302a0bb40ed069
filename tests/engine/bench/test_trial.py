"""Trials: what is timed, in which order, and how slow code changes the ratios."""

import time
from dataclasses import replace

import pytest
import torch

from engine.bench import report
from engine.bench.trial import Case, interleaved, run_trials, step_seconds
from engine.models.loading.random_weights import random_adapter, random_model_config
from engine.serve.loaded_model import LoadedModel
from tests.support.micro import make_prompts, make_spec, model_of

SHAPE = "llada:layers=2,d=32,heads=4,ffn=48,vocab=1100"
PAUSE = 0.004


def case(name, model, group="", baseline="", **changes):
    loaded = LoadedModel(model, None, "")
    return Case(name, loaded, make_spec(**changes), make_prompts(6), group, baseline)


def slowed():
    """A micro model that sleeps in each feed-forward."""
    adapter = random_adapter(random_model_config(SHAPE), torch.float64, torch.device("cpu"))
    quick = adapter.mlp

    def mlp(layer, h):
        time.sleep(PAUSE)
        return quick(layer, h)

    adapter.mlp = mlp
    return adapter


def test_works_are_called_in_turn():
    order = []
    works = {name: lambda name=name: order.append(name) or len(order) for name in "ab"}
    assert interleaved(works, 3) == {"a": [1, 3, 5], "b": [2, 4, 6]}
    assert order == ["a", "b"] * 3


def test_runs_and_floors_alternate():
    order = []
    cases = [case("one", model_of("mha")), case("two", model_of("mha"), cache="dual")]
    for index, one in enumerate(cases):
        job = one.job
        object.__setattr__(one, "job", lambda s=job, i=index: order.append(i) or s())
    trials, others = run_trials(cases, 2, {"third": lambda: float(order.append(2) or 7)})
    assert order == [0, 1] + [0, 1, 2] * 2
    assert others == {"third": [7.0, 7.0]}
    for trial in trials:
        assert [len(times) for times in trial.runs + trial.floors] == [16] * 4


def test_a_slow_forward_raises_the_ratio_to_the_floor():
    trials, _ = run_trials([replace(case("slow", slowed()), eager=True)], 2, {})
    (row,) = report.rows(trials)
    assert row["ms"] > 2 * 1e3 * PAUSE
    assert row["floor"]["ms"] < 1e3 * PAUSE
    assert row["floor"]["ratio"] > 2
    assert row["kinds"]["full"]["floor"] > 2


def test_a_row_describes_its_run():
    model = model_of("mha")
    plain, dual, recorded = report.rows(
        run_trials(
            [case("plain", model), case("dual", model, cache="dual"),
             case("recorded", model, cache="dual", baseline="dual", record="steps")],
            2, {},
        )[0]
    )  # fmt: skip
    assert [row["nfe"] for row in (plain, dual, recorded)] == [16] * 3
    assert plain["speed_up"] == plain["same"] == 1
    assert {kind: row["steps"] for kind, row in dual["kinds"].items()} == {"full": 4, "partial": 12}
    assert dual["kinds"]["partial"]["flops"] < dual["kinds"]["full"]["flops"]
    one = plain["kinds"]["full"]
    assert one["bytes"] > one["weight_bytes"] > 0
    low, high = plain["ms_range"]
    assert low <= plain["ms"] <= high
    assert plain["positions_per_s"] == pytest.approx(1e3 / plain["ms"])
    assert recorded["floor"] is None
    assert recorded["same"] == 1


def test_the_first_case_of_a_group_is_its_baseline():
    model = model_of("mha")
    rows = report.rows(
        run_trials([case(n, model, g) for g, n in (("x", "a"), ("y", "a"), ("y", "b"))], 1, {})[0]
    )
    assert [row["speed_up"] == 1 for row in rows][:2] == [True, True]
    base, other = rows[1:]
    assert other["speed_up"] == pytest.approx(base["ms"] / other["ms"])


def test_a_run_can_stop_after_a_few_steps():
    assert len(step_seconds(case("plain", model_of("mha")), 3)) == 3


def test_a_table_has_a_line_for_each_row_and_a_column_of_groups():
    rows = report.rows(run_trials([case("plain", model_of("mha"), "short")], 1, {})[0])
    lines = report.table(rows).splitlines()
    assert [cell.strip() for cell in lines[2].split("|")[1:3]] == ["short", "plain"]
    assert len(lines) == 3
    (line,) = report.table([rows[0] | {"group": ""}]).splitlines()[2:]
    assert line.startswith("| plain ")
    older = [{"tokens_per_s": row.pop("positions_per_s")} | row for row in map(dict, rows)]
    assert report.table(older) == report.table(rows), "results that were saved with a former name"
