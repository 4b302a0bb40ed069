"""What `python -m engine fronts --publish` publishes, and what it refuses before the work."""

import json
import signal

import pytest

from engine.advise.search_space import searchable
from engine.core.files import ASSETS
from engine.core.tables import check_section
from engine.evaluate.fronts import __main__ as fronts
from engine.evaluate.fronts.text import section, svg
from engine.models.loading.families import embedded_models
from tests.support.fronts import document

EVERY = {"held_out": 490, "methods": [{"cache": one, "held_back": []} for one in searchable()]}


@pytest.mark.parametrize("words", [("--estimate",), ("--caches", "dual")])
def test_an_estimate_and_some_of_the_methods_are_not_published(words, tmp_path, capsys):
    with pytest.raises(SystemExit):
        fronts.main(["--out", str(tmp_path), "--publish", *words])
    assert f"--publish: leave it out with {words[0]}" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--keep", "0.9"), ("--keep", "0.99"), ("--seed", "8")])
def test_a_search_for_another_share_or_with_another_seed_is_not_published(words, tmp_path, capsys):
    with pytest.raises(SystemExit):
        fronts.main(["--out", str(tmp_path), "--publish", *words])
    said = f"{words[0]}: leave it out with --publish, whose sections are all of the same share"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "change", "said"),
    [("tiny-llada", {}, "fronts.json lacks .*dllm_cache"), ("model", {}, "model is not an embed"),
     ("tiny-llada", EVERY, "493 held-out problems are fewer than 500; give a larger --further"),
     ("tiny-llada", EVERY | {"candidates": 2}, "fronts.json is of a search with --candidates 2"),
     ("tiny-llada", EVERY | {"keep": 0.9}, "fronts.json is of a search with --keep 0.9, not 0.95"),
     ("tiny-llada", EVERY | {"seed": 8}, "fronts.json is of a search with --seed 8, not 7, which")],
)  # fmt: skip
def test_further_results_of_some_methods_problems_or_of_another_search_are_not_published(
    model, change, said, tmp_path, monkeypatch
):
    monkeypatch.setattr(fronts, "RESULTS_README", ASSETS / "results" / "README.md")
    found = document() | {"model": model, "seed": 7} | change
    (tmp_path / "fronts.json").write_text(json.dumps(found))
    with pytest.raises(SystemExit, match=f"^error: --publish: {said}"):
        fronts.main(["--out", str(tmp_path), "--publish", "--further", "3"])


def test_results_of_a_folder_are_not_published(checkpoint, tmp_path):
    flags = ["--model", str(checkpoint), "--out", str(tmp_path), "--publish"]
    with pytest.raises(SystemExit, match=r"--publish: .* is not an embedded model"):
        fronts.main(flags)


def test_a_missing_section_is_told_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text("")
    monkeypatch.setattr(fronts, "RESULTS_README", tmp_path / "README.md")
    monkeypatch.setattr(fronts, "requests", pytest.fail)
    with pytest.raises(SystemExit, match=r"README.md: <!-- fronts of tiny-block --> is missing"):
        fronts.main(["--model", "tiny-block", "--out", str(tmp_path), "--publish"])


@pytest.mark.parametrize("model", embedded_models(ASSETS))
def test_the_results_have_a_section_for_every_embedded_model(model):
    check_section(ASSETS / "results" / "README.md", f"fronts of {model}")


@pytest.fixture
def readme(tmp_path, monkeypatch):
    """A file of results with the section of tiny-dream, into which the command publishes."""
    path = tmp_path / "results" / "README.md"
    path.parent.mkdir()
    path.write_text("<!-- fronts of tiny-dream -->\n<!-- end of fronts of tiny-dream -->\n")
    monkeypatch.setattr(fronts, "ASSETS", tmp_path)
    monkeypatch.setattr(fronts, "RESULTS_README", path)
    return path


def test_an_interrupt_leaves_no_file_of_an_earlier_search_beside_new_ones(readme, monkeypatch):
    def interrupted(document):
        signal.raise_signal(signal.SIGINT)
        return svg(document)

    monkeypatch.setattr(fronts, "svg", interrupted)
    found = document() | {"model": "tiny-dream"}
    with pytest.raises(KeyboardInterrupt):
        fronts._publish(found, section(found))
    assert "(fronts-tiny-dream.svg)" in readme.read_text()
    assert (readme.parent / "fronts-tiny-dream.svg").is_file()


def test_each_model_has_its_own_results(readme):
    found = document() | {"model": "tiny-dream"}
    fronts._publish(found, section(found))
    assert json.loads((readme.parent / "fronts-tiny-dream.json").read_text()) == found
    assert "(fronts-tiny-dream.svg)" in readme.read_text()
    assert (readme.parent / "fronts-tiny-dream.svg").read_text() == svg(found)
