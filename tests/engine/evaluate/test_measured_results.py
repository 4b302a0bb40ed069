"""The command that makes every table in one run, and the text that is computed from its data."""

import copy
import json
import os
import re
import signal
import subprocess

import pytest

from engine.bench import growth, ratio_sweep, suite
from engine.config.spec import RunSpec
from engine.core.tables import README, RESULTS_README, percent, section_marks
from engine.evaluate import comparison, measured_results, results_text
from engine.evaluate.measured_results import read_settings
from engine.evaluate.results_text import check_one_environment
from engine.tiny.corpus import families
from tests.support.micro import ROOT

RESULTS = ROOT / "assets" / "results"
SHAPE = "llada:layers=12,d=32,heads=4,ffn=48,vocab=1100"
OFFICIAL = [
    {"name": "plain decoding"},
    {"name": "threshold 0.9", "unmasker": "threshold"},
    {"name": "dual cache, threshold 0.9", "cache": "dual", "unmasker": "threshold"},
]
FILL_SAFE = [
    {"name": "plain decoding"},
    {"name": "guided", "unmasker": "guided", "cache": "dual"},
    {"name": "autoregressive", "unmasker": "autoregressive"},
]
SETTINGS = [
    {
        "name": "tiny-llada", "model": "tiny-llada", "shots": 0, "timed": True,
        "families": {"short_problems": 1, "balance": 1},
        "blocks": [
            {"eos": "official", "rows": OFFICIAL}, {"eos": "fill_safe", "rows": FILL_SAFE},
        ],
    },
    {
        "name": "after an example", "model": "tiny-llada", "shots": 1, "timed": False,
        "families": {"short_problems": 1},
        "blocks": [{"eos": "official", "rows": OFFICIAL[1:]}],
    },
]  # fmt: skip
MEASURED = {"official": ("plain decoding",), "fill_safe": ("plain decoding", "guided")}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty results folder and README files, and small networks for the tables of speed."""
    (tmp_path / "settings.json").write_text(json.dumps(SETTINGS), "utf-8")
    names = (
        "conditions", "tables", "findings", "pace", "speed", "growth", "recording", "routines",
        "generate", "measured",
    )  # fmt: skip
    marked = "".join("".join(section_marks(name)) + "\n" for name in names)
    (tmp_path / RESULTS_README).parent.mkdir(parents=True)
    for file in (README, RESULTS_README):
        (tmp_path / file).write_text(marked, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measured_results, "RESULTS", tmp_path)
    monkeypatch.setattr(measured_results, "clean_commit", lambda: "c" * 40)
    for name in ("PACE_PROBLEMS", "TIMED", "ROUNDS"):
        monkeypatch.setattr(measured_results, name, 1)
    monkeypatch.setattr(comparison, "TIMED_SHOTS", 0)
    monkeypatch.setattr(comparison, "TIMED_LENGTH", 64)
    monkeypatch.setattr(results_text, "MEASURED", MEASURED)
    monkeypatch.setattr(suite, "CPU_SHAPE", SHAPE)
    monkeypatch.setattr(suite, "CPU_PROMPTS", (6,))
    few = {suite.PLAIN: {"gen_length": 8, "block_length": 8, "steps": 8}}
    for module in (suite, growth):
        monkeypatch.setattr(module, "speed_settings", lambda: few)
    monkeypatch.setattr(growth, "SHOWN", {"plain": suite.PLAIN})
    monkeypatch.setattr(growth, "CPU_SHAPE", SHAPE)
    monkeypatch.setattr(growth, "BASE", {"prompt": 6, "answer": 64, "layers": 2, "batch": 1})
    monkeypatch.setattr(growth, "AXES", {"layers": (1, 2)})
    monkeypatch.setattr(ratio_sweep, "RATIOS", (0.0, 0.5))
    monkeypatch.setattr(ratio_sweep, "INTERVALS", (64,))
    return tmp_path


def test_one_command_writes_every_table(folder, monkeypatch, capsys):
    given = ["--workers", "1"]
    measured_results.main(given)
    document = json.loads((folder / "results.json").read_text("utf-8"))
    assert document["command"] == f"python -m engine tables {' '.join(given)}"
    check_one_environment(document)
    assert document["environment"]["commit"] == "c" * 40
    assert {"date", "device_name", "cores", "torch", "python"} <= set(document["environment"])
    blocks = [block for table in document["tables"] for block in table["blocks"]]
    assert [block["eos"] for block in blocks] == ["official", "fill_safe", "official"]
    for block in blocks:
        assert {row["spec"]["eos"] for row in block["rows"]} == {block["eos"]}
        for found in block["rows"][0]["families"].values():
            assert not {"tokens_per_s", "ms_per_problem", "nfe"} & set(found)
            assert found["problems"] == 1
    assert list(blocks[0]["rows"][0]["families"]) == ["short_problems", "balance"]
    assert list(blocks[2]["rows"][0]["families"]) == ["short_problems"]
    plain, guided, _ = blocks[1]["rows"]
    assert guided["speed"]["speed_up"] > 0
    stopped, whole = plain["speed"], blocks[0]["rows"][0]["speed"]
    assert stopped["text_nfe"] <= stopped["nfe"] < whole["nfe"] == 64
    assert blocks[2]["rows"][0]["speed"] is None
    assert document["sweep"]["points"]
    (beside,) = document["generate"]["rows"]
    assert (beside["model"], beside["compared"], beside["equal"]) == ("tiny-qwen2", 1, 1)
    assert beside["speed_up"] > 0
    assert (folder / "growth.svg").is_file()
    written = (folder / RESULTS_README).read_text("utf-8")
    assert written.count("End of text: `") == 3
    assert "| guided " in written
    assert re.search(r"\| method +\| Short word problems \| Running balance \| same", written)
    assert "c" * 12 in written
    assert [(row["model"], row["family"]) for row in document["pace"]] == [
        ("tiny-llada", "short_problems"),
        ("tiny-llada", "balance"),
    ]
    for row in document["pace"]:
        assert 0 < row["tokens"] < row["positions"]
        assert 0 < row["text_nfe"] <= row["nfe"] < row["positions"]
    assert "| `fill_safe` " in (folder / README).read_text("utf-8")
    assert "threshold 0.9: " in capsys.readouterr().out

    kept = json.loads((folder / "accuracy.json").read_text("utf-8"))
    assert len(kept) == 2 * 6 + 2
    monkeypatch.setattr(measured_results, "clean_commit", lambda: "d" * 40)
    measured_results.main(["--accuracy"])
    assert "threshold 0.9: " not in capsys.readouterr().out, "nothing is evaluated again"
    assert json.loads((folder / "accuracy.json").read_text("utf-8")) == kept
    after = json.loads((folder / "results.json").read_text("utf-8"))
    later = after.pop("accuracy")
    assert (later["command"], later["commit"]) == ("python -m engine tables --accuracy", "d" * 40)
    assert after == document


def test_a_shorter_exam_drops_no_accuracy_of_the_whole(folder, monkeypatch):
    out = folder / "out"
    out.mkdir()
    (out / "accuracy.json").write_text('{"of the whole exam": {}}')
    monkeypatch.setattr(measured_results, "evaluate_block", lambda *given: [])
    monkeypatch.setattr(measured_results, "write", lambda document, folder: None)
    monkeypatch.setattr(measured_results, "measure", lambda *given: {})
    measured_results.main(["--problems", "1", "--out", str(out)])
    assert json.loads((out / "accuracy.json").read_text()) == {"of the whole exam": {}}
    measured_results.main(["--out", str(out)])
    assert json.loads((out / "accuracy.json").read_text()) == {}


def test_the_folder_of_the_published_results_is_none_of_its_own(folder, capsys):
    with pytest.raises(SystemExit):
        measured_results.main(["--problems", "5", "--out", str(folder)])
    assert "--problems: a shorter run is not published; give" in capsys.readouterr().err


def test_results_in_another_folder_leave_the_published_ones(folder, saved, monkeypatch):
    asked = []
    monkeypatch.setattr(measured_results, "evaluate_block", lambda *given: asked.append(given[4]))
    monkeypatch.setattr(measured_results, "measure", lambda *given: saved)
    monkeypatch.setattr(results_text, "sections", lambda document: {"a": "one\n", "b": "two\n"})
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    out = folder / "out"
    measured_results.main(["--problems", "5", "--out", str(out)])
    assert set(asked) == {5}
    assert {path.name for path in out.iterdir()} == {"growth.svg", "results.json", "tables.md"}
    assert json.loads((out / "results.json").read_text("utf-8")) == saved
    assert (out / "tables.md").read_text() == "one\n\ntwo\n"
    assert all(path.read_bytes() == data for path, data in before.items())


def test_missing_sections_are_told_before_the_work(folder, monkeypatch):
    monkeypatch.setattr(measured_results, "evaluate_block", lambda *given: pytest.fail("began"))
    (folder / README).write_text("")
    with pytest.raises(SystemExit, match=r"^error: README.md: <!-- measured --> is missing"):
        measured_results.main([])


@pytest.mark.parametrize("name", ["settings.json", "speed.json"])
def test_uncommitted_lists_of_rows_are_refused(tmp_path, monkeypatch, name):
    def git(*words):
        own = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", *own, *words], cwd=tmp_path, check=True, capture_output=True)

    for variable in [one for one in os.environ if one.startswith("GIT_")]:
        monkeypatch.delenv(variable)  # a hook of git has some, which name another repository
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)  # as one that signs commits
    for folder in ("engine", "assets/models", "assets/results"):
        (tmp_path / folder).mkdir(parents=True)
    path = tmp_path / "assets" / "results" / name
    path.write_text("[]")
    git("init")
    git("add", ".")
    git("commit", "-m", "all")
    monkeypatch.setattr(measured_results, "ASSETS", tmp_path / "assets")
    assert len(measured_results.clean_commit()) == 40
    path.write_text("[1]")
    with pytest.raises(ValueError, match=rf"^commit: uncommitted changes[^$]*{name}"):
        measured_results.clean_commit()


def test_accuracies_of_another_seed_are_not_put_beside_the_times(folder):
    (folder / "results.json").write_text('{"seed": 7}')
    with pytest.raises(SystemExit, match=r"^error: --seed: results.json has the times of seed 7"):
        measured_results.main(["--accuracy", "--seed", "8"])
    assert not (folder / "accuracy.json").exists()


def test_a_folder_without_times_takes_no_accuracies(folder):
    said = r"^error: --accuracy: .*results.json, which has the times, is not there; leave"
    with pytest.raises(SystemExit, match=said):
        measured_results.main(["--accuracy", "--out", str(folder / "out")])
    assert not (folder / "out").exists()


@pytest.mark.parametrize("change", [{"checkpoint": "x"}, {"name": "x"}, {}])
def test_times_of_other_tables_are_told_before_the_work(folder, saved, monkeypatch, change):
    """Without a change they are those of the repository and not those of the test's settings."""
    monkeypatch.setattr(measured_results, "evaluate_block", lambda *given: pytest.fail("began"))
    if change:
        (folder / "settings.json").write_text((RESULTS / "settings.json").read_text("utf-8"))
    (first, *others) = saved["tables"]
    (folder / "results.json").write_text(json.dumps(saved | {"tables": [first | change, *others]}))
    with pytest.raises(SystemExit, match=r"^error: --accuracy: the tables of results.json are not"):
        measured_results.main(["--accuracy"])


