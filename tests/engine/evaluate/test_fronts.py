"""The fronts of the methods: the criterion on made-up figures, and the command on a small model."""

import dataclasses
import json

import pytest

from engine.advise.advisor import EXACT_RUNS, FIRST_TEST
from engine.advise.kept import Kept, accuracy_kept
from engine.advise.request import LEAST_CANDIDATES, runs_of_rounds
from engine.advise.search_space import grid, searchable
from engine.batch import outcome
from engine.batch.settings import PLAIN, with_fields
from engine.config.spec import RunSpec
from engine.core.control import STOPPED
from engine.evaluate.fronts import __main__ as fronts
from engine.evaluate.fronts.criterion import BUDGET, compared
from engine.evaluate.fronts.further import settings_to_judge, with_further
from engine.evaluate.fronts.text import section, svg
from engine.tiny import corpus
from tests.support.fronts import ALL, TIMES, document, method
from tests.support.micro import model_of


def test_the_criterion_compares_with_the_best_of_each_kind():
    judged = method()["criterion"]
    assert judged["met"]
    assert judged["budget"] == 0.1
    assert judged["default"]["ratio"] == pytest.approx(2)
    assert judged["published"]["name"] == "preset"
    assert judged["random"]["ratio"] == pytest.approx(1.25)


@pytest.mark.parametrize("changes", [{"drawn": 3.0}, {"runs": 20}])
def test_the_criterion_is_not_met_by_a_slower_setting_or_too_many_runs(changes):
    assert not method(**changes)["criterion"]["met"]


def test_answers_gained_and_lost_are_paired():
    own = {"name": "own", "speed_ups": [3] * 4, "right": [1, 0, 1, 1]}
    row = compared(own, {"name": "b", "speed_ups": [2] * 4, "right": [0, 1] * 2})
    assert (row["gained"], row["lost"]) == (2, 1)


def test_a_ratio_is_within_its_interval_which_a_few_slow_problems_do_not_move():
    own = {"name": "own", "speed_ups": [2.0] * 17 + [0.1] * 3, "right": [1] * 20}
    row = compared(own, {"name": "b", "speed_ups": [1.0] * 20, "right": [1] * 20})
    assert (row["low"], row["ratio"], row["high"]) == (2, 2, 2)


def test_no_chosen_setting_does_not_meet_the_criterion():
    assert method(chosen=None)["criterion"] == {"budget": 0.1, "met": False}


@pytest.mark.parametrize("cache", searchable(model_of("mha").info))
def test_a_search_can_need_less_than_its_budget(cache):
    settings = len(grid(with_fields(RunSpec(), fronts.LENGTHS), cache))
    count = fronts.affordable(12, settings, 24)
    assert LEAST_CANDIDATES <= count <= 12
    assert runs_of_rounds(count, 24) < BUDGET * settings * 24


def solved(**changes):
    """Which of four further problems the settings solve: all, unless `changes` says less."""
    return {PLAIN: ALL} | dict.fromkeys(TIMES, ALL) | changes


def settings(document):
    (row,) = document["methods"]
    return row, {one["name"]: one for one in row["held_back"]}


@pytest.fixture
def document_of_two():
    """A document whose second method has three problems, since plain decoding failed on one."""
    found, other = document(), method(fewer=4.0)
    (fewer,) = (one for one in other["held_back"] if one["name"] == "fewer")
    lists = ("speed_ups", "right", "plain_right")
    fewer |= {name: fewer[name][:3] for name in lists}
    fewer |= {"chosen": True, "kept": dataclasses.asdict(accuracy_kept([(True, True)] * 3))}
    return found | {"methods": [*found["methods"], other | {"held_back": [fewer]}]}


def test_further_problems_count_like_the_first_ones():
    lost = (True, True, True, False)
    row, held = settings(with_further(document(), solved(preset=lost)))
    expected = accuracy_kept([(True, right) for right in (*ALL, *lost)])
    assert held["preset"]["kept"] == dataclasses.asdict(expected)
    assert held["preset"]["speed_up"] == 2
    assert row["accepted"] == ["drawn", "dual: defaults", "own"]
    assert row["criterion"]["published"]["name"] == "dual: defaults"


def test_further_problems_are_added_to_the_comparisons():
    one_less = (True, True, True, False)
    before = settings(document())[0]["criterion"]["published"]
    after = with_further(document(), solved(**{PLAIN: one_less, "preset": one_less}))
    assert settings(after)[0]["criterion"]["published"] == before | {"gained": 1}


def test_another_setting_can_be_chosen_after_further_problems():
    lost = (True, True, True, False)
    row, held = settings(with_further(document(), solved(own=lost)))
    assert [name for name, one in held.items() if one["chosen"]] == ["preset"]
    assert row["criterion"]["default"]["ratio"] == pytest.approx(8 / 6)
    assert row["criterion"]["random"]["ratio"] == pytest.approx(5 / 6)
    assert not row["criterion"]["met"]


