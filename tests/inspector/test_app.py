"""The app's settings: what the environment says, and the session that comes of it."""

import gc
import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import app
from app import Settings
from engine.core.variables import KERNELS
from engine.models.kernels.machine import FILES, MAX_BYTES, read_measured
from engine.serve.fair_queue import FairQueue
from inspector.page.layout import Page
from tests.support.micro import write_checkpoint

BIG = "GSAI-ML/LLaDA-8B-Instruct"


def test_an_empty_environment_is_a_local_page():
    assert Settings.of({}) == Settings((), public=False, cache=None, preload=())


def test_uploads_have_a_folder_of_their_own_unless_one_is_set(tmp_path, monkeypatch):
    monkeypatch.setattr(app, "gettempdir", lambda: str(tmp_path))
    environment, given = {}, {"GRADIO_TEMP_DIR": "/mine"}
    for one in (environment, given):
        app.keep_uploads_apart(one)
    folder = Path(environment["GRADIO_TEMP_DIR"])
    assert folder.name == "driftscope-uploads"
    assert folder.parent.name == f"driftscope-{os.getuid()}", "another user has another one"
    assert given == {"GRADIO_TEMP_DIR": "/mine"}


def test_a_folder_of_uploads_that_another_user_made_is_refused(tmp_path, monkeypatch):
    other = os.getuid() + 1
    monkeypatch.setattr(app, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: other)
    (tmp_path / f"driftscope-{other}").symlink_to(tmp_path)
    with pytest.raises(ValueError, match=r"^GRADIO_TEMP_DIR: .* belongs to another user"):
        app.keep_uploads_apart({})


@pytest.mark.parametrize(("loaded", "after"), [([], ["freeze"]), (["big"], [])])
def test_nothing_is_frozen_once_models_are_preloaded(monkeypatch, tmp_path, loaded, after):
    """What is frozen is never collected, and an evicted model is in a cycle of references."""
    done, session = [], SimpleNamespace(queue=FairQueue())
    page = SimpleNamespace(
        stop_runs=None, is_running=False, launch=lambda **options: done.append("launch")
    )
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    monkeypatch.setattr(app, "preload", lambda *given: done.append("preload") or loaded)
    for name, made in (("make_session", session), ("load_default", None)):
        monkeypatch.setattr(app, name, lambda *given, made=made: made)
    for name in (
        "app.publish.unpack", "signal.signal", "engine.core.threads.best_threads",
        "torch.set_num_threads", "engine.batch.service.BatchService",
        "engine.advise.service.SearchService",
    ):  # fmt: skip
        monkeypatch.setattr(name, lambda *given: None)
    monkeypatch.setattr("inspector.page.layout.build", lambda *given: page)
    monkeypatch.setattr("inspector.page.layout.launch_options", lambda page: {})
    app.main()
    assert done == ["freeze", "preload", "launch", *after]


def test_what_the_environment_says():
    found = Settings.of({
        "DRIFTSCOPE_MODELS": os.pathsep.join(["/models/a", "", "~/b"]), "SPACE_ID": "own/space",
        "HF_HUB_CACHE": "/data/hub", "DRIFTSCOPE_PRELOAD": f"{BIG}, tiny-llada,",
    })  # fmt: skip
    assert found == Settings(
        (Path("/models/a"), Path.home() / "b"), True, Path("/data/hub"), (BIG, "tiny-llada")
    )