@pytest.mark.parametrize("flag", ["--timed", "--rounds", "--problems"])
def test_flags_of_times_and_a_shorter_exam_are_refused_where_none_are_measured(flag, capsys):
    with pytest.raises(SystemExit):
        measured_results.main(["--accuracy", flag, "5"])
    assert f"{flag}: leave it out with --accuracy" in capsys.readouterr().err


def test_results_appear_once_they_are_complete(folder, saved, monkeypatch):
    monkeypatch.setattr(results_text, "sections", lambda document: {"speed": "new\n"})
    monkeypatch.setattr(results_text, "measured", lambda document: "new\n")
    names = ("results.json", "growth.svg", README, RESULTS_README)
    for name in names:
        (folder / name).write_text((folder / name).read_text() if "md" in str(name) else "old")
    before = {name: (folder / name).open() for name in names}
    was = {name: (folder / name).read_text() for name in names}
    measured_results.write(saved, folder)
    for name in names:
        assert (folder / name).read_text() != was[name]
        with before[name] as file:
            assert file.read() == was[name], "the old file is replaced, not written over"


def test_an_interrupt_leaves_no_section_of_an_earlier_run(folder, saved, monkeypatch):
    def interrupted(document):
        signal.raise_signal(signal.SIGINT)
        return {"speed": "new\n"}

    monkeypatch.setattr(results_text, "sections", interrupted)
    monkeypatch.setattr(results_text, "measured", lambda document: "new\n")
    with pytest.raises(KeyboardInterrupt):
        measured_results.write(saved, folder)
    assert section((folder / README).read_text(), "measured") == "new\n"


