"""Models of the Hub: what is fetched, told and refused, and a cache that needs no network."""

import contextlib
import json
import shutil
import threading

import pytest
from huggingface_hub import constants

from engine.config.spec import RaceSpec, RunSpec
from engine.core.control import Control
from engine.core.events import RunFinished, RunStarted, Waiting
from engine.models.loading.hub import Hub
from engine.serve.session import Session
from tests.engine.models.loading.test_adapters_from_files import sharded
from tests.engine.models.loading.test_placement import drained
from tests.engine.serve.test_pause_and_stop import is_free
from tests.support.hub_stub import NAME, SPEC, files_of, offline
from tests.support.micro import configure, write_checkpoint

pytest_plugins = ["tests.support.hub_stub"]
pytestmark = pytest.mark.usefixtures("online")

SHARDS = [f"model-{n + 1:05}-of-00003.safetensors" for n in range(3)]


@pytest.fixture
def origin(tmp_path):
    """A model in three shards, with what must never be fetched beside it."""
    folder = write_checkpoint(tmp_path / "origin")
    sharded(folder, index=True)
    (folder / "modeling_llada.py").write_text("raise SystemExit('code of the Hub ran')")
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
    (folder / "spare.safetensors").write_bytes(b"not named by the index")
    (folder / "original").mkdir()
    (folder / "original" / "model.safetensors").write_bytes(b"in a folder")
    return folder


@pytest.fixture
def session(stub, cache):
    return Session({}, Hub(cache, stub.endpoint))


def fetch(hub, fits=lambda folder: None):
    return drained(hub.fetch(NAME, fits))


def test_a_model_is_fetched_loaded_and_run(session, stub):
    stub.delay = 0.03
    events = list(session.run(SPEC))
    waits = [e for e in events if isinstance(e, Waiting)]
    states = [e.state for e in waits]
    assert states == sorted(states, key=("fetching", "loading", "warmup").index)
    assert {"fetching", "loading"} <= set(states)
    assert {e.what for e in waits} == {NAME}
    done = [e.done for e in waits if e.state == "fetching"]
    assert done == sorted(done)
    assert any(isinstance(e, RunStarted) for e in events)
    assert events[-1].reason == "done"


def test_bytes_grow_to_the_size_of_the_weights(stub, cache, origin):
    stub.delay = 0.05
    _, readings = fetch(Hub(cache, stub.endpoint))
    whole = sum((origin / name).stat().st_size for name in SHARDS)
    told = [r.done for r in readings if r.total]
    assert {r.total for r in readings} == {0, whole}
    assert told == sorted(told)
    assert len(set(told)) >= 3
    assert told[-1] == whole


def test_only_weights_configs_and_tokenizers_are_fetched(stub, cache):
    folder, _ = fetch(Hub(cache, stub.endpoint))
    small = ["config.json", "model.safetensors.index.json", "tokenizer.json",
             "tokenizer_config.json"]  # fmt: skip
    assert stub.names() == [*small, *SHARDS]
    assert sorted(p.name for p in folder.iterdir()) == sorted([*small, *SHARDS])


def test_the_small_files_come_before_the_question_whether_it_fits(stub, cache):
    def refuse(folder):
        assert json.loads((folder / "config.json").read_text())["model_type"] == "llada"
        raise ValueError("model: too large")

    with pytest.raises(ValueError, match="model: too large"):
        fetch(Hub(cache, stub.endpoint), refuse)
    assert not [name for name in stub.names() if name.endswith(".safetensors")]
    assert Hub(cache).find(NAME) is None


def test_memory_is_asked_before_the_weights_come(session, stub, origin, monkeypatch):
    monkeypatch.setattr("engine.serve.model_pool.free_bytes", lambda: {"cpu": 300_000})
    end = list(session.run(SPEC))[-1]
    assert end.reason == "failed"
    assert "model: its 0.00 billion numbers at float32 and the run need" in end.message
    assert not [name for name in stub.names() if name.endswith(".safetensors")]


def test_the_disk_is_asked_before_the_weights_come(stub, cache, monkeypatch):
    usage = shutil.disk_usage(cache.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100_000))
    with pytest.raises(ValueError, match=r"model: own/micro takes .* on disk and 0\.0 GB are free"):
        fetch(Hub(cache, stub.endpoint))
    assert not [name for name in stub.names() if name.endswith(".safetensors")]


