"""The advisor on a micro checkpoint, from exact runs to the table, and its command."""

import json
import weakref
from copy import deepcopy
from dataclasses import replace
from functools import partial

import pytest

from engine.advise import __main__ as command
from engine.advise import advisor as advisor_module
from engine.advise import report
from engine.advise.advisor import Advice, Advisor, CacheAdvice
from engine.advise.kept import Kept, kept
from engine.advise.measuring import Measured
from engine.advise.report import advice_document, advice_table
from engine.advise.request import AdviceRequest
from engine.advise.reuse_error import RunReuse
from engine.advise.search import CacheSearch
from engine.batch.journal import Journal
from engine.batch.prompts import Prompt
from engine.batch.settings import NamedSpec
from engine.config.run_card import is_card, specs_of
from engine.config.spec import RaceSpec, RunSpec
from engine.core.control import Control
from engine.core.events import QUANTITIES
from engine.evaluate.repeat import differences, repeat
from engine.serve.session import Session

BASE = RunSpec(model="micro", gen_length=8, block_length=4, steps=8)
PROMPTS = tuple(Prompt(f"Ann has {i} pens.") for i in range(6))


def advisor_request(**changes):
    fields = {"base": BASE, "caches": ("dual",), "prompts": PROMPTS, "keep": 0.1}
    return AdviceRequest(**(fields | {"kind": "tokens", "candidates": 4} | changes))


def advisor(session, control=None, **changes):
    request, control = advisor_request(**changes), control or Control()
    run = partial(session.run, control=control)
    info = session.model_info(BASE.model)
    return Advisor(run, session.environment, info, request, Journal(), control)


@pytest.fixture(scope="module")
def advised(checkpoint):
    """Stages and advice of a whole search."""
    own = advisor(Session({"micro": checkpoint}), random=True)
    return [one.stage for one in own.events()], own.advice


def test_advice_holds_measured_settings_of_new_prompts(advised):
    stages, advice = advised
    assert stages[0] == "recording exact runs"
    assert stages[-1] == "testing Fast-dLLM dual cache on new prompts"
    document = advice_document(advice)
    assert json.loads(json.dumps(document)) == document
    assert document["finished"]
    (dual,) = document["caches"]
    assert dual["title"] == "Fast-dLLM dual cache"
    assert "Fast-dLLM dual cache: " in advice_table(advice)
    assert all(row["prompts"] == 4 for row in dual["held_back"])
    assert {"published", "searched"} == {row["from"] for row in dual["searched"]}
    assert dual["runs"] <= dual["grid_runs"]
    assert "dual: defaults" in [row["name"] for row in dual["held_back"]]


def test_advice_is_read_while_a_search_adds_caches():
    advice = Advice(advisor_request())

    class Found:
        @property
        def chosen(self):
            advice.caches.setdefault("prefix", CacheAdvice(CacheSearch("prefix", 1)))

    advice.caches["dual"] = Found()
    assert advice.chosen() is None
    assert list(advice.caches) == ["dual", "prefix"]


@pytest.fixture
def exact(monkeypatch):
    """The traces of the exact runs of a search, of which it keeps what predictions need."""
    traces, of = [], RunReuse.of
    monkeypatch.setattr(RunReuse, "of", lambda trace: traces.append(trace) or of(trace))
    return traces


def test_exact_runs_are_recorded_whole(checkpoint, exact):
    """The settings of a page may narrow what its own recordings hold."""
    narrow = {"record_layers": "1", "record_quantities": "k", "record_positions": "answer"}
    own = advisor(Session({"micro": checkpoint}), base=replace(BASE, **narrow))
    for _ in own.events():
        pass
    assert own.advice.finished
    assert exact
    for trace in exact:
        drift = trace.arrays()["drift"]
        assert drift.shape[1:] == (trace.layers, len(QUANTITIES), len(trace.arrays()["canvas"]))


def test_a_step_with_two_branches_of_guidance_is_predicted_as_one_step(session, exact, monkeypatch):
    base = replace(BASE, unmasker="threshold", cfg_scale=1.0)
    own, asked = advisor(session, base=base), []
    planned = own._narrow.run

    def noted(spec, tokens, steps):
        asked.append(steps)
        return planned(spec, tokens, steps)

    monkeypatch.setattr(own._narrow, "run", noted)
    for _ in own.events():
        pass
    first = exact[0]
    assert first.arrays()["forwards"].sum() == 2 * first.steps
    assert set(asked) == {first.steps}


def test_the_planned_steps_of_a_run_are_not_all_held(session, monkeypatch):
    """One of a model of 32 layers and 3,072 positions takes 400 KB, and a run has 1,024."""
    own, steps, held = advisor(session), [], []
    planned = own._narrow.run

    def counted(*asked):
        for step in planned(*asked):
            steps.append(weakref.ref(step))
            held.append(sum(one() is not None for one in steps))
            yield step

    monkeypatch.setattr(own._narrow, "run", counted)
    for _ in own.events():
        pass
    assert max(held) <= 2