def test_accuracies_are_put_beside_the_times_of_the_last_run(saved):
    settings = read_settings(RESULTS / "settings.json")
    accuracies = [
        [[{"name": row["name"], "families": "new"} for row in block["rows"]]
         for block in table["blocks"]] for table in saved["tables"]
    ]  # fmt: skip
    where = saved["environment"] | {"date": "2027-01-02", "command": "again"}
    measured_results.check_tables(saved, settings)
    found = measured_results.with_accuracies(saved, accuracies, where)
    for new, old in zip(found["tables"], saved["tables"], strict=True):
        for block, before in zip(new["blocks"], old["blocks"], strict=True):
            for row, was in zip(block["rows"], before["rows"], strict=True):
                assert row == was | {"families": "new"}


def test_the_text_says_when_times_and_accuracies_were_measured(saved):
    where = saved["environment"] | {"date": "2027-01-02", "commit": "e" * 40, "command": "again"}
    text = results_text.conditions(saved | {"accuracy": where})
    first = f"measured all of these but the accuracies on {saved['environment']['date']} at commit"
    assert first in text
    assert f"`again` computed the accuracies on 2027-01-02 at commit `{'e' * 12}`: " in text
    assert "(accuracies: 2027-01-02)" in results_text.measured(saved | {"accuracy": where})