def test_what_was_fetched_is_not_fetched_again(stub, cache):
    fetch(Hub(cache, stub.endpoint))
    asked = len(stub.asked)
    first, again = Session({}, Hub(cache, stub.endpoint)), Session({}, offline(cache))
    assert [list(s.run(SPEC))[-1].reason for s in (first, again)] == ["done", "done"]
    assert len(stub.asked) == asked


def test_an_interrupted_download_goes_on_with_what_is_missing(stub, cache):
    stub.cut = SHARDS[1]
    with pytest.raises(ValueError, match="model: own/micro came incomplete; run it again"):
        fetch(Hub(cache, stub.endpoint))
    assert Hub(cache).find(NAME) is None
    stub.cut, before = "", len(stub.names())
    folder, readings = fetch(Hub(cache, stub.endpoint))
    assert stub.names()[before:] == SHARDS[1:]
    assert readings[-1].total < sum((folder / name).stat().st_size for name in SHARDS)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [(401, "", "model: the Hub has no own/micro, or keeps it private; .*hf auth login"),
     (404, "RepoNotFound", "model: the Hub has no own/micro, or keeps it private"),
     (403, "GatedRepo", "model: own/micro asks for its terms to be accepted; .*hf auth login"),
     (500, "", "model: the Hub answered 500 for own/micro; try again later")],
)  # fmt: skip
def test_refusals_of_the_hub_are_told(session, stub, status, code, message):
    stub.refusals[NAME] = status, code
    with pytest.raises(ValueError, match=message):
        fetch(session._models._stock._hub)
    end = list(session.run(SPEC))[-1]
    assert (end.reason, "model: " in end.message) == ("failed", True)
    assert is_free(session)


def test_a_model_that_is_not_there_and_no_network(cache, monkeypatch):
    session = Session({}, offline(cache))
    message = "model: own/micro is not on this machine and the Hub cannot be reached"
    assert message in list(session.run(SPEC))[-1].message
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert message in list(session.run(SPEC))[-1].message


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "weights"])
def test_a_model_without_a_part_is_refused(stub, origin, cache, missing):
    gone = [p for p in files_of(origin) if "safetensors" in p.name]
    for path in gone if missing == "weights" else [origin / missing]:
        path.unlink()
    with pytest.raises(
        ValueError, match=r"model: own/micro (has no config\.json|lacks its config)"
    ):
        fetch(Hub(cache, stub.endpoint))


def test_a_stop_while_fetching_leaves_the_lock_free(session, stub):
    stub.held.clear()
    control, kinds = Control(), []
    for event in session.run(SPEC, control):
        kinds.append(type(event))
        if isinstance(event, Waiting) and event.total:
            control.stop()
    assert set(kinds[:-1]) == {Waiting}
    assert kinds[-1] is RunFinished
    assert is_free(session)


def test_others_run_while_a_model_is_fetched(stub, cache, checkpoint):
    session = Session({"micro": checkpoint}, Hub(cache, stub.endpoint))
    stub.held.clear()
    events = session.run(SPEC)
    assert next(events).state == "fetching"
    own = RunSpec.from_dict(SPEC.to_dict() | {"model": "micro"})
    assert list(session.run(own))[-1].reason == "done"
    stub.held.set()
    assert list(events)[-1].reason == "done"


def test_a_download_that_is_not_wanted_ends(stub, cache):
    stub.held.clear()
    before = set(threading.enumerate())
    steps = Hub(cache, stub.endpoint).fetch(NAME, lambda folder: None)
    while next(steps).total == 0:
        pass
    threads = {t for t in set(threading.enumerate()) - before if "work" in t.name}
    steps.close()
    stub.held.set()
    for thread in threads:
        thread.join(5)
    assert threads
    assert not any(thread.is_alive() for thread in threads)
    assert Hub(cache).find(NAME) is None


def test_both_lanes_of_a_race_share_a_download(session, stub):
    ends = [e.reason for _, e in session.race(RaceSpec(SPEC, SPEC)) if isinstance(e, RunFinished)]
    assert ends == ["done", "done"]
    assert len(stub.names()) == len(set(stub.names()))


def test_a_prompt_too_long_for_what_is_fetched_is_told_before_the_weights(session, stub, origin):
    configure(origin, max_sequence_length=12)
    end = list(session.run(SPEC))[-1]
    assert "exceed the context of 12" in end.message
    assert not [name for name in stub.names() if name.endswith(".safetensors")]


def test_the_generator_may_be_dropped_at_any_point(session):
    for _ in range(3):
        with contextlib.closing(session.run(SPEC)) as events:
            next(events)
        assert is_free(session)
