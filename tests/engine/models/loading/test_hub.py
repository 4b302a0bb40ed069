"""Downloads from the Hub: files, progress, errors, stopping, and a cache without network."""

import contextlib
import errno
import json
import shutil
import threading

import httpx2
import pytest
from huggingface_hub import constants
from huggingface_hub.errors import OfflineModeIsEnabled

from engine.config.spec import RaceSpec, RunSpec
from engine.core.control import Control
from engine.core.events import RunFinished, RunStarted, Waiting
from engine.core.progress import run_to_end
from engine.models.loading.hub import Hub
from engine.serve.session import Session
from tests.engine.models.loading.test_adapters_from_files import sharded
from tests.engine.models.loading.test_placement import collect
from tests.engine.serve.test_pause_and_stop import is_free
from tests.support.hub_stub import COMMIT, NAME, SPEC, files_of, offline
from tests.support.micro import configure, write_checkpoint

pytest_plugins = ["tests.support.hub_stub"]
pytestmark = pytest.mark.usefixtures("online")

SHARDS = [f"model-{n + 1:05}-of-00003.safetensors" for n in range(3)]


@pytest.fixture
def origin(tmp_path):
    """A model in three shards, next to files that must never be downloaded."""
    folder = write_checkpoint(tmp_path / "origin")
    sharded(folder, index=True)
    (folder / "modeling_llada.py").write_text("raise SystemExit('code of the Hub ran')")
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
    (folder / "spare.safetensors").write_bytes(b"not in the index")
    (folder / "original").mkdir()
    (folder / "original" / "model.safetensors").write_bytes(b"in a subfolder")
    return folder


@pytest.fixture
def session(stub, cache):
    return Session({}, Hub(cache, stub.endpoint))


def fetch(hub, fits=lambda folder: None):
    return collect(hub.fetch(NAME, fits))


def test_a_model_is_downloaded_loaded_and_run(session, stub):
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


def test_progress_ends_at_the_size_of_the_weights(stub, cache, origin):
    stub.delay = 0.05
    _, reports = fetch(Hub(cache, stub.endpoint))
    whole = sum((origin / name).stat().st_size for name in SHARDS)
    done = [r.done for r in reports if r.total]
    assert {r.total for r in reports} == {0, whole}
    assert done == sorted(done)
    assert len(set(done)) >= 3
    assert done[-1] == whole


def test_only_weights_configs_and_tokenizers_are_downloaded(stub, cache):
    folder, _ = fetch(Hub(cache, stub.endpoint))
    small = ["config.json", "model.safetensors.index.json", "tokenizer.json",
             "tokenizer_config.json"]  # fmt: skip
    assert stub.downloads() == [*small, *SHARDS]
    assert sorted(p.name for p in folder.iterdir()) == sorted([*small, *SHARDS])


def test_small_files_come_before_the_memory_check(stub, cache):
    def refuse(folder):
        assert json.loads((folder / "config.json").read_text())["model_type"] == "llada"
        raise ValueError("model: too large")

    with pytest.raises(ValueError, match="model: too large"):
        fetch(Hub(cache, stub.endpoint), refuse)
    assert not [name for name in stub.downloads() if name.endswith(".safetensors")]
    assert Hub(cache).find(NAME) is None


def test_memory_is_checked_before_the_weights_are_downloaded(session, stub, origin, monkeypatch):
    monkeypatch.setattr("engine.serve.model_pool.free_bytes", lambda: {"cpu": 300_000})
    end = list(session.run(SPEC))[-1]
    assert end.reason == "failed"
    assert "model: its 0.00 billion parameters at float32 and the run need" in end.message
    assert not [name for name in stub.downloads() if name.endswith(".safetensors")]


def test_the_disk_is_checked_before_the_weights_are_downloaded(stub, cache, monkeypatch):
    usage = shutil.disk_usage(cache.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100_000))
    with pytest.raises(ValueError, match=r"model: own/micro takes .* on disk and 0\.0 GB are free"):
        fetch(Hub(cache, stub.endpoint))
    assert not [name for name in stub.downloads() if name.endswith(".safetensors")]


def test_small_files_that_are_large_are_not_downloaded(stub, cache, monkeypatch):
    monkeypatch.setattr("engine.models.loading.hub.MAX_JSON_BYTES", 1_000)
    with pytest.raises(ValueError, match=r"model: \S+ of own/micro has \d+ bytes, and at most"):
        fetch(Hub(cache, stub.endpoint))
    assert stub.downloads() == []


def test_a_cached_model_makes_no_request(stub, cache):
    fetch(Hub(cache, stub.endpoint))
    requests = len(stub.requests)
    first, again = Session({}, Hub(cache, stub.endpoint)), Session({}, offline(cache))
    assert [list(s.run(SPEC))[-1].reason for s in (first, again)] == ["done", "done"]
    assert len(stub.requests) == requests


def test_an_interrupted_download_continues_with_the_missing_files(stub, cache):
    stub.truncated = SHARDS[1]
    with pytest.raises(ValueError, match="model: the download of own/micro is incomplete"):
        fetch(Hub(cache, stub.endpoint))
    assert Hub(cache).find(NAME) is None
    stub.truncated, before = "", len(stub.downloads())
    folder, reports = fetch(Hub(cache, stub.endpoint))
    assert stub.downloads()[before:] == SHARDS[1:]
    assert reports[-1].total < sum((folder / name).stat().st_size for name in SHARDS)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [(401, "", "model: the Hub has no own/micro, or keeps it private; .*hf auth login"),
     (404, "RepoNotFound", "model: the Hub has no own/micro, or keeps it private"),
     (403, "GatedRepo", "model: own/micro requires its terms to be accepted; .*hf auth login"),
     (500, "", "model: the Hub answered 500 for own/micro; try again later")],
)  # fmt: skip
def test_errors_of_the_hub(session, stub, cache, status, code, message):
    stub.errors[NAME] = status, code
    with pytest.raises(ValueError, match=message):
        fetch(Hub(cache, stub.endpoint))
    end = list(session.run(SPEC))[-1]
    assert (end.reason, "model: " in end.message) == ("failed", True)
    assert is_free(session)