def test_a_row_that_cannot_end_by_the_rule_of_its_block_is_refused(tmp_path):
    wrong = copy.deepcopy(SETTINGS)
    wrong[0]["blocks"][0]["rows"].append({"name": "guided", "unmasker": "guided"})
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(wrong), "utf-8")
    with pytest.raises(ValueError, match="tiny-llada: a row cannot end by official"):
        read_settings(path)


def test_a_row_with_another_rule_than_its_block_cannot_be_written(tmp_path):
    wrong = copy.deepcopy(SETTINGS)
    wrong[0]["blocks"][0]["rows"][1]["eos"] = "fill_eager"
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(wrong), "utf-8")
    (one, _) = read_settings(path)
    assert {row.spec.eos for row in one.blocks[0].specs} == {"official"}


# The files of the repository.


@pytest.fixture(scope="module")
def saved():
    return json.loads((RESULTS / "results.json").read_text("utf-8"))


def test_the_saved_results_are_of_one_environment(saved):
    check_one_environment(saved)
    assert len(saved["environment"]["commit"]) == 40
    assert saved["environment"]["date"] >= "2026-11-23"


def test_the_saved_results_have_every_row_of_the_settings(saved):
    for table, given in zip(saved["tables"], read_settings(RESULTS / "settings.json"), strict=True):
        for block, wanted in zip(table["blocks"], given.blocks, strict=True):
            assert [one["name"] for one in block["rows"]] == [one.name for one in wanted.specs]
            for found, one in zip(block["rows"], wanted.specs, strict=True):
                assert RunSpec.from_dict(found["spec"]) == one.spec
                counts = {name: one["problems"] for name, one in found["families"].items()}
                assert counts == given.families
                assert bool(found["speed"]) == given.timed
    timed = {(one["group"], one["name"]) for one in saved["speed"]["rows"]}
    assert timed == {(one.group, one.name) for one in suite.cpu_suite("cpu")}


def test_guided_rows_are_beside_plain_decoding_by_the_same_rule(saved):
    found = 0
    for table in saved["tables"]:
        for block in table["blocks"]:
            guided = [one for one in block["rows"] if one["spec"]["unmasker"] == "guided"]
            if guided:
                found += 1
                assert block["eos"] == "fill_safe"
                first = block["rows"][0]["spec"]
                assert (first["unmasker"], first["cache"]) == ("quota", "none")
    assert found == 2


def section(text, name):
    start, end = section_marks(name)
    assert start in text, name
    return text.partition(start)[2].partition(end)[0]


def test_the_sections_and_sentences_are_those_of_the_saved_results(saved):
    text = (ROOT / RESULTS_README).read_text("utf-8")
    for name, expected in results_text.sections(saved).items():
        assert section(text, name) == expected
    shown = section((ROOT / README).read_text("utf-8"), "measured")
    assert shown == results_text.measured(saved)


def test_a_sentence_changes_with_its_table(saved):
    other = copy.deepcopy(saved)
    for one in other["tables"][0]["blocks"][0]["rows"]:
        one["families"]["word_problems"]["p"] = 0.9
    before, after = results_text.findings(saved), results_text.findings(other)
    assert "Significantly less accurate" in before[0]
    assert "No significant difference" in after[0]


def test_the_cards_of_the_models_have_the_saved_accuracies(saved):
    found = 0
    for table in saved["tables"]:
        card = (ROOT / "assets" / "models" / table["model"] / "README.md").read_text("utf-8")
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in card.splitlines()]
        for block in table["blocks"]:
            for one in block["rows"]:
                for family, had in one["families"].items():
                    cells = [families()[family].label, one["name"], f"{had['positions']:.0f}"]
                    cells += [str(one["spec"]["block_length"]), block["eos"], str(table["shots"])]
                    right = percent(had)
                    cells += [str(had["problems"]), right]
                    assert cells in [row[:8] for row in rows], cells
                    found += 1
    assert found > 40
