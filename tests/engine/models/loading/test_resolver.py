"""Names to folders: the models of a local and of a public page, and hostile names."""

import pytest

from engine.config.spec import RunSpec
from engine.models.loading.resolver import ModelResolver
from engine.serve.session import Session
from tests.support.hub_stub import NAME, cached, offline
from tests.support.micro import write_checkpoint

REGISTERED = "Dream-org/Dream-v0-Base-7B"
HOSTILE = ["../x", "a/../../b", "..", "/etc/passwd", "~root/x", "a\0b", "a/b\0", "./models/../..",
           "file:///etc/passwd", "https://huggingface.co/a/b", "a" * 5000, "", " ", "\\\\host\\x",
           "models--own--micro", "own/micro/../other"]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    return write_checkpoint(tmp_path / "elsewhere" / "micro")


@pytest.fixture
def hub(tmp_path):
    return offline(tmp_path / "cache")


def test_a_local_page_accepts_any_folder_and_repo_id(folder, hub, tmp_path):
    resolver = ModelResolver({"given": folder}, hub, public=False)
    assert resolver.find("given") == folder
    assert resolver.find(str(folder)) == folder.resolve()
    assert resolver.find(REGISTERED) is None
    assert resolver.find(NAME) is None
    home = cached(folder, tmp_path / "cache")
    assert resolver.find(NAME) == home


def test_a_public_page_accepts_only_given_and_registered_models(folder, hub, tmp_path):
    resolver = ModelResolver({"given": folder}, hub, public=True)
    assert resolver.find("given") == folder
    assert resolver.find(REGISTERED) is None
    cached(folder, tmp_path / "cache")
    for name in (str(folder), NAME, *HOSTILE):
        with pytest.raises(ValueError, match=r"model: .* is unknown; choose from given, GSAI-ML/"):
            resolver.find(name)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_find_only_existing_folders(folder, hub, name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path / "elsewhere")
    resolver = ModelResolver({"given": folder}, hub, public=False)
    if name in ("..", "./models/../.."):  # a folder, but no checkpoint
        with pytest.raises(ValueError, match=r"^model: .* holds no config\.json"):
            resolver.find(name)
        return
    with pytest.raises(ValueError, match=r"^model: .* is unknown"):
        resolver.find(name)


def test_a_repo_id_is_a_folder_only_if_it_has_a_config(hub, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    resolver = ModelResolver({}, hub, public=False)
    (tmp_path / "own" / "micro").mkdir(parents=True)
    assert resolver.find(NAME) is None
    folder = write_checkpoint(tmp_path / "own" / "micro")
    assert resolver.find(NAME) == folder.resolve()


def test_without_a_hub_only_folders_are_found(folder):
    resolver = ModelResolver({"given": folder}, None, public=False)
    assert resolver.names == ["given"]
    assert resolver.find(str(folder)) == folder.resolve()
    for name in (REGISTERED, NAME, "gpt"):
        with pytest.raises(ValueError, match=r"choose from given, or give a folder$"):
            resolver.find(name)
    with pytest.raises(ValueError, match="model: there is none"):
        ModelResolver({}, None, public=False).find("x")


def test_a_folder_runs_on_a_local_page_only(folder, hub):
    spec = RunSpec(model=str(folder), prompt="Hello", gen_length=8, block_length=8, steps=8)
    local, public = Session({}, hub), Session({}, hub, public=True)
    assert list(local.run(spec))[-1].reason == "done"
    for ask in (public.plan, lambda one: next(public.run(one))):
        with pytest.raises(ValueError, match=r"model: .* is unknown"):
            ask(spec)
    assert (local.catalog()["any_model"], public.catalog()["any_model"]) == (True, False)


def test_a_public_page_never_uses_a_name_as_a_path(hub, monkeypatch):
    monkeypatch.setattr(
        "engine.models.loading.resolver._folder_at",
        lambda text, field: pytest.fail(f"{text} was used as a path"),
    )
    with pytest.raises(ValueError, match="is unknown"):
        ModelResolver({}, hub, public=True).find("/etc")
    with pytest.raises(pytest.fail.Exception):
        ModelResolver({}, hub, public=False).find("/etc")
