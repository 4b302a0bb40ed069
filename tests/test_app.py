"""The app's settings: what the environment says, and the session that comes of it."""

import os
from pathlib import Path

import pytest

import app
from app import Settings
from tests.micro import write_checkpoint

BIG = "GSAI-ML/LLaDA-8B-Instruct"


def test_an_empty_environment_is_a_local_page():
    assert Settings.of({}) == Settings((), public=False, cache=None, preload=())


def test_what_the_environment_says():
    found = Settings.of({
        "DRIFTSCOPE_MODELS": os.pathsep.join(["/models/a", "", "~/b"]), "SPACE_ID": "own/space",
        "HF_HUB_CACHE": "/data/hub", "DRIFTSCOPE_PRELOAD": f"{BIG}, tiny-llada,",
    })  # fmt: skip
    assert found == Settings(
        (Path("/models/a"), Path.home() / "b"), True, Path("/data/hub"), (BIG, "tiny-llada")
    )


@pytest.mark.parametrize("public", [False, True])
def test_the_session_has_the_given_models_and_those_of_the_hub(tmp_path, public):
    folder = write_checkpoint(tmp_path / "mine")
    session = app.make_session(Settings((folder,), public, tmp_path / "cache"))
    rows = {row["name"]: row for row in session.catalog()["models"]}
    assert {"tiny-llada", "mine", BIG} <= set(rows)
    assert (rows["mine"]["available"], rows[BIG]["available"]) == (True, False)
    assert session.catalog()["any_model"] is not public
    assert session.default_race().a.model == "tiny-llada"


def test_a_model_is_loaded_before_the_page_opens(tmp_path):
    session = app.make_session(Settings(cache=tmp_path))
    session.preload("tiny-llada")
    assert [key[0] for key in session._library._loaded] == ["tiny-llada"]
    with pytest.raises(ValueError, match="model: 'gpt' is unknown"):
        session.preload("gpt")