def test_a_listed_folder_has_a_name_and_a_user_that_exists(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert Settings.of({"DRIFTSCOPE_MODELS": "."}).folders == (tmp_path,)
    for name in ("DRIFTSCOPE_MODELS", "HF_HUB_CACHE"):
        with pytest.raises(ValueError, match=rf"^{name}: ~nobody-here/x: .* whole path"):
            Settings.of({name: "~nobody-here/x"})


def test_a_folder_whose_name_is_taken_is_told(tmp_path, caplog):
    folders = [write_checkpoint(tmp_path / part / "micro") for part in "ab"]
    session = app.make_session(Settings(tuple(folders)))
    assert [row["name"] for row in session.catalog()["models"]].count("micro") == 1
    assert f"{folders[1]} is not listed" in caplog.text


@pytest.mark.parametrize(
    ("environment", "said"),
    [({"DRIFTSCOPE_MODELS": "~nobody-here/x"}, "DRIFTSCOPE_MODELS: ~nobody-here/x"),
     ({"GRADIO_SERVER_PORT": "abc"}, "GRADIO_SERVER_PORT: 'abc' is not a port"),
     ({KERNELS: "onednn"}, f"{KERNELS}: 'onednn' is unknown; set it to torch")],
    ids=["folder", "port", "kernels"],
)  # fmt: skip
def test_an_app_that_cannot_start_says_why_in_one_line(environment, said, tmp_path):
    ended = subprocess.run(
        [sys.executable, app.__file__], capture_output=True, text=True, timeout=120,
        env=os.environ | {"GRADIO_TEMP_DIR": str(tmp_path)} | environment,
    )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(f"error: {said}")
    assert "Traceback" not in ended.stderr


def test_a_port_in_use_ends_the_start_in_one_line(monkeypatch, tmp_path):
    """With an empty page in place of the whole one: Gradio's error is the same."""
    monkeypatch.setattr(sys, "argv", ["app.py"])
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    for name in (
        "gc.freeze", "signal.signal", "torch.set_num_threads", "engine.core.threads.best_threads",
        "engine.serve.session.Session.environment",
    ):  # fmt: skip
        monkeypatch.setattr(name, lambda *given: None)
    with Page() as page:
        page.stop_runs = lambda: None
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = {"server_port": taken.getsockname()[1]}
        monkeypatch.setattr("inspector.page.layout.build", lambda *given: page)
        monkeypatch.setattr("inspector.page.layout.launch_options", lambda page: options)
        with pytest.raises(SystemExit, match=r"^error: Cannot find empty port"):
            runpy.run_path(app.__file__, run_name="__main__")


def test_a_model_that_cannot_be_preloaded_ends_the_start(monkeypatch, tmp_path):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    monkeypatch.setenv("DRIFTSCOPE_PRELOAD", "nope")
    for name in (
        "app.publish.unpack", "gc.freeze", "signal.signal", "torch.set_num_threads",
        "engine.core.threads.best_threads",
    ):  # fmt: skip
        monkeypatch.setattr(name, lambda *given: None)
    with pytest.raises(ValueError, match=r"^model: 'nope' is unknown"):
        app.main()


@pytest.mark.parametrize("port", ["", "abc", "80.5", "0", "-1", "65536"])
def test_what_is_no_port_is_refused_by_the_name_of_its_variable(port):
    with pytest.raises(ValueError, match=r"^GRADIO_SERVER_PORT: .* from 1 to 65535$"):
        app.check_port({"GRADIO_SERVER_PORT": port})


def test_a_port_may_be_given_or_not():
    for environment in ({}, {"GRADIO_SERVER_PORT": "7861"}):
        app.check_port(environment)


def test_the_app_describes_its_environment_variables_and_refuses_arguments():
    def run(word):
        return subprocess.run([sys.executable, app.__file__, word], capture_output=True, text=True)

    help_, odd = run("--help"), run("--port")
    assert help_.returncode == 0
    assert "GRADIO_SERVER_PORT" in help_.stdout
    assert odd.returncode == 2
    assert "unrecognized arguments: --port" in odd.stderr


@pytest.mark.parametrize("public", [False, True])
def test_the_session_has_the_given_models_and_those_of_the_hub(tmp_path, public):
    folder = write_checkpoint(tmp_path / "mine")
    session = app.make_session(Settings((folder,), public, tmp_path / "cache"))
    rows = {row["name"]: row for row in session.catalog()["models"]}
    assert {"tiny-llada", "mine", BIG} <= set(rows)
    assert (rows["mine"]["available"], rows[BIG]["available"]) == (True, False)
    assert session.catalog()["any_model"] is not public
    limits = session.catalog()["trace_bytes"], session.recording_limit
    assert limits == ((64e6, 64e6) if public else (1.6e9, 1.5e9))
    assert session.default_race().a.model == "tiny-llada"


def test_a_model_is_loaded_before_the_page_opens(tmp_path):
    session = app.make_session(Settings(cache=tmp_path))
    session.preload("tiny-llada")
    assert [key[0] for key in session._models._loaded] == ["tiny-llada"]
    with pytest.raises(ValueError, match="model: 'gpt' is unknown"):
        session.preload("gpt")


def test_a_space_is_known_by_its_environment():
    for value, zero in (("true", True), ("1", True), ("", False), ("0", False)):
        found = Settings.of({"SPACE_ID": "own/space", "SPACES_ZERO_GPU": value})
        assert (found.public, found.zero) == (True, zero)


class Shelf:
    """A session of models of which some do not fit."""

    def __init__(self, devices=("cpu", "cuda")):
        self.devices, self.loaded = list(devices), []

    def catalog(self):
        rows = {"tiny": (True, True), "big": (True, False), "huge": (True, False),
                "far": (False, False)}  # fmt: skip
        models = [{"name": n, "available": a, "embedded": e} for n, (a, e) in rows.items()]
        return {"devices": self.devices, "models": models}

    def preload(self, name):
        if name == "huge":
            raise ValueError("model: too large")
        self.loaded.append(name)


def test_a_space_with_a_gpu_loads_what_is_on_its_disk_and_fits(caplog):
    session = Shelf()
    assert app.preload(session, Settings(public=True)) == session.loaded == ["big"]
    assert "huge is not loaded: model: too large" in caplog.text
    assert app.preload(Shelf(("cpu",)), Settings(public=True)) == []
    assert app.preload(Shelf(), Settings()) == []
    assert app.preload(Shelf(), Settings(public=True, preload=("tiny",))) == ["tiny"]
    with pytest.raises(ValueError, match="too large"):
        app.preload(Shelf(), Settings(preload=("huge",)))


def test_the_default_model_is_loaded_and_measured_in_a_thread(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(KERNELS, raising=False)
    assert not read_measured(FILES, dict, MAX_BYTES)
    app.load_default(app.make_session(Settings())).join()
    assert read_measured(FILES, dict, MAX_BYTES)
