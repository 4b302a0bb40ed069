"""`dtype=auto`: bfloat16 where it is measured faster and the exam shows no loss."""

import dataclasses
import json
import math

import pytest

import engine.serve.number_format as number_format
from engine.config.spec import RaceSpec, RunSpec
from engine.core.events import RunStarted
from engine.core.files import ASSETS
from engine.core.variables import KERNELS
from engine.evaluate import __main__ as evaluate
from engine.models.kernels.machine import measured_path
from engine.models.loading.checkpoint import CheckpointError
from engine.models.loading.exam_file import EXAM, format_scores, write_exam
from engine.models.loading.families import embedded_models, read_model_info
from engine.models.loading.resolver import ModelResolver
from engine.serve.number_format import GAIN, TOLERANCE, NumberFormats, bfloat16_speedup
from engine.serve.session import Session
from tests.support.micro import write_checkpoint

SPEC = RunSpec(model="micro", prompt="Hello", gen_length=8, block_length=8, steps=2, dtype="auto")


def rows(float32=460, bfloat16=460, problems=500):
    spec = {"cache": "none", "unmasker": "quota"}
    common = {"family": "balance", "shots": 0, "problems": problems}
    return [
        common | {"spec": spec | {"dtype": "float32"}, "correct": float32},
        common | {"spec": spec | {"dtype": "bfloat16"}, "correct": bfloat16},
    ]


class Timer:
    """Counts how often a speed-up is measured, and gives `gain`."""

    def __init__(self, gain=2.0):
        self.gain, self.measured = gain, 0

    def __call__(self, info):
        self.measured += 1
        return self.gain


