"""Names to folders: what may be chosen on a local page and on a public one, and hostile names."""

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


def test_a_local_page_takes_any_folder_and_any_name_of_the_hub(folder, hub, tmp_path):
    stock = ModelResolver({"given": folder}, hub, public=False)
    assert stock.find("given") == folder
    assert stock.find(str(folder)) == folder.resolve()
    assert stock.find(REGISTERED) is None
    assert stock.find(NAME) is None
    home = cached(folder, tmp_path / "cache")
    assert stock.find(NAME) == home


def test_a_public_page_takes_only_what_is_given_or_registered(folder, hub, tmp_path):
    stock = ModelResolver({"given": folder}, hub, public=True)
    assert stock.find("given") == folder
    assert stock.find(REGISTERED) is None
    cached(folder, tmp_path / "cache")
    for name in (str(folder), NAME, *HOSTILE):
        with pytest.raises(ValueError, match=r"model: .* is unknown; choose from given, GSAI-ML/"):
            stock.find(name)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_find_nothing_that_is_no_folder(folder, hub, name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path / "elsewhere")
    stock = ModelResolver({"given": folder}, hub, public=False)
    if name in ("..", "./models/../.."):  # a folder, but no checkpoint
        with pytest.raises(ValueError, match=r"^model: .* holds no config\.json"):
            stock.find(name)
        return
    with pytest.raises(ValueError, match=r"^model: .* is unknown"):
        stock.find(name)


def test_a_name_that_could_be_both_is_a_folder_only_with_a_config(hub, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    stock = ModelResolver({}, hub, public=False)
    (tmp_path / "own" / "micro").mkdir(parents=True)
    assert stock.find(NAME) is None
    folder = write_checkpoint(tmp_path / "own" / "micro")
    assert stock.find(NAME) == folder.resolve()


def test_without_a_hub_only_folders_are_there(folder):
    stock = ModelResolver({"given": folder}, None, public=False)
    assert stock.names == ["given"]
    assert stock.find(str(folder)) == folder.resolve()
    for name in (REGISTERED, NAME, "gpt"):
        with pytest.raises(ValueError, match=r"choose from given, or give a folder$"):
            stock.find(name)
    with pytest.raises(ValueError, match="model: there is none"):
        ModelResolver({}, None, public=False).find("x")


def test_a_typed_folder_runs_locally_and_is_refused_on_a_public_page(folder, hub):
    spec = RunSpec(model=str(folder), prompt="Hello", gen_length=8, block_length=8, steps=8)
    local, public = Session({}, hub), Session({}, hub, public=True)
    assert list(local.run(spec))[-1].reason == "done"
    for ask in (public.plan, lambda one: next(public.run(one))):
        with pytest.raises(ValueError, match=r"model: .* is unknown"):
            ask(spec)
    assert (local.catalog()["any_model"], public.catalog()["any_model"]) == (True, False)


def test_a_path_never_reaches_the_disk_of_a_public_page(hub, monkeypatch):
    monkeypatch.setattr(
        "engine.models.loading.resolver._typed",
        lambda text, field: pytest.fail(f"{text} was looked at"),
    )
    with pytest.raises(ValueError, match="is unknown"):
        ModelResolver({}, hub, public=True).find("/etc")
    with pytest.raises(pytest.fail.Exception):
        ModelResolver({}, hub, public=False).find("/etc")
