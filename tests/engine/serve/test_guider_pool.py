"""Guiders from the Hub: fetching, loading, running, and refusals that name the knob."""

import json
import shutil

import pytest

from engine.config.spec import RunSpec
from engine.core.control import Control
from engine.core.events import RunStarted, Waiting
from engine.core.progress import run_to_end
from engine.estimate.gpu_time import GPUS, LAUNCH_SECONDS, RESERVE, run_seconds, start_seconds
from engine.models.loading.checkpoint import Checkpoint
from engine.models.loading.families import embedded_models
from engine.models.loading.hub import Hub
from engine.serve.memory_budget import held_bytes
from engine.serve.model_pool import ModelPool
from engine.serve.session import Session
from tests.support.hub_stub import NAME, offline, serving
from tests.support.micro import ROOT, TINY, write_checkpoint

pytest_plugins = ["tests.support.hub_stub"]
pytestmark = pytest.mark.usefixtures("online")

QWEN = TINY.parent / "tiny-qwen2"
SUM = "Nuts cost 9 dollars each. Lily buys 5 nuts. How much does she pay?"


@pytest.fixture
def origin():
    return QWEN


@pytest.fixture
def session(stub, cache):
    return Session(embedded_models(ROOT / "assets"), Hub(cache, stub.endpoint))


def guided_spec(guider=NAME, **changes):
    size = {"gen_length": 32, "block_length": 32, "steps": 32, "prompt": SUM}
    guided = {"unmasker": "guided", "knobs": {"guided.guider": guider}}
    return RunSpec(**(guided | size | changes))


def causal_spec(decoder):
    knobs = {"autoregressive.model": decoder}
    return RunSpec(model="other", prompt=SUM, unmasker="autoregressive", knobs=knobs, gen_length=32)


def weights(stub):
    """The fetched files that hold weights."""
    return [name for name in stub.downloads() if name.endswith(".safetensors")]


def test_a_fetched_guider_guides_as_the_embedded_one(session, stub, cache):
    events = list(session.run(guided_spec()))
    assert events[-1].reason == "done", events[-1].message
    states = [event.state for event in events if isinstance(event, Waiting)]
    assert {"fetching", "loading"} <= set(states)
    started = next(event for event in events if isinstance(event, RunStarted))
    assert (started.guider["name"], started.guider["digest"]) == (NAME, Checkpoint(QWEN).digest())
    embedded = list(session.run(guided_spec("tiny-qwen2")))[-1]
    assert events[-1].texts == embedded.texts
    assert events[-1].metrics["accepted"] == embedded.metrics["accepted"]
    assert weights(stub) == ["model.safetensors"]
    assert "README.md" not in stub.downloads()
    again = Session(embedded_models(ROOT / "assets"), offline(cache))
    assert list(again.run(guided_spec()))[-1].texts == embedded.texts


@pytest.mark.parametrize(
    ("knob", "spec"),
    [
        ("guided.guider", guided_spec("own/absent")),
        ("model", guided_spec("tiny-qwen2", model="own/absent")),
    ],
)
def test_a_name_missing_on_the_hub_is_refused_with_its_knob(session, knob, spec):
    end = list(session.run(spec))[-1]
    assert end.reason == "failed"
    assert f"failed: {knob}: the Hub has no own/absent, or keeps it private" in end.message


def test_an_incomplete_download_is_refused_with_the_knob(session, stub):
    stub.truncated = "model.safetensors"
    end = list(session.run(guided_spec()))[-1]
    assert f"failed: guided.guider: the download of {NAME} is incomplete" in end.message


def test_a_folder_without_a_config_is_refused_with_its_knob(session, tmp_path):
    with pytest.raises(ValueError, match=r"^guided\.guider: .* holds no config\.json"):
        session.plan(guided_spec(str(tmp_path)))
    with pytest.raises(ValueError, match=r"^model: .* holds no config\.json"):
        session.plan(guided_spec("tiny-qwen2", model=str(tmp_path)))


@pytest.mark.parametrize(
    ("make_spec", "knob"), [(guided_spec, "guided.guider"), (causal_spec, "autoregressive.model")]
)
def test_a_config_with_too_many_layers_is_refused(session, tmp_path, make_spec, knob):
    """The library makes a part for each of them, which may take minutes."""
    folder = shutil.copytree(QWEN, tmp_path / "deep")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1_025}))
    said = rf"^{knob}: config.json: num_hidden_layers is 1025; 1 to 1024 expected"
    with pytest.raises(ValueError, match=said):
        session.plan(make_spec(str(folder)))


def test_memory_is_checked_before_the_weights_of_a_guider_are_fetched(session, stub, monkeypatch):
    alone = session.plan(guided_spec(unmasker="threshold", knobs={}))
    short = alone["weights_bytes"] * 21 // 20 + alone["memory_bytes"] - alone["weights_bytes"]
    whole = short + session.plan(guided_spec("tiny-qwen2"))["guider_bytes"]
    monkeypatch.setattr("engine.serve.model_pool.free_bytes", lambda: {"cpu": whole - 1})
    assert session.plan(guided_spec())["guider_bytes"] is None
    end = list(session.run(guided_spec()))[-1]
    assert "model: its 0.00 billion parameters at float32 and the run need" in end.message
    assert "config.json" in stub.downloads()
    assert weights(stub) == []
    monkeypatch.setattr("engine.serve.model_pool.free_bytes", lambda: {"cpu": whole + 10_000})
    assert list(session.run(guided_spec()))[-1].reason == "done"