@pytest.fixture
def micro(tmp_path, monkeypatch):
    """A checkpoint with an exam, on a machine of which nothing is known."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(KERNELS)
    folder = write_checkpoint(tmp_path / "micro")
    write_exam(folder, rows())
    return folder


def formats_of(folder, timer):
    return NumberFormats(ModelResolver({"micro": folder}, None, False), timer)


@pytest.mark.parametrize(
    ("gain", "dtype"), [(GAIN, "bfloat16"), (GAIN - 0.01, "float32"), (0.3, "float32")]
)
def test_bfloat16_has_to_be_faster_by_a_set_factor(micro, gain, dtype):
    assert formats_of(micro, Timer(gain)).measured(SPEC).dtype == dtype


@pytest.mark.parametrize(
    ("right", "dtype"), [(470, "bfloat16"), (458, "bfloat16"), (457, "float32")]
)
def test_bfloat16_may_not_cost_right_answers(micro, right, dtype):
    write_exam(micro, rows(bfloat16=right))
    formats = formats_of(micro, Timer())
    assert formats.measured(SPEC).dtype == dtype
    assert f"{right} of 500" in formats.choice(SPEC).reason


def test_the_worst_of_several_settings_decides(micro):
    other = [row | {"family": "lookup"} for row in rows(bfloat16=400)]
    write_exam(micro, rows() + other)
    assert formats_of(micro, Timer()).measured(SPEC).dtype == "float32"


def test_settings_that_differ_in_more_than_the_format_are_no_pair(micro):
    one, two = rows()
    write_exam(micro, [one, two | {"shots": 8}])
    assert format_scores(micro) == []


def test_a_model_without_an_exam_stays_in_float32(micro):
    (micro / EXAM).unlink()
    timer = Timer()
    assert formats_of(micro, timer).measured(SPEC).dtype == "float32"
    assert timer.measured == 0


def test_a_format_that_is_named_is_kept(micro):
    timer = Timer()
    spec = dataclasses.replace(SPEC, dtype="float64")
    assert formats_of(micro, timer).measured(spec) == spec
    assert timer.measured == 0


def test_it_is_measured_once_a_machine_and_only_when_a_run_needs_it(micro):
    timer = Timer()
    formats = formats_of(micro, timer)
    assert formats.known(SPEC).dtype == "float32"
    assert "when the run starts" in formats.choice(SPEC).reason
    assert timer.measured == 0
    assert formats.measured(SPEC).dtype == formats.known(SPEC).dtype == "bfloat16"
    assert formats_of(micro, timer).known(SPEC).dtype == "bfloat16"
    assert timer.measured == 1


def test_a_damaged_file_of_times_is_measured_again(micro):
    timer = Timer()
    formats = formats_of(micro, timer)
    formats.measured(SPEC)
    measured_path("formats").write_text('{"a": []}')
    assert formats.known(SPEC).dtype == "float32"
    assert formats.measured(SPEC).dtype == "bfloat16"


@pytest.mark.parametrize("gain", [0, -1, math.nan, math.inf, pytest.param(10**400, id="huge")])
def test_a_kept_speed_up_that_cannot_be_is_measured_again(micro, gain):
    formats, path = formats_of(micro, Timer()), measured_path("formats")
    formats.measured(SPEC)
    path.write_text(json.dumps(dict.fromkeys(json.loads(path.read_text()), gain)))
    assert "when the run starts" in formats.choice(SPEC).reason
    assert formats.measured(SPEC).dtype == "bfloat16"


def test_nothing_is_timed_where_measuring_is_turned_off(micro, monkeypatch):
    monkeypatch.setenv(KERNELS, "torch")
    timer = Timer()
    assert formats_of(micro, timer).measured(SPEC).dtype == "float32"
    assert timer.measured == 0


@pytest.mark.parametrize(
    "text",
    ["[]", "{}", '{"rows": 3}', '{"rows": [3]}', '{"rows": [{"spec": {"dtype": "float32"}}]}'],
)
def test_a_damaged_exam_is_named(micro, text):
    (micro / EXAM).write_text(text)
    with pytest.raises(CheckpointError, match=r"exam\.json"):
        formats_of(micro, Timer()).choice(SPEC)


def test_wrong_counts_are_refused(micro):
    write_exam(micro, rows(float32=501))
    with pytest.raises(CheckpointError, match=r"exam\.json"):
        format_scores(micro)


def test_a_gpu_takes_bfloat16_unless_it_emulates_it(micro, monkeypatch):
    monkeypatch.setattr(number_format, "main_device", lambda *_: "cuda:0")
    monkeypatch.setattr(number_format, "emulates_bfloat16", lambda _: False)
    formats = formats_of(micro, Timer())
    assert formats.known(SPEC).dtype == "bfloat16"
    monkeypatch.setattr(number_format, "emulates_bfloat16", lambda _: True)
    assert formats.known(SPEC).dtype == "float32"


def test_the_speed_up_is_that_of_a_forward_pass(micro):
    found = bfloat16_speedup(read_model_info(micro))
    assert 0.01 < found < 100


def test_a_race_has_one_format_and_its_record_names_it(micro, monkeypatch):
    monkeypatch.setattr(number_format, "bfloat16_speedup", Timer())
    session = Session({"micro": micro})
    assert session.plan(SPEC)["dtype"] == "float32"
    dual = dataclasses.replace(SPEC, cache="dual")
    started = [
        event for _, event in session.race(RaceSpec(SPEC, dual)) if isinstance(event, RunStarted)
    ]
    assert [one.spec["dtype"] for one in started] == ["bfloat16", "bfloat16"]
    planned = session.plan(SPEC)
    assert planned["dtype"] == "bfloat16"
    assert "0.50 times as long" in planned["dtype_reason"]
    assert (
        planned["weights_bytes"] * 2
        == session.plan(dataclasses.replace(SPEC, dtype="float32"))["weights_bytes"]
    )


def test_an_exam_names_its_format(micro, capsys):
    words = ["--model", str(micro), "--dtype", "auto", "--problems", "1"]
    with pytest.raises(SystemExit, match="dtype: auto is chosen for runs"):
        evaluate.main(words)


def test_an_exam_file_keeps_what_the_choice_needs(micro):
    kept = json.loads((micro / EXAM).read_text())["rows"]
    assert kept == rows()
    (scores,) = format_scores(micro)
    assert (scores.problems, scores.float32, scores.bfloat16) == (500, 460, 460)
    assert scores.lost == 0


def test_exams_of_embedded_models_decide(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(KERNELS)
    formats = NumberFormats(ModelResolver(embedded_models(ASSETS), None, False), Timer())
    chosen = {
        name: formats.measured(dataclasses.replace(SPEC, model=name)).dtype
        for name in ("tiny-llada", "tiny-block")
    }
    scores = {name: format_scores(ASSETS / "models" / name) for name in chosen}
    assert chosen == {
        name: "bfloat16" if max(one.lost for one in found) <= TOLERANCE else "float32"
        for name, found in scores.items()
    }
    assert [max(one.problems for one in found) for found in scores.values()] == [500, 500]