@pytest.mark.parametrize(
    ("problems", "left"),
    [(FIRST_TEST, ["own", "drawn"]), (FIRST_TEST - 1, ["low", "own", "drawn"])],
)
def test_settings_that_clearly_keep_too_little_are_not_judged_further(problems, left):
    highs = {"low": 0.94, "own": 0.96, "drawn": 1.0, "stopped": 1.0}
    tested = [
        {"name": name, "right": [1] * problems, "spec": RunSpec().to_dict(),
         "kept": dataclasses.asdict(Kept(0.9, 0.8, high, problems))}
        for name, high in highs.items()
    ]  # fmt: skip
    tested[-1]["right"] = [1] * 40
    found = document() | {"held_out": problems, "methods": [{"held_back": tested}]}
    assert list(settings_to_judge(found, RunSpec())) == [PLAIN, *left]


def test_settings_are_judged_further_though_plain_decoding_failed_on_a_problem():
    found = document() | {"held_out": 5}  # the settings were tested on the four others
    assert list(settings_to_judge(found, RunSpec())) == [PLAIN, *TIMES]


def test_a_method_is_judged_further_though_plain_decoding_failed_beside_it_alone(document_of_two):
    assert list(settings_to_judge(document_of_two, RunSpec())) == [PLAIN, *TIMES, "fewer"]
    (_, row) = with_further(document_of_two, solved(fewer=ALL))["methods"]
    assert row["accepted"] == ["fewer"]


def test_the_table_says_that_methods_are_judged_on_unlike_numbers_of_problems(document_of_two):
    assert section(document_of_two).startswith("3 to 4 held-out problems, of `f`")


def test_a_setting_that_is_not_judged_further_stays_as_it_was():
    known = solved()
    del known["drawn"]
    before, after = settings(document())[1], settings(with_further(document(), known))[1]
    assert after["drawn"] == before["drawn"]
    assert after["own"]["kept"]["pairs"] == 8


def test_the_front_compares_settings_that_are_judged_on_the_same_problems():
    known = solved(own=(True, True, True, False))
    del known["drawn"]  # faster than preset, and all right, but on fewer problems
    row, _ = settings(with_further(document(), known))
    assert row["front"] == ["preset", "own"]


def test_no_setting_is_chosen_if_further_problems_reject_all():
    lost = (True, True, True, False)
    row, held = settings(with_further(document(), solved(**dict.fromkeys(TIMES, lost))))
    assert row["criterion"] == {"budget": 0.1, "met": False}
    assert not any(one["chosen"] for one in held.values())


def test_table_and_chart_show_the_chosen_setting():
    text = section(document())
    assert "2.00x" in text
    assert "1.50x (1.50 to 1.50), p 1" in text
    assert "a&lt;b" in svg(document(**{"a<b": 7.0}))


def test_the_table_says_how_many_problems_were_timed():
    text = section(with_further(document(), solved()))
    assert text.startswith("8 held-out problems, the first 4 of them timed, of `f`")


def test_the_command_continues_from_its_runs(checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fronts, "LENGTHS", {"gen_length": 8, "block_length": 4, "steps": 8})
    monkeypatch.setattr(outcome, "is_right", lambda text, answer: True)  # of a random model
    flags = ["--model", str(checkpoint), "--out", str(tmp_path), "--caches", "dual",
             "--held-out", "4", "--candidates", "4"]  # fmt: skip
    fronts.main([*flags, "--estimate"])
    assert "1 methods, at most" in capsys.readouterr().out
    assert not (tmp_path / "runs.jsonl").exists()
    fronts.main(flags)
    lines = (tmp_path / "runs.jsonl").read_text()
    (row,) = json.loads((tmp_path / "fronts.json").read_text())["methods"]
    assert row["cache"] == "dual"
    fronts.main(flags)
    assert (tmp_path / "runs.jsonl").read_text() == lines