def test_guider_memory_is_checked_before_the_models_weights_are_fetched(tmp_path, monkeypatch):
    with serving({NAME: write_checkpoint(tmp_path / "origin")}) as stub:
        session = Session({}, Hub(tmp_path / "cache", stub.endpoint))
        monkeypatch.setattr("engine.serve.model_pool.free_bytes", lambda: {"cpu": 7_000_000})
        end = list(session.run(guided_spec("tiny-qwen2", model=NAME)))[-1]
        assert "model: its 0.00 billion parameters" in end.message
        assert weights(stub) == []
        plain = guided_spec(unmasker="threshold", knobs={}, model=NAME)
        assert list(session.run(plain))[-1].reason == "done"


def test_a_decoder_is_fetched_if_it_fits_once_other_models_are_evicted(stub, cache, monkeypatch):
    pool = ModelPool({"other": TINY}, Hub(cache, stub.endpoint))
    pool.load(RunSpec(model="other", prompt=SUM))
    needed = pool.guiders.decoder_bytes(causal_spec("tiny-qwen2"), 64)

    def free():
        held = held_bytes([one.adapter for one in pool._loaded.values()])
        return {"cpu": needed + 100_000 - held["cpu"]}

    for place in ("serve.model_pool", "serve.guider_pool", "models.loading.memory_estimate"):
        monkeypatch.setattr(f"engine.{place}.free_bytes", free)
    assert 0 < free()["cpu"] < needed // 2
    run_to_end(pool.fetch(causal_spec(NAME)))
    assert weights(stub) == ["model.safetensors"]


@pytest.mark.parametrize(
    ("folder", "changes", "message"),
    [(TINY, {}, "failed: guided.guider: config.json: "),
     (TINY.parent / "tiny-qwen2-digits", {"guided.fallback": "ar"}, "failed: guided.fallback: ")],
)  # fmt: skip
def test_an_unusable_guider_is_refused_before_its_weights_are_fetched(
    cache, folder, changes, message
):
    with serving({NAME: folder}) as stub:
        session = Session(embedded_models(ROOT / "assets"), Hub(cache, stub.endpoint))
        end = list(session.run(guided_spec(knobs={"guided.guider": NAME} | changes)))[-1]
    assert message in end.message
    assert weights(stub) == []


def test_a_plan_counts_the_download_of_a_guider_of_known_size(session, monkeypatch):
    large, tokens = 7_615_616_512, session.plan(guided_spec())["prompt_tokens"] + 32
    spec = guided_spec("Qwen/Qwen2.5-7B-Instruct")
    monkeypatch.setattr("engine.serve.model_pool.free_bytes", lambda: {"cpu": 40 * 10**9})
    plan = session.plan(spec)
    assert plan["fetch_bytes"] == 2 * large
    assert plan["guider_bytes"] == 4 * (large + 2 * 28 * 4 * 128 * tokens)
    assert plan["memory_bytes"] > plan["guider_bytes"]
    monkeypatch.setattr("engine.serve.model_pool.free_bytes", lambda: {"cpu": 30 * 10**9})
    with pytest.raises(ValueError, match=r"model: its .* and the run need 30\.5 GB"):
        session.plan(spec)


def test_a_plan_leaves_unknown_sizes_out(session, monkeypatch):
    found = [session.plan(guided_spec(name)) for name in (NAME, "tiny-qwen2")]
    assert [plan["fetch_bytes"] for plan in found] == [0, 0]
    assert [plan["guider_bytes"] is None for plan in found] == [True, False]
    monkeypatch.setattr("engine.serve.model_pool.free_bytes", lambda: {"cpu": 40 * 10**9})
    big = session.plan(guided_spec(model="GSAI-ML/LLaDA-8B-Instruct", dtype="bfloat16"))
    assert big["fetch_bytes"] == 16_031_162_368


def test_the_time_of_a_guided_run_counts_its_guider(session):
    """As much as its forwards add, by the plan of the run; a run without one has none."""
    gpu, spec = GPUS["zero-a10g"], guided_spec("tiny-qwen2")
    plan, info = session.plan(spec), session.model_info(spec.model)
    own = RESERVE * run_seconds(gpu, spec, info, plan) + start_seconds(spec, info)
    reads = plan["max_forwards"]
    assert session.seconds(gpu, spec, plan) > own + reads * LAUNCH_SECONDS * 8  # layers
    plain = RunSpec(prompt=SUM, gen_length=32, block_length=32, steps=32)
    plan = session.plan(plain)
    own = RESERVE * run_seconds(gpu, plain, info, plan) + start_seconds(plain, info)
    assert session.seconds(gpu, plain, plan) == own


def test_the_guider_of_a_run_that_goes_on_is_not_evicted_for_another(monkeypatch):
    """It would stay in memory with the run, and nobody would count it."""
    monkeypatch.setattr("engine.serve.guider_pool.MAX_LOADED", 1)
    pool = ModelPool({"other": TINY})
    specs = [
        guided_spec(guider, model="other", dtype=dtype)
        for guider, dtype in [("tiny-qwen2", "float32"), ("tiny-qwen2-digits", "float32"),
                              ("tiny-qwen2", "bfloat16")]
    ]  # fmt: skip
    pool.in_use.add("run", Control(), specs[:1])
    for spec in specs:
        pool.load(spec)
    held = [pool.guiders._needed_key(spec) in pool.guiders._loaded for spec in specs]
    assert held == [True, False, True]