def test_a_missing_model_without_network(cache, monkeypatch):
    session = Session({}, offline(cache))
    message = "model: own/micro is not on this machine and the Hub cannot be reached"
    assert message in list(session.run(SPEC))[-1].message
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert message in list(session.run(SPEC))[-1].message


def test_all_files_are_of_the_commit_that_was_checked(stub, cache):
    def push(folder):
        stub.commit = "f" * 40

    folder, _ = fetch(Hub(cache, stub.endpoint), push)
    assert folder.name == COMMIT
    assert not [path for _, path in stub.requests if "f" * 40 in path]
    assert len(stub.downloads()) == len(set(stub.downloads()))
    assert Hub(cache).find(NAME) == folder


@pytest.mark.parametrize(
    ("error", "message"),
    [(OSError(errno.EIO, "Input/output error"), "model: the download of own/micro failed .*output"),
     (OSError(errno.ENOSPC, "No space"), "model: the disk is full while own/micro is downloaded"),
     (PermissionError(errno.EACCES, "denied"), "model: the cache of the Hub cannot be written"),
     (OfflineModeIsEnabled("off"), "model: own/micro is not on .* and the Hub cannot be reached"),
     (httpx2.ReadTimeout("slow"), "model: own/micro is not on .* cannot be reached .ReadTimeout"),
     (TypeError("a bug"), "^a bug$")],
)  # fmt: skip
def test_only_network_errors_are_an_unreachable_hub(stub, cache, monkeypatch, error, message):
    def fail(*args, **options):
        raise error

    monkeypatch.setattr("engine.models.loading.hub.hf_hub_download", fail)
    kind = TypeError if isinstance(error, TypeError) else ValueError
    with pytest.raises(kind, match=message):
        fetch(Hub(cache, stub.endpoint))


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "weights"])
def test_a_model_without_a_required_file_is_an_error(stub, origin, cache, missing):
    gone = [p for p in files_of(origin) if "safetensors" in p.name]
    for path in gone if missing == "weights" else [origin / missing]:
        path.unlink()
    with pytest.raises(
        ValueError, match=r"model: own/micro (has no config\.json|lacks its config)"
    ):
        fetch(Hub(cache, stub.endpoint))


def test_a_stop_while_downloading_frees_the_queue(session, stub):
    stub.release.clear()
    control, kinds = Control(), []
    for event in session.run(SPEC, control):
        kinds.append(type(event))
        if isinstance(event, Waiting) and event.total:
            control.stop()
    assert set(kinds[:-1]) == {Waiting}
    assert kinds[-1] is RunFinished
    assert is_free(session)


def test_other_models_run_during_a_download(stub, cache, checkpoint):
    session = Session({"micro": checkpoint}, Hub(cache, stub.endpoint))
    stub.release.clear()
    events = session.run(SPEC)
    assert next(events).state == "fetching"
    own = RunSpec.from_dict(SPEC.to_dict() | {"model": "micro"})
    assert list(session.run(own))[-1].reason == "done"
    stub.release.set()
    assert list(events)[-1].reason == "done"


def test_closing_the_generator_ends_the_download(stub, cache):
    stub.release.clear()
    before = set(threading.enumerate())
    steps = Hub(cache, stub.endpoint).fetch(NAME, lambda folder: None)
    while next(steps).total == 0:
        pass
    threads = {t for t in set(threading.enumerate()) - before if "work" in t.name}
    steps.close()
    stub.release.set()
    for thread in threads:
        thread.join(5)
    assert threads
    assert not any(thread.is_alive() for thread in threads)
    assert Hub(cache).find(NAME) is None


def test_both_lanes_of_a_race_share_a_download(session, stub):
    ends = [e.reason for _, e in session.race(RaceSpec(SPEC, SPEC)) if isinstance(e, RunFinished)]
    assert ends == ["done", "done"]
    assert len(stub.downloads()) == len(set(stub.downloads()))


def test_a_download_that_another_run_ends_during_the_plan_is_noticed(session, monkeypatch):
    """The first plan knows neither the prompt's tokens nor, of a branch, where it starts."""
    plan, suffix_tokens, plans = session.plan, session._models.suffix_tokens, []

    def slow(spec):
        run_to_end(session._models.fetch(spec))
        return suffix_tokens(spec)

    monkeypatch.setattr(session._models, "suffix_tokens", slow)
    monkeypatch.setattr(session, "plan", lambda spec: plans.append(plan(spec)) or plans[-1])
    assert list(session.run(SPEC))[-1].reason == "done"
    assert [plan["prompt_tokens"] is None for plan in plans] == [True, False]


def test_a_prompt_too_long_is_an_error_before_the_weights_are_downloaded(session, stub, origin):
    configure(origin, max_sequence_length=12)
    end = list(session.run(SPEC))[-1]
    assert "exceed the context of 12" in end.message
    assert not [name for name in stub.downloads() if name.endswith(".safetensors")]


def test_a_run_may_be_closed_while_downloading(session):
    for _ in range(3):
        with contextlib.closing(session.run(SPEC)) as events:
            next(events)
        assert is_free(session)
