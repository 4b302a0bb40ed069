"""The lessons on their shipped recordings: the right answer is taken, others are not."""

from pathlib import Path

import numpy as np
import pytest

from engine.core import drift_codes
from engine.trace.trace import Trace
from inspector.lessons.lessons import LESSONS
from inspector.views.registry import VIEWS

FOLDER = Path(__file__).parents[2] / "assets" / "examples" / "lessons"
NAMES = sorted({name for one in LESSONS for name in (*one.lanes, *(n for _, n in one.choices))})
BY_KEY = {lesson.key: lesson for lesson in LESSONS}
NOWHERE = {"step": None, "layer": None, "position": None}


@pytest.fixture(scope="module")
def traces():
    return {name: Trace.load(FOLDER / f"{name}.npz") for name in NAMES}


def judge(traces, key, given, pinned=NOWHERE):
    lesson = BY_KEY[key]
    known = {"a": traces[lesson.lanes[0]], "b": traces[lesson.lanes[1]]}
    known |= {name: traces[name] for _, name in lesson.choices}
    return lesson.check(known, given, pinned)[0]


def values(trace, step, layer, quantity):
    codes = trace.arrays()["drift"][step, layer, quantity].astype(float)
    return np.where(codes == 255, np.nan, 1e-3 * np.expm1(codes / 254 * np.log1p(2e3)))


def answer(trace):
    return trace.canvas_at(trace.steps)[~trace.arrays()["prompt_mask"]]


@pytest.mark.parametrize("name", NAMES)
def test_recordings_are_of_the_shipped_model_and_deep_enough(traces, name):
    digest = Trace.load(FOLDER.parent / "a.npz").meta["environment"]["checkpoint"]
    assert traces[name].meta["environment"]["checkpoint"] == digest
    assert len(traces[name].arrays()["drift"]) == traces[name].steps


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.key)
def test_nonsense_is_never_right(traces, lesson):
    for given in ("", "-1", "nan", "1e9", "<b>", "plain", "0.0001"):
        assert not judge(traces, lesson.key, given)


def test_eight_lessons_with_views_that_exist():
    assert len(LESSONS) == len(BY_KEY) == 8
    assert {lesson.view for lesson in LESSONS} <= {*VIEWS, "counts", "compare"}


def test_the_last_word(traces):
    trace = traces["plain"]
    stops = trace.meta["model"]["stop_ids"]
    ids, when = answer(trace).tolist(), trace.step_map()[~trace.arrays()["prompt_mask"]].tolist()
    end = next(i for i, token in enumerate(ids) if token in stops)
    last = max(range(end), key=lambda i: when[i])
    assert judge(traces, "masks", str(last + 1))
    assert not judge(traces, "masks", str(last + 2))


def test_what_causal_attention_would_have_kept(traces):
    trace = traces["plain"]
    fresh = trace.step_map().tolist().index(11)
    prompt = int(trace.arrays()["prompt_mask"].sum())
    count = int((values(trace, 12, 7, 1)[prompt:fresh] > 0.001).sum())
    assert count > 0, "the lesson needs a token with answer tokens before it"
    assert judge(traces, "attention", str(count))
    assert not judge(traces, "attention", str(count + 1))


def test_the_share_that_drifts(traces):
    found = values(traces["plain"], slice(None), 4, 1)
    share = 100 * (found[~np.isnan(found)] > 0.05).mean()
    assert judge(traces, "drift", f"{share:.1f} %")
    assert judge(traces, "drift", str(share + 0.9).replace(".", ","))
    assert not judge(traces, "drift", str(share + 1.2))


def test_the_cheapest_faithful_clock(traces):
    plain = answer(traces["plain"])
    faithful = {
        name: traces[name].arrays()["recomputed"].mean()
        for _, name in BY_KEY["clocks"].choices
        if (answer(traces[name]) == plain).all()
    }
    assert 0 < len(faithful) < 3, "the lesson needs a setting that keeps and one that changes"
    best = min(faithful, key=faithful.get)
    for _, name in BY_KEY["clocks"].choices:
        assert judge(traces, "clocks", name) == (name == best)


def test_the_first_wrong_token(traces):
    apart = np.flatnonzero(answer(traces["plain"]) != answer(traces["threshold_70"]))
    assert (answer(traces["plain"]) == answer(traces["threshold_95"])).all()
    assert judge(traces, "thresholds", str(apart[0] + 1))
    assert not judge(traces, "thresholds", str(apart[0] + 2))


def test_a_row_that_the_proxy_missed(traces):
    trace = traces["spa_cache"]
    arrays, renewed = trace.arrays(), trace.recompute_map()
    verdicts = []
    for index, step in enumerate(arrays["probe_step"].tolist()):
        for layer in range(renewed.shape[1]):
            moved, fresh = arrays["probe_moved"][index, layer, 2], renewed[step, layer, 2]
            known = moved != drift_codes.NOT_EVALUATED
            if not (fresh & known).any() or fresh[known].all():
                continue
            bar = sorted(moved[known])[-int((fresh & known).sum())]
            for position in np.flatnonzero(known):
                right = moved[position] >= bar and not fresh[position]
                pinned = {"step": step, "layer": layer, "position": int(position)}
                assert judge(traces, "selection", "", pinned) == right
                verdicts.append(right)
    assert any(verdicts), "the lesson needs a row to be found"
    assert not all(verdicts)
    assert not judge(traces, "selection", "", {"step": 1, "layer": 0, "position": 3})


def test_when_the_first_block_freezes(traces):
    trace = traces["freecache"]
    prompt = int(trace.arrays()["prompt_mask"].sum())
    block = slice(prompt, prompt + trace.meta["spec"]["block_length"])
    touched = [bool(step[:, :, block].any()) for step in trace.recompute_map()]
    last = max(i for i, was in enumerate(touched) if was)
    assert last + 1 < trace.steps, "the block must freeze before the end"
    assert judge(traces, "freezing", str(last + 2))
    assert not judge(traces, "freezing", str(last + 1))


def test_who_wins_where_draft_and_guider_disagree(traces):
    trace = traces["freecache_guided"]
    arrays, ids = trace.arrays(), trace.canvas_at(trace.steps)
    assert trace.meta["guider"]["shared"], "else the guider's tokens are not the draft's, in order"
    wins = losses = 0
    for step in range(trace.steps):
        mine, theirs = (np.flatnonzero(arrays[n] == step) for n in ("draft_step", "guider_step"))
        ok = arrays["draft_ok"][mine]
        if ok.all():
            continue
        first = int(ok.argmin())
        stands = trace.pieces[int(ids[arrays["draft_position"][mine[first]]])]
        choice = trace.guider_pieces[int(arrays["guider_top"][theirs[first]])]
        wins, losses = wins + (stands == choice), losses + (stands != choice)
    assert wins > 1, "the lesson needs mismatches"
    assert judge(traces, "helper", str(wins))
    assert not judge(traces, "helper", str(wins + 1))
    assert not judge(traces, "helper", str(wins - 1))


def test_a_guider_saves_forwards_and_changes_no_answer(traces):
    texts = {name: traces[name].meta["texts"][0] for name in ("plain", "freecache_guided")}
    assert texts["plain"].split()[-1] == texts["freecache_guided"].split()[-1]
    assert 4 * traces["freecache_guided"].steps < traces["plain"].steps