def test_methods_share_the_exact_runs(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(fronts, "LENGTHS", {"gen_length": 8, "block_length": 4, "steps": 8})
    monkeypatch.setattr(outcome, "is_right", lambda text, answer: True)  # of a random model
    levels, real = [], fronts.Session.run

    def run(session, spec, control=None):
        levels.append(spec.record)
        return real(session, spec, control)

    monkeypatch.setattr(fronts.Session, "run", run)
    fronts.main(["--model", str(checkpoint), "--out", str(tmp_path), "--caches", "dual,prefix",
                 "--held-out", "4", "--candidates", "2"])  # fmt: skip
    assert levels.count("layers") == EXACT_RUNS


def test_a_block_diffusion_model_is_searched_in_its_own_blocks(tmp_path, monkeypatch):
    """On problems that it knows, with the caches for its attention."""
    found = []
    monkeypatch.setattr(fronts, "_say_time", lambda session, asked: found.extend(asked))
    fronts.main(["--model", "tiny-block", "--out", str(tmp_path), "--estimate", "--held-out", "4"])
    assert [one.caches for one in found] == [("sub_block",)]
    base = found[0].base
    assert (base.gen_length, base.block_length, base.steps) == (96, 16, 96)
    known = corpus.exam_questions(6, 7, 0, "short_problems")
    assert [one.prompt for one in found[0].prompts] == [prompt for _, prompt in known]


def test_the_command_judges_further_problems(checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fronts, "LENGTHS", {"gen_length": 8, "block_length": 4, "steps": 8})
    for place in (outcome, corpus):
        monkeypatch.setattr(place, "is_right", lambda text, answer: True)  # of a random model
    flags = ["--model", str(checkpoint), "--out", str(tmp_path)]
    fronts.main([*flags, "--caches", "dual", "--held-out", "4", "--candidates", "4"])
    before = json.loads((tmp_path / "fronts.json").read_text())
    fronts.main([*flags, "--further", "3"])
    after = json.loads((tmp_path / "fronts.json").read_text())
    assert after["further"] == 3
    for old, new in zip(settings(before)[1].values(), settings(after)[1].values(), strict=True):
        assert new["kept"]["pairs"] == old["kept"]["pairs"] + 3 == 7
        assert new["kept"]["plain_right"] == 7
        assert new["speed_up"] == old["speed_up"]
    lines = (tmp_path / "samples-0.jsonl").read_text()
    (tmp_path / "fronts.json").write_text(json.dumps(before))
    fronts.main([*flags, "--further", "3"])
    assert (tmp_path / "samples-0.jsonl").read_text() == lines
    assert json.loads((tmp_path / "fronts.json").read_text()) == after


@pytest.mark.parametrize(
    ("document", "number", "said"),
    [
        ({}, "3", "was not written by this version"),
        ({"methods": []}, "3", "was not written by this version"),
        ([], "3", "was not written by this version"),
        ({"methods": [{"held_back": [{"name": "own"}]}]}, "3", "was not written by this version"),
        ({"further": 0, "methods": []}, "3", "was not written by this version"),
        (document() | {"seed": 7}, "0", "--further: 0 must be at least 1"),
        (None, "3", "No such file"),
    ],
)
def test_further_problems_need_a_document(document, number, said, tmp_path):
    if document is not None:
        (tmp_path / "fronts.json").write_text(json.dumps(document, default=str))
    with pytest.raises(SystemExit, match=said):
        fronts.main(["--out", str(tmp_path), "--further", number])


@pytest.mark.parametrize(
    ("flag", "value"), [("--held-out", "4"), ("--keep", "0.9"), ("--caches", "dual")]
)
def test_flags_of_a_search_are_refused_with_further(flag, value, tmp_path, capsys):
    with pytest.raises(SystemExit):
        fronts.main(["--out", str(tmp_path), "--further", "3", flag, value])
    assert f"{flag}: leave it out" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["0", "3", "1977"])
def test_a_number_of_held_out_problems_out_of_range_is_named_by_its_flag(number, tmp_path):
    said = f"^error: --held-out: {number} is outside 4 to 1976"
    with pytest.raises(SystemExit, match=said):
        fronts.main(["--out", str(tmp_path), "--estimate", "--held-out", number])


@pytest.mark.parametrize("number", ["-1", "1", "65", "1000000000"])
def test_a_number_of_candidates_out_of_range_is_refused_at_once(number, tmp_path):
    with pytest.raises(SystemExit, match=rf"^error: --candidates: {number} is outside 2 to 64"):
        fronts.main(["--out", str(tmp_path), "--estimate", "--candidates", number])


def test_a_method_that_is_named_twice_is_refused(tmp_path):
    with pytest.raises(SystemExit, match=r"^error: --caches: dual,dual names a method twice"):
        fronts.main(["--out", str(tmp_path), "--estimate", "--caches", "dual,dual"])


def test_a_damaged_document_is_named(tmp_path):
    (tmp_path / "fronts.json").write_text("{")
    with pytest.raises(SystemExit, match=r"^error: --further: .*fronts.json is not readable"):
        fronts.main(["--out", str(tmp_path), "--further", "3"])


def test_a_stop_has_the_exit_status_of_a_stopped_command(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(fronts, "measure", lambda *given: None)
    with pytest.raises(SystemExit) as ended:
        fronts.main(["--model", str(checkpoint), "--out", str(tmp_path), "--held-out", "4"])
    assert ended.value.code == STOPPED


def test_another_checkpoint_is_refused(checkpoint, tmp_path):
    found = document() | {"model": "model", "family": "word_problems", "seed": 7}
    found["environment"] = {"checkpoint": "another"}
    (tmp_path / "fronts.json").write_text(json.dumps(found))
    with pytest.raises(SystemExit, match="is of another checkpoint"):
        fronts.main(["--model", str(checkpoint), "--out", str(tmp_path), "--further", "3"])


def test_a_document_of_another_model_is_refused(tmp_path):
    (tmp_path / "fronts.json").write_text(json.dumps(document() | {"seed": 7}, default=str))
    with pytest.raises(SystemExit, match=r"^error: --model: fronts.json is of m; leave --model"):
        fronts.main(["--model", "tiny-dream", "--out", str(tmp_path), "--further", "3"])