def test_a_setting_that_clearly_keeps_too_little_is_not_tested_further(checkpoint, monkeypatch):
    for module in (advisor_module, report):
        monkeypatch.setattr(module, "FIRST_TEST", 2)
    monkeypatch.setattr(Measured, "may_keep", lambda one, keep: "defaults" in one.named.name)
    own = advisor(Session({"micro": checkpoint}))
    for _ in own.events():
        pass
    found = own.advice.caches["dual"]
    prompts = {name: len(one.pairs) for name, one in found.held_back.items()}
    assert prompts.pop("dual: defaults") == 4
    assert set(prompts.values()) == {2}
    assert found.accepted <= {"dual: defaults"}
    said = [one for one in report.untested(own.advice) if "kept too little" in one]
    few = f"Fast-dLLM dual cache: {len(prompts)} setting"
    assert said[0].startswith(few)


def test_what_was_not_run_is_counted(monkeypatch):
    monkeypatch.setattr(report, "FIRST_TEST", 2)
    advice, search = Advice(advisor_request()), CacheSearch("dual", 1)
    one = Measured(NamedSpec("x", replace(BASE, cache="dual")), (), None)
    search.measured = {"x": one}
    advice.caches["dual"] = CacheAdvice(search, held_back={"x": one})
    ran, few, *_ = report.untested(advice)
    assert ran.endswith("0 were predicted and 1 was run.")
    assert "1 setting kept too little" in few
    assert few.endswith("and was not run on the others.")
    search.grid = 2
    assert report.untested(advice)[0].endswith("1 was run; the others were not.")


@pytest.mark.parametrize(("high", "may"), [(0.949, False), (0.95, True)])
def test_a_setting_may_keep_enough_if_its_interval_reaches_it(high, may):
    one = Measured(NamedSpec("x", BASE), (), Kept(0.8, 0.7, high, 9))
    assert one.may_keep(0.95) is may
    assert not Measured(NamedSpec("x", BASE), (), None).may_keep(0.95)


def test_the_chosen_setting_can_be_raced(advised):
    advice = advised[1]
    chosen = advice_document(advice)["chosen"]
    race = RaceSpec.from_query(chosen["query"])
    assert (race.a.cache, race.b.cache) == ("none", "dual")
    assert race.a.prompt == race.b.prompt == PROMPTS[2].prompt
    assert race.b == RunSpec.from_dict(
        chosen["preset"]["fields"] | {"model": "micro", "prompt": PROMPTS[2].prompt}
    )
    cache, name = advice.chosen()
    assert advice.caches[cache].held_back[name].kept.accepts(0.1)


def test_the_run_card_repeats_the_race_of_the_chosen_setting(advised, checkpoint):
    card = json.loads(json.dumps(advice_document(advised[1])["chosen"]["card"]))
    assert is_card(card)
    assert card["advice"]["prompts"] == 4
    traces = repeat(Session({"micro": checkpoint}), specs_of(card))
    assert differences(card, traces) == []
    card["lanes"]["b"]["results"]["text"] += "x"
    assert "lane b: another answer" in differences(card, traces)[0]


def test_nothing_is_chosen_where_nothing_was_accepted(advised):
    advice = deepcopy(advised[1])
    assert f"Chosen: {advice.chosen()[1]}" in advice_table(advice)
    advice.caches["dual"].chosen = None
    assert advice_document(advice)["chosen"] is None
    assert "Chosen: plain decoding; the test accepted no setting." in advice_table(advice)


def test_the_table_has_no_interval_of_a_single_prompt(advised):
    advice = deepcopy(advised[1])
    assert " % to " in advice_table(advice)
    held = advice.caches["dual"].held_back
    for name, one in held.items():
        held[name] = replace(one, pairs=one.pairs[:1])
    rows = [line for line in advice_table(advice).splitlines() if line.startswith("|")]
    assert len(rows) == len(held) + 2
    assert not any(" to " in cell for row in rows for cell in row.split("|"))


def test_the_front_leaves_out_settings_that_are_beaten(advised):
    advice = advised[1]
    points = {
        ("dual", name): (one.speed_up, one.kept.share)
        for name, one in advice.caches["dual"].held_back.items()
    }
    front = advice.front()
    assert front
    for key, (speed, share) in points.items():
        beaten = any(
            s >= speed and k >= share and (s, k) != (speed, share) for s, k in points.values()
        )
        assert (key in front) is not beaten


def test_the_front_leaves_out_settings_that_were_tested_on_fewer_prompts(advised):
    advice = deepcopy(advised[1])
    held, front = advice.caches["dual"].held_back, advice.front()
    some = held[front[0][1]]
    fast = tuple((plain, replace(own, ms=own.ms / 1e3)) for plain, own in some.pairs[:-1])
    held["fast"] = replace(some, pairs=fast, kept=kept("tokens", fast))
    assert advice.front() == front


