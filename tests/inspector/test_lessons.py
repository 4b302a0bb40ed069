"""The lessons on their bundled recordings: the right answer is accepted, others are refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from engine.core import drift_codes
from engine.models.loading.checkpoint import Checkpoint
from engine.trace.trace import Trace
from inspector.handlers.lesson_service import LessonService
from inspector.lessons.lessons import LESSONS
from inspector.views.registry import VIEWS

FOLDER = Path(__file__).parents[2] / "assets" / "examples" / "lessons"
NAMES = sorted({name for one in LESSONS for name in one.runs()})
BY_KEY = {lesson.key: lesson for lesson in LESSONS}
NOWHERE = {"step": None, "layer": None, "position": None}


@pytest.fixture(scope="module")
def traces():
    return {name: Trace.load(FOLDER / f"{name}.npz") for name in NAMES}


def judge(traces, key, given, pinned=NOWHERE, **swapped):
    """Whether a lesson accepts an answer; `swapped` names the runs put in place of others."""
    return hint(traces, key, given, pinned, **swapped)[0]


def hint(traces, key, given, pinned=NOWHERE, **swapped):
    lesson = BY_KEY[key]
    lanes = dict(zip("ab", lesson.lanes, strict=True)) | {name: name for name in lesson.runs()}
    known = {key: traces[swapped.get(name, name)] for key, name in lanes.items()}
    return lesson.check(known, given, pinned)


def values(trace, step, layer, quantity):
    codes = trace.arrays()["drift"][step, layer, quantity].astype(float)
    return np.where(codes == 255, np.nan, 1e-3 * np.expm1(codes / 254 * np.log1p(2e3)))


def answer(trace):
    return trace.canvas_at(trace.steps)[~trace.arrays()["prompt_mask"]]


@pytest.mark.parametrize("name", NAMES)
def test_recordings_are_of_the_shipped_model_and_deep_enough(traces, name):
    model = traces[name].meta["spec"]["model"]
    digest = Checkpoint(FOLDER.parents[1] / "models" / model).digest()
    assert model == ("tiny-block" if name.startswith("block_") else "tiny-llada")
    assert traces[name].meta["environment"]["checkpoint"] == digest
    assert len(traces[name].arrays()["drift"]) == traces[name].steps


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.key)
def test_nonsense_is_never_right(traces, lesson):
    for given in ("", "-1", "nan", "1e9", "<b>", "plain", "0.0001"):
        assert not judge(traces, lesson.key, given)


def test_eleven_lessons_with_views_that_exist():
    assert len(LESSONS) == len(BY_KEY) == 11
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
    plain, clocks = answer(traces["plain"]), [one.name for one in BY_KEY["clocks"].choices]
    faithful = {
        name: traces[name].arrays()["recomputed"].mean()
        for name in clocks
        if (answer(traces[name]) == plain).all()
    }
    assert 1 < len(faithful) < len(clocks), "the question needs two that keep, one that changes"
    shares = {f"{share:.0%}" for share in faithful.values()}
    assert len(shares) == len(faithful), "the explanation shows whole percents"
    best = min(faithful, key=faithful.get)
    for name in clocks:
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
    plain, guided = traces["plain_fill_safe"], traces["freecache_guided"]
    texts = [trace.meta["texts"][0] for trace in (plain, guided)]
    assert texts[0].split()[-1] == texts[1].split()[-1]
    assert 4 * guided.steps < plain.steps


def text(trace):
    ids, stops = answer(trace).tolist(), trace.meta["model"]["stop_ids"]
    return ids[: next(i for i, token in enumerate(ids) if token in stops)]


def saved(traces, name, part=slice(None)):
    before, after = (traces[n].arrays()["flops"][:, part].sum() for n in ("plain", name))
    return 100 * (1 - after / before)


def test_the_saving_of_reuse_counts_if_the_text_stays(traces):
    names = [one.lane_b for one in BY_KEY["queries"].choices]
    keeps = [name for name in names if text(traces[name]) == text(traces["plain"])]
    assert 0 < len(keeps) < 3, "the lesson needs a setting that keeps and one that changes"
    best = max(keeps, key=lambda name: saved(traces, name))
    for name in names:
        assert judge(traces, "queries", f"{saved(traces, name):.1f} %") == (name == best)
    assert judge(traces, "queries", str(saved(traces, best) + 0.4).replace(".", ","))
    assert not judge(traces, "queries", str(saved(traces, best) - 0.6))
    (other,) = (name for name in names if name not in keeps)
    assert not judge(traces, "queries", str(saved(traces, best)), **{best: other})


def test_without_a_faithful_setting_no_saving_is_right(traces):
    unlike = dict.fromkeys(["dare_kv", "dare_o", "dare_o_from_layer_3"], "dare_o")
    for given in ("0", "100", str(saved(traces, "dare_o"))):
        assert not judge(traces, "queries", given, **unlike)


def test_reuse_saves_what_the_lesson_says(traces):
    projections, attention, ffn = range(3)
    names = ("dare_kv", "dare_o_from_layer_3", "dare_o")
    assert [saved(traces, name, ffn) for name in names] == [0, 0, 0]
    nothing, some, most = (saved(traces, name, attention) for name in names)
    assert 0 == nothing < some < most
    assert all(saved(traces, name, projections) > 0 for name in names)


@pytest.mark.parametrize(("name", "site"), [("dare_kv", 0), ("dare_o_from_layer_3", 2)])
def test_the_drift_of_the_query_decides_about_reuse(traces, name, site):
    trace = traces[name]
    limits, renewed = trace.meta["facts"]["threshold"], trace.recompute_map()[1:, :, site]
    codes = trace.arrays()["drift"][1:, :, 4].astype(int)
    layers = 0
    for layer, limit in enumerate(limits):
        if limit < 0:
            assert renewed[:, layer].all()
            continue
        apart = codes[:, layer] - int(drift_codes.encode(limit))  # 0: on either side of the limit
        fresh = renewed[:, layer]
        assert not fresh[apart < 0].any()
        assert fresh[apart > 0].all()
        assert fresh[apart <= 0].mean() < 0.2
        layers += bool((apart > 0).any())
    assert layers > 3, "the lesson needs layers with rows on both sides of the threshold"


def test_where_attention_is_reused_from_the_first_layer_on_unchanged_tokens_do_not_drift(traces):
    trace = traces["dare_o"]
    assert trace.meta["spec"]["knobs"] == {}, "the lesson shows the default"
    assert min(trace.meta["facts"]["threshold"]) >= 0
    codes, when = trace.arrays()["drift"][1:, :, 4], trace.step_map()
    for step, found in enumerate(codes):
        assert not found[:, when != step].any()


def test_how_much_guidance_gains_on_equal_terms(traces):
    whole, stopped, guided = (
        int(traces[name].arrays()["forwards"].sum())
        for name in ("plain", "plain_fill_safe", "guided")
    )
    assert guided < stopped < whole, "the lesson needs a gain of each kind"
    assert judge(traces, "terms", f"{stopped / guided:.2f}")
    for wrong in (whole / guided, whole / stopped, 1.05 * stopped / guided, guided / stopped):
        assert not judge(traces, "terms", f"{wrong:.2f}")
    assert not judge(traces, "terms", f"{stopped / guided:.2f}", plain_fill_safe="plain")
    assert judge(traces, "terms", f"{whole / guided:.2f}", plain_fill_safe="plain")
    assert not judge(traces, "terms", f"{stopped / guided:.2f}", guided="plain_fill_safe")


def test_the_races_on_equal_terms_and_the_one_without(traces):
    assert text(traces["plain"]) == text(traces["plain_fill_safe"])
    found = {
        name: [traces[lane].meta["spec"]["eos"] for lane in lanes]
        for name, lanes in BY_KEY["terms"].races().items()
    }
    assert found == {
        "plain_fill_safe": ["official", "fill_safe"],
        "guided": ["official", "fill_safe"],
        "plain_fill_safe-guided": ["fill_safe", "fill_safe"],
    }


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.key)
def test_the_races_of_the_other_lessons_have_one_end_of_text_rule(traces, lesson):
    if lesson.key != "terms":
        rules = {traces[name].meta["spec"]["eos"] for name in lesson.runs()}
        assert len(rules) == 1


def test_the_commit_call_of_the_first_block(traces):
    trace = traces["block_frozen"]
    size = trace.meta["spec"]["block_length"]
    first = int(trace.arrays()["prompt_mask"].sum()) // size * size
    fed = (trace.recompute_map() > 0)[..., first : first + size].any((1, 2, 3))
    right = int(fed.nonzero()[0][-1]) + 1
    known = (trace.step_map()[first : first + size] < right - 1).all()
    assert known
    assert judge(traces, "blocks", str(right))
    for given in (right - 1, right + 1, "none"):
        assert not judge(traces, "blocks", str(given))


def test_the_errors_of_the_block_lesson_are_those_that_it_tells(traces):
    worst = {}
    for name in ("block_frozen", "block_sub_block"):
        codes = traces[name].arrays()["probe_error"]
        assert len(codes)
        worst[name] = float(drift_codes.decode(codes[codes != drift_codes.NOT_EVALUATED].max()))
    assert worst["block_frozen"] == 0.0
    assert worst["block_sub_block"] > 0.01


@pytest.fixture
def service(handlers):
    return LessonService(handlers, FOLDER)


def test_the_service_shows_both_lanes_of_a_race(service, traces):
    for key in ("terms", "helper"):
        for name, lanes in BY_KEY[key].races().items():
            shown = json.loads(service.lesson([key, name]))
            steps = [len(shown["lanes"][lane]["rows"]) for lane in "ab"]
            assert steps == [traces[run].steps for run in lanes]
    assert shown["state"] == "example"


@pytest.mark.parametrize("name", BY_KEY["terms"].races())
def test_the_answer_does_not_depend_on_the_race_that_is_open(service, traces, name):
    guided = traces["guided"].steps
    for run, right in (("plain_fill_safe", True), ("plain", False)):
        given = f"{traces[run].steps / guided:.2f}"
        assert json.loads(service.check(["terms", name, given, None]))["right"] is right


@pytest.mark.parametrize("name", ["plain", "dare_o", "", None, 3, ["guided"], {"a": 1}])
def test_the_service_refuses_races_that_the_lesson_does_not_have(service, name):
    assert json.loads(service.lesson(["terms", name]))["state"] == "failed"
    assert json.loads(service.check(["terms", name, "6.4", None]))["right"] is False


@pytest.mark.parametrize(
    "pinned",
    [
        {"step": 10**9, "layer": 0, "position": 0}, {"step": 1, "layer": 99, "position": 0},
        {"step": 1, "layer": 0, "position": 10**6},
    ],
)  # fmt: skip
def test_a_cell_that_the_recording_lacks_is_refused_in_words(service, traces, pinned):
    probed = int(traces["spa_cache"].arrays()["probe_step"][1])
    cell = pinned | ({"step": probed} if pinned["step"] == 1 else {})
    verdict = json.loads(service.check(["selection", "spa_cache", "", {"lane": "b", **cell}]))
    assert verdict["right"] is False
    assert "recording" in verdict["said"] or "not probed" in verdict["said"]


def test_a_cell_of_lane_a_is_not_judged_as_one_of_lane_b(service, traces):
    step = int(traces["spa_cache"].arrays()["probe_step"][1])
    cell = {"step": step, "layer": 0, "position": 3}
    said = [
        json.loads(service.check(["selection", "spa_cache", "", {"lane": lane} | cell]))["said"]
        for lane in "ab"
    ]
    assert said[0].startswith("Pin a cell of lane B first")
    assert not said[1].startswith("Pin a cell of lane B first")


def test_a_wrong_answer_gets_a_hint_that_fits_it(traces):
    whole, stopped, guided = (
        int(traces[name].arrays()["forwards"].sum())
        for name in ("plain", "plain_fill_safe", "guided")
    )
    for key, given, words in (
        ("masks", "2", "Token 2 was committed at step"),
        ("masks", "500", "The answer has"),
        ("attention", "0", "under causal attention"),
        ("clocks", "dllm_25_50", "changes"),
        ("thresholds", "1", "is the same in both runs"),
        ("freezing", "1", "still recomputed after that step"),
        ("freezing", "999", "frozen before that step"),
        ("queries", f"{saved(traces, 'dare_o'):.1f}", "changes the text"),
        ("terms", f"{whole / guided:.2f}", "compares unequal rules"),
        ("terms", f"{whole / stopped:.2f}", "without guidance"),
    ):
        right, said = hint(traces, key, given)
        assert not right
        assert words in said, (key, given)


def test_hints_do_not_give_the_answer_away(traces):
    trace = traces["freecache"]
    prompt = int(trace.arrays()["prompt_mask"].sum())
    block = slice(prompt, prompt + trace.meta["spec"]["block_length"])
    last = int(np.flatnonzero(trace.recompute_map()[:, :, :, block].any((1, 2, 3)))[-1])
    for given in ("1", "3", "999"):
        assert str(last + 2) not in hint(traces, "freezing", given)[1]


def test_the_service_asks_for_a_number(service):
    said = json.loads(service.check(["masks", "threshold_95", "seven", None]))
    assert said == {"right": False, "said": "Give a number, such as 12 or 3.5."}


def test_each_lesson_says_what_it_takes():
    assert all(1 <= lesson.minutes <= 15 and lesson.goal.endswith(".") for lesson in LESSONS)
