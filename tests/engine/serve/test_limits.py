"""Limits of a public page: refusals name the field and the limit."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from engine.config.spec import RaceSpec, RunSpec
from engine.models.loading.hub import Hub
from engine.models.loading.resolver import REGISTERED
from engine.serve.limits import OWN_RECORDING, Limits, recorded_bytes, recording_problem
from engine.serve.memory_budget import device_titles
from engine.serve.session import Session
from inspector.catalog import Catalog
from tests.engine.serve.test_race import PLAIN
from tests.support.micro import make_info
from tests.support.traces import trace_of

LIMITS = Limits()
BEYOND = {
    "gen_length": ({"gen_length": 520, "steps": 520}, "at most 512"),
    "steps": ({"gen_length": 512, "steps": 576}, "at most 512"),
    "prompt": ({"prompt": "x" * 4001}, "shorten it to 4000"),
    "device": ({"device": "auto"}, "set device to cpu"),
}


@pytest.fixture
def public(checkpoint):
    return Session({"micro": checkpoint}, public=True)


@pytest.mark.parametrize("field", BEYOND)
def test_a_field_beyond_its_limit_is_refused_by_plan_run_and_race(session, public, field):
    changes, remedy = BEYOND[field]
    spec = replace(PLAIN, block_length=8, **changes)
    race = RaceSpec(PLAIN, spec)
    for ask in (public.plan, lambda one: next(public.run(one)), lambda _: next(public.race(race))):
        with pytest.raises(ValueError, match=f"^{field}: .*{remedy}"):
            ask(spec)
    if field != "prompt":  # the model has a limit of its own
        assert session.plan(spec)["max_forwards"] > 0


def test_a_limit_is_named_before_an_unknown_model_by_plan_and_run(public):
    spec = replace(PLAIN, model="unknown", gen_length=520, steps=520)
    for ask in (public.plan, lambda one: next(public.run(one))):
        with pytest.raises(ValueError, match=r"^gen_length: "):
            ask(spec)


@pytest.mark.parametrize(
    ("gpus", "offered"), [(0, "cpu"), (1, "cpu or cuda"), (2, "cpu or cuda or cuda:0 or cuda:1")]
)
def test_a_refused_device_is_answered_with_those_that_the_machine_has(monkeypatch, gpus, offered):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(ValueError, match=f"^device: auto is not .*set device to {offered}$"):
        LIMITS.check(replace(PLAIN, device="auto"))


def test_the_catalog_shows_the_limits(public):
    fields = {row["name"]: row for row in public.catalog()["fields"]}
    assert (fields["gen_length"]["hi"], fields["steps"]["hi"]) == (512, 512)
    assert "auto" not in public.catalog()["devices"]
    assert Limits(gen_length=64).limit_fields([{"name": "seed", "hi": 9}]) == [
        {"name": "seed", "hi": 9}
    ]
    LIMITS.check(RunSpec(gen_length=512, block_length=32, steps=512, prompt="x" * 4000))


def test_a_recording_that_is_too_large_is_refused_with_a_smaller_level(public, monkeypatch):
    monkeypatch.setattr(public, "_limits", Limits(recording=6_000))
    public.plan(replace(PLAIN, record="steps"))
    with pytest.raises(ValueError, match=r"^record: level layers .* set record to steps"):
        public.plan(replace(PLAIN, record="layers"))
    monkeypatch.setattr(public, "_limits", Limits(recording=100))
    with pytest.raises(ValueError, match=r"set record to off"):
        public.plan(replace(PLAIN, record="steps"))


@pytest.mark.parametrize("record", ["steps", "layers", "probe"])
def test_recorded_bytes_are_close_to_those_of_the_trace(session, record):
    spec = replace(PLAIN, record=record, probe_steps=4)
    trace = trace_of(session.run(spec))
    info, tokens = session._models.info("micro"), len(session._models.prompt(spec))
    names = {"steps": ("plan",), "layers": ("plan", "drift", "similarity")}.get(record)
    lens = ("lens_id", "lens_prob", "lens_token_prob")
    names = names or ("plan", "drift", "similarity", "probe_error", "probe_moved", *lens)
    arrays = trace.arrays()
    names = (*names, *(name for name in arrays if name.startswith(("candidate_", "proposal_"))))
    held = sum(arrays[name].nbytes for name in names)
    assert 0.9 * held < recorded_bytes(spec, info, tokens, trace.steps) < 1.1 * held
    assert recorded_bytes(replace(spec, record="off"), info, tokens, trace.steps) == 0


@pytest.mark.parametrize("record", ["layers", "probe"])
def test_a_plan_counts_the_suffix_in_a_recording(session, record):
    spec = replace(PLAIN, record=record, suffix=" and more words after the answer" * 4)
    trace, bare = trace_of(session.run(spec)), session.plan(replace(spec, suffix=""))
    held = sum(array.nbytes for array in trace.arrays().values())
    planned = session.plan(spec)["recording"]["bytes"]
    assert planned > 1.2 * bare["recording"]["bytes"]
    assert 0.8 * held < planned < 1.2 * held


def test_an_answer_that_is_given_completely_has_a_plan_and_a_run(session):
    spec = replace(PLAIN, fixed=tuple((place, 9) for place in range(PLAIN.gen_length)))
    assert session.plan(spec)["max_forwards"] == 0
    *_, end = session.run(spec)
    assert (end.reason, end.metrics["nfe"]) == ("done", 0)


def test_all_but_the_longest_presets_are_within_the_limits():
    refused = set()
    for model in REGISTERED.values():
        for preset in model.presets:
            fields = preset.to_dict()["fields"]
            try:
                LIMITS.check(RunSpec.from_dict({"model": model.name} | fields))
            except ValueError as error:
                refused.add((model.name, preset.name, re.match(r"\w+", str(error)).group()))
    assert refused == {
        ("GSAI-ML/LLaDA-1.5", "math", "gen_length"),
        ("GSAI-ML/LLaDA-8B-Instruct", "flashdlm", "gen_length"),
        ("Dream-org/Dream-v0-Instruct-7B", "flashdlm", "gen_length"),
        ("Dream-org/Dream-Coder-v0-Instruct-7B", "demo", "gen_length"),
    }


def test_gpus_are_titled_with_name_memory_and_bfloat16_support(session, monkeypatch):
    assert session.catalog()["device_titles"] == {}
    cards = [SimpleNamespace(name="NVIDIA L40S", total_memory=47_700_000_000, major=8),
             SimpleNamespace(name="Tesla T4", total_memory=15_800_000_000, major=7)]  # fmt: skip
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(cards))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: cards[i])
    found = device_titles()
    assert found["cuda"] == found["cuda:0"] == "NVIDIA L40S, 47.7 GB"
    assert found["cuda:1"] == "Tesla T4, 15.8 GB, bfloat16 emulated: choose float16"
    catalog = Catalog(
        session.catalog() | {"device_titles": found, "devices": ["cpu", "cuda:1"]},
        session.default_race(),
    )
    assert catalog.device_choices == [("cpu", "cpu"), (f"cuda:1 · {found['cuda:1']}", "cuda:1")]


NARROW = {
    "record_layers": "2",
    "record_quantities": "k,v",
    "record_every": 3,
    "record_positions": "answer",
}


@pytest.mark.parametrize("name", NARROW)
def test_a_narrowed_recording_is_counted_as_it_is_kept(session, name):
    spec = replace(PLAIN, record="layers", **{name: NARROW[name]})
    trace = trace_of(session.run(spec))
    names = ("plan", "drift", "similarity", "candidate_", "proposal_")
    held = sum(a.nbytes for name, a in trace.arrays().items() if name.startswith(names))
    found = session.plan(spec)["recording"]["bytes"]
    assert 0.9 * held < found < 1.2 * held
    assert found < session.plan(replace(PLAIN, record="layers"))["recording"]["bytes"]


def test_the_plan_says_what_recording_would_keep_before_it_is_asked_for(session):
    asked = session.plan(replace(PLAIN, record="layers"))["recording"]
    assert session.plan(PLAIN)["recording"] == asked
    assert asked["problem"] == ""


def big(**changes):
    """Settings, sizes and prompt of an 8B model with a long answer, and its forwards."""
    spec = RunSpec(gen_length=1024, steps=1024, record="layers", **changes)
    return spec, make_info(layers=32), 2048, 1024


def test_an_8b_recording_is_about_its_drifts_and_fits_on_ones_own_machine():
    assert 503e6 < recorded_bytes(*big()) < 600e6
    assert recording_problem(*big(), OWN_RECORDING) == ""


def test_a_refusal_names_values_that_fit_and_are_the_widest():
    most = 100_000_000
    problem = recording_problem(*big(), most)
    fields = dict(re.findall(r"set (record_\w+) to (\S+?),", problem))
    assert set(fields) == {"record_layers", "record_every"}
    every, last = int(fields["record_every"]), int(fields["record_layers"].removeprefix("1-"))
    for name, fits, wider in (
        ("record_every", every, every - 1),
        ("record_layers", f"1-{last}", f"1-{last + 1}"),
    ):
        assert recorded_bytes(*big(**{name: fits})) <= most
        assert recorded_bytes(*big(**{name: wider})) > most
    assert "set record_positions to answer" in recording_problem(*big(), 300_000_000)


def test_what_does_not_fit_the_run_is_refused_by_name_before_it_starts(session):
    with pytest.raises(ValueError, match=r"^record_layers: layer 3 is beyond the model's 2"):
        session.plan(replace(PLAIN, record_layers="1-3"))
    with pytest.raises(ValueError, match=r"^record_positions: position 900 is beyond the 33"):
        next(session.run(replace(PLAIN, record="layers", record_positions="1-900")))


@pytest.fixture
def away(tmp_path, monkeypatch):
    """A session with much memory, whose registered models are still to be downloaded."""
    monkeypatch.setattr("engine.serve.model_pool.free_bytes", lambda: {"cpu": 40 * 10**9})
    return Session({}, Hub(tmp_path))


LLADA = RunSpec(
    model="GSAI-ML/LLaDA-8B-Instruct", dtype="bfloat16", prompt="Hi", gen_length=256, steps=256
)


@pytest.mark.parametrize("record", ["steps", "layers", "probe"])
def test_a_recording_before_the_download_is_counted_with_the_longest_prompt(away, record):
    spec = replace(LLADA, record=record)
    found, info = away.plan(spec), away.model_info(LLADA.model)
    assert (found["prompt_tokens"], found["recording"]) == (None, None)
    assert found["recording_bytes"] == recorded_bytes(spec, info, 4096 - 256, 256)
    assert found["recording_bytes"] < OWN_RECORDING / 4


def test_a_recording_before_the_download_counts_no_more_than_is_allowed(away, monkeypatch):
    monkeypatch.setattr(away, "_limits", Limits(recording=50_000_000))
    assert away.plan(replace(LLADA, record="layers"))["recording_bytes"] == 50_000_000
    monkeypatch.setattr(away, "_limits", Limits(recording=5_000_000))  # too few for any prompt
    with pytest.raises(ValueError, match=r"^record: level layers keeps about"):
        away.plan(replace(LLADA, record="layers"))


def test_a_recording_of_a_model_whose_sizes_are_unknown_is_not_counted(away):
    assert away.plan(replace(LLADA, model="someone/else"))["recording_bytes"] is None


def test_positions_of_a_prompt_before_the_download_are_refused_only_beyond_the_context(away):
    ranged = replace(LLADA, record="layers", record_positions="300-400")  # 257 are certain
    assert away.plan(ranged)["recording_bytes"] < away.plan(LLADA)["recording_bytes"]
    with pytest.raises(ValueError, match=r"^record_positions: position 4097 is beyond the 4096"):
        away.plan(replace(LLADA, record_positions="4000-4097"))


def test_the_logit_lens_has_no_text_after_the_answer():
    spec, info, tokens, forwards = big(record_positions="3000-3072")
    lanes = [replace(spec, record=record, probe_steps=8) for record in ("layers", "probe")]
    kept, probed = (recorded_bytes(lane, info, tokens, forwards, suffix=32) for lane in lanes)
    assert probed - kept == 8 * 32 * 73 * (2 * 4 + 2 * 6)  # the last 32 of 3104 are behind it
    wider = [replace(lane, record_positions="3000-3104") for lane in lanes]
    kept, probed = (recorded_bytes(lane, info, tokens, forwards, suffix=32) for lane in wider)
    assert probed - kept == 8 * 32 * (105 * 2 * 4 + 73 * 2 * 6)


def test_the_logit_lens_of_an_8b_model_is_counted_exactly():
    spec, info, tokens, forwards = big(record_positions="3000-3072")
    probed = replace(spec, record="probe", probe_steps=8)
    cells = 8 * 32 * 73
    more = recorded_bytes(probed, info, tokens, forwards)
    assert more - recorded_bytes(spec, info, tokens, forwards) == cells * (2 * 4 + 2 * 6)