@pytest.mark.parametrize("failing", [1, 2])
def test_a_prompt_is_left_out_of_all_caches_if_plain_decoding_fails_beside_one(session, failing):
    """It runs anew beside each of both caches, and fails in one of these two runs."""
    request, control, runs = advisor_request(caches=("dual", "prefix")), Control(), []

    def run(spec):
        if spec.prompt == PROMPTS[2].prompt and spec.cache == "none":
            runs.append(spec)
            if len(runs) == failing:
                raise ValueError("memory: it is full")
        return session.run(spec, control)

    info = session.model_info(BASE.model)
    own = Advisor(run, session.environment, info, request, Journal(), control)
    for _ in own.events():
        pass
    assert len(runs) == 2
    assert own.advice.raced == PROMPTS[3]
    for found in own.advice.caches.values():
        tested = own.advice.tested_on_all(found)
        assert tested.keys() == found.held_back.keys()
        assert {len(one.pairs) for one, _ in tested.values()} == {3}
        assert found.accepted == {n for n, (_, kept) in tested.items() if kept.accepts(0.1)}


def test_settings_that_were_drawn_at_random_count_as_run(advised):
    advice = advised[1]
    (found,) = advice.caches.values()
    ran = {
        one.named.spec.knobs.get("dual.refresh_interval")  # None: that of the defaults
        for search in (found.search, found.drawn)
        for one in search.measured.values()
    }
    assert len(ran) > len(found.search.measured)
    assert f" and {len(ran)} were run" in report.untested(advice)[0]
    assert found.drawn.runs == sum(len(one.pairs) for one in found.drawn.measured.values())


def test_a_stop_leaves_what_was_measured(session):
    control = Control()
    own = advisor(session, control)
    for one in own.events():
        if one.stage == "measuring Fast-dLLM dual cache" and one.done == 2:
            control.stop()
    assert not own.advice.finished
    document = advice_document(own.advice)
    assert document["caches"][0]["searched"]
    assert any("was tested on new prompts" in one for one in document["not_tested"])


def test_the_advice_says_how_many_prompts_a_setting_may_change_unseen(session):
    """Of 4 prompts none changes with a probability of 5 % if 53 % do: 0.47 ** 4 = 0.05."""
    own = advisor(session)
    assert len(own.advice.request.held_back) == 4
    last = report.untested(own.advice)[-1]
    assert "has 4 prompts" in last
    assert "may still change 53 %" in last


def test_the_command_writes_advice_and_goes_on_from_its_runs(checkpoint, tmp_path, capsys):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join(one.prompt for one in PROMPTS))
    out = tmp_path / "out"
    flags = [
        "--model", str(checkpoint), "--prompts", str(prompts), "--cache", "dual", "--keep", "0.1",
        "--of", "tokens", "--candidates", "4", "--gen-length", "8", "--block-length", "4",
        "--out", str(out),
    ]  # fmt: skip
    command.main(flags)
    table = capsys.readouterr().out
    assert "| dual " in table
    assert (out / "table.md").read_text() == table
    document = json.loads((out / "advice.json").read_text())
    chosen = document["chosen"]
    assert chosen["card"] == json.loads((out / "run-card.json").read_text())
    assert f"`?{chosen['query']}`" in table
    assert document["request"]["of"] == "tokens"
    lines = (out / "runs.jsonl").read_text().splitlines()
    command.main(flags)
    assert (out / "runs.jsonl").read_text().splitlines() == lines
    assert json.loads((out / "advice.json").read_text()) == document


def test_a_run_card_of_an_earlier_search_is_removed(tmp_path):
    (tmp_path / "run-card.json").write_text("{}")
    command._show(Advice(advisor_request()), tmp_path)
    assert not (tmp_path / "run-card.json").exists()


def test_the_command_takes_no_recorder_which_would_slow_the_timed_runs(checkpoint):
    flags = ["--model", str(checkpoint), "--family", "short_problems", "--record", "layers"]
    with pytest.raises(SystemExit, match=r"^error: --record: leave it out; runs are timed"):
        command.main(flags)


def test_the_command_narrows_no_recording(capsys):
    with pytest.raises(SystemExit):
        command.main(["--family", "short_problems", "--record-quantities", "k"])
    said = "--record-quantities: the exact runs are recorded whole; leave it out"
    assert said in capsys.readouterr().err


def test_the_command_names_a_cache_that_cannot_be_searched(checkpoint, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join(one.prompt for one in PROMPTS))
    with pytest.raises(SystemExit, match=r"^error: cache: none has no settings"):
        command.main(["--model", str(checkpoint), "--prompts", str(prompts), "--cache", "none"])
