"""Profiles, hooks and fixtures of all tests.

The engine is imported in the fixtures, because the process that deals the tests to others does
not need it.
"""

import gc
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "quick",
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("quick")


# A test of these files takes seconds: one runs many others, and the others start processes.
LONG = ("test_new_method.py", "test_command.py", "test_shared_exam.py")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config):
    """Deal the files in the order of the collected tests."""
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(config, items):
    """Repeat a browser test once after a time-out of the browser, and report that it was.

    Where several processes share the files, those that take long come first: the last ones would
    leave the other processes without work. A browser test counts as ten.
    """
    costs = Counter()
    for item in items:
        in_browser = item.get_closest_marker("browser") is not None
        costs[item.path] += 10 if in_browser else 1
        if in_browser:
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=["TimeoutError"]))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: (item.path.name not in LONG, -costs[item.path]))


def pytest_collection():
    """Look for no garbage while tests are collected: there is hardly any, and it takes seconds."""
    gc.disable()


def pytest_collection_finish():
    """Leave what the imports and the collected tests made out of every garbage collection."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)  # collections take 3 % of the time by default


@pytest.fixture(scope="module", autouse=True)
def quick_collections():
    """Leave what is kept of earlier modules out of the garbage collections of this one.

    Runs collect garbage when they give memory back; it would take up to a second in a process that
    has run many tests.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Keep torch to one thread: the other processors run other tests."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Point the user's cache folder at a temporary one; products are those of torch.

    Measured kernels may round differently in another run.
    """
    from engine.core.variables import KERNELS
    from engine.models.kernels.choice import TORCH

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv(KERNELS, TORCH)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_measured_problem():
    """Measure the drifts of a checkpoint on one problem: eight take a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.serve.drift_meter.PROBLEMS", 1)
        yield


@pytest.fixture(params=["mha", "shifted-gqa"])
def family(request):
    """Heads and logits of both kinds: nothing in the engine depends on the two together."""
    return request.param


@pytest.fixture(params=["llada", "dream"])
def kind(request):
    return request.param


@pytest.fixture
def model(family):
    from tests.support.micro import model_of

    return model_of(family)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    from tests.support.micro import write_checkpoint

    return write_checkpoint(tmp_path_factory.mktemp("models") / "micro")


@pytest.fixture
def session(checkpoint):
    from engine.serve.session import Session

    return Session({"micro": checkpoint})


@pytest.fixture(scope="module")
def shipped():
    """A session of the models that come with the engine."""
    from engine.core.files import ASSETS
    from engine.models.loading.families import embedded_models
    from engine.serve.session import Session

    return Session(embedded_models(ASSETS))


@pytest.fixture
def folder(tmp_path):
    """A checkpoint that the test may change."""
    from tests.support.micro import write_checkpoint

    return write_checkpoint(tmp_path / "micro")
