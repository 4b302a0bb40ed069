"""Models in the Hub's cache: found and planned without network."""

import pytest

from engine.config.spec import RunSpec
from engine.core.events import Waiting
from engine.models.loading.hub import Hub, is_repo_id
from engine.serve.session import Session
from tests.engine.models.loading.test_adapters_from_files import sharded
from tests.support.hub_stub import NAME, SPEC, cached, offline, serving
from tests.support.micro import write_checkpoint


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.mark.parametrize("kind", ["llada", "dream"])
def test_a_cached_model_runs_without_network(tmp_path, cache, kind):
    origin = write_checkpoint(tmp_path / "origin", kind=kind)
    folder = cached(origin, cache)
    session = Session({}, offline(cache))
    assert session.plan(SPEC)["fetch_bytes"] == 0
    events = list(session.run(SPEC))
    assert [e.state for e in events if isinstance(e, Waiting)] == ["loading", "warmup"]
    assert events[-1].reason == "done"
    assert Hub(cache).find(NAME) == folder


def test_blobs_shared_by_all_models_are_read(tmp_path, cache):
    folder = cached(write_checkpoint(tmp_path / "origin"), cache)
    weights = folder / "model.safetensors"
    blob = weights.resolve()
    shared = cache / "blobs" / "ab" / ("ab" * 32)
    shared.parent.mkdir(parents=True)
    blob.rename(shared)
    blob.symlink_to(shared)
    assert list(Session({}, offline(cache)).run(SPEC))[-1].reason == "done"


def test_a_cache_without_a_shard_is_incomplete(tmp_path, cache):
    origin = write_checkpoint(tmp_path / "origin")
    sharded(origin, index=True)
    folder = cached(origin, cache)
    assert Hub(cache).find(NAME) == folder
    (folder / "model-00002-of-00003.safetensors").resolve().unlink()
    assert Hub(cache).find(NAME) is None


def test_planning_a_model_that_is_not_downloaded_uses_no_network(cache):
    unknown = ("prompt_tokens", "context", "weights_bytes", "memory_bytes", "fetch_bytes")
    with serving({}) as stub:
        session = Session({}, Hub(cache, stub.endpoint))
        plan = session.plan(SPEC)
        with pytest.raises(ValueError, match="prompt: it is empty"):
            session.plan(RunSpec(model=NAME))
        with pytest.raises(ValueError, match="device: 'tpu' is not available"):
            session.plan(RunSpec(model=NAME, prompt="x", device="tpu"))
    assert [plan[name] for name in unknown] == [None] * 5
    assert stub.requests == []


def test_the_form_of_a_repo_id():
    good = ["own/micro", "GSAI-ML/LLaDA-8B-Base", "a/b", "Dream-org/Dream-v0-Base-7B", "a_/_b"]
    bad = [
        "", "a", "a/", "/b", "a/b/c", "../x", "a/..", "a/../b", "a--b/c", "a/b\n", "a/b\0", "~/x",
        "/etc/passwd", "./a", "a/.b", "a b/c", "-a/b", "a" * 97 + "/b", "ü/b",
    ]  # fmt: skip
    assert [name for name in good if not is_repo_id(name)] == []
    assert [name for name in bad if is_repo_id(name)] == []
