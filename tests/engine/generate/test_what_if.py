"""What if: exact with the run's settings, equal to a branch with others, plain about the rest."""

from functools import cache

import numpy as np
import pytest
import torch

from engine.catalog import unmaskers
from engine.config.knobs import describe_fields
from engine.config.spec import RunSpec
from engine.generate.recorded_step import OLD_TRACE, draw_bounds
from engine.generate.what_if import COMMITTED, FILLED, what_if
from engine.trace.schema import ADDED_AFTER
from engine.trace.trace import Trace
from tests.support.branching import branch, make, record
from tests.support.micro import EOS, VOCAB, make_model

RULES = [name for name, rule in unmaskers().items() if not rule.guided]
OTHERS = [
    {"knobs": {"quota.score": "margin"}},
    {"knobs": {"quota.score": "entropy"}},
    {"knobs": {"quota.score": "random"}},
    {"knobs": {"quota.score": "random"}, "cache": "dkv_cache"},
    {"cache": "d2_cache", "unmasker": "certainty"},
    {"cache": "dual", "unmasker": "threshold", "cfg_scale": 1.0},
    {"unmasker": "threshold", "knobs": {"threshold.threshold": 0.05}, "eos": "fill_eager",
     "fixed": ((6, EOS), (12, EOS))},
    {"eos_suppress": "confidence", "steps": 12},
    {"eos_suppress": "confidence", "unmasker": "factor", "temperature": 0.4},
    {"unmasker": "dream", "knobs": {"dream.alg": "origin", "dream.schedule": "released"}},
    {"unmasker": "dream", "knobs": {"dream.alg_temp": 0.5}},
    {"stop": ("33",), "fixed": ((4, 33),)},
    {"stop": ("33",), "fixed": ((4, 33),), "unmasker": "dream",
     "knobs": {"dream.schedule": "released"}},
    {"unmasker": "dream", "temperature": 0.6, "knobs": {"dream.top_p": 0.9, "dream.top_k": 7}},
]  # fmt: skip


def recorded(**changes):
    return record(make(record="steps", **changes))


def sides(found):
    """Position, kind and id of each commit: with the settings, and in the run."""
    both = []
    for kinds, ids in (("would", "ids"), ("did", "did_ids")):
        here = found[kinds] > 0
        values = (found["positions"], found[kinds], found[ids])
        both.append([tuple(map(int, row)) for row in zip(*(v[here] for v in values), strict=True)])
    return both


def assert_exact(trace):
    for step in range(trace.steps):
        found = what_if(trace, step, {})
        would, did = sides(found)
        assert would == did
        assert found["own"]
        assert (found["unknown"], found["notes"], found["refusal"]) == ((), (), "")


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize(
    ("rule", "steps"),
    [(name, n) for name in RULES for n in ((8, 6) if unmaskers()[name].scheduled else (6,))],
)
def test_with_the_settings_of_the_run_it_is_what_the_step_committed(rule, steps, temperature):
    trace = recorded(unmasker=rule, steps=steps, temperature=temperature)
    assert trace.steps > 1
    assert_exact(trace)


@pytest.mark.parametrize("changes", OTHERS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_is_exact_under_other_settings_of_runs(changes, dtype):
    assert_exact(recorded(**changes, dtype=dtype))


def test_it_is_exact_where_confidences_are_float64_in_a_float32_run():
    model = make_model(2, double_confidence=True).float()
    model.head.weight.mul_(40)  # so that float32 rounds several confidences of a step to 1
    trace = record(make(record="steps", dtype="float32"), family=model)
    scores = trace.arrays()["proposal_score"]
    assert len(np.unique(scores.astype(np.float32))) < len(np.unique(scores))
    assert_exact(trace)
    trace.meta["model"]["double_confidence"] = False
    with pytest.raises(AssertionError):
        assert_exact(trace)


def test_the_scores_of_ends_that_are_ranked_last_are_finite():
    ends_alone = make_model(stop_ids=tuple(range(VOCAB - 1)))
    trace = record(make(record="steps", eos_suppress="confidence"), family=ends_alone)
    found = what_if(trace, 0, {})
    assert len(found["score"])
    assert (found["score"] == np.finfo(np.float32).min).all()


@pytest.mark.parametrize("rule", RULES)
def test_it_is_exact_in_a_branch_that_begins_within_a_block(rule):
    parent = parent_of(rule)
    assert_exact(branch(parent, 3))
    assert_exact(branch(parent, min(7, parent.steps - 1), (1, 5)))


@pytest.mark.parametrize("name", ["proposal_score", "proposal_id"])
def test_other_proposals_give_another_result(name):
    trace = recorded(unmasker="threshold", knobs={"threshold.threshold": 0.3})
    array = trace.arrays()[name].copy()
    last = trace.snapshot()
    last._arrays[name] = -array if name == "proposal_score" else (array + 1) % VOCAB
    assert_exact(trace)
    results = [sides(what_if(last, step, {})) for step in range(trace.steps)]
    assert any(would != did for would, did in results)


@cache
def parent_of(rule):
    """A run with a rule, made once."""
    return recorded(unmasker=rule, steps=12)


def settings_of(rule):
    """Settings of a rule that are not its defaults."""
    other = {
        "threshold": {"threshold.threshold": "0.2"}, "factor": {"factor.factor": "3.0"},
        "quota": {"quota.score": "random"}, "certainty": {"certainty.sigma": "2.0"},
        "dream": {"dream.alg": "topk_margin"},
    }  # fmt: skip
    return {"unmasker": rule} | other.get(rule, {})


@pytest.mark.parametrize("wanted", RULES)
@pytest.mark.parametrize("rule", RULES)
def test_it_is_the_first_step_of_a_branch_with_these_settings(rule, wanted):
    """In the step 0, 5 or 10: each with every rule of the run, and with every rule wanted."""
    trace, settings = parent_of(rule), settings_of(wanted)
    step = 5 * ((RULES.index(rule) + RULES.index(wanted)) % 3)
    found = what_if(trace, step, settings)
    assert found["unknown"] == ()
    spec = RunSpec.from_query(found["query"])
    child = branch(trace, step, most=1, unmasker=spec.unmasker, knobs=spec.knobs)
    arrays = child.arrays()
    first = sorted(zip(*(arrays[f"commit_{n}"].tolist() for n in ("position", "id")),
                       strict=True))  # fmt: skip
    assert [(p, i) for p, _, i in sides(found)[0]] == first


def test_a_lower_threshold_commits_more_tokens():
    trace = recorded(unmasker="threshold", knobs={"threshold.threshold": 0.9})
    counts = [
        int((what_if(trace, 0, {"threshold.threshold": t})["would"] == COMMITTED).sum())
        for t in ("2.0", "0.9", "0.3", "0.0")
    ]
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts[-1] == 8


def older(trace):
    """The trace as version 4 kept it."""
    found = trace.snapshot()
    new = Trace().arrays()
    found._arrays |= {name: new[name] for name in ADDED_AFTER[5]}
    return found


@pytest.mark.parametrize("rule", [n for n in RULES if n not in ("dream", "entropy_bounded")])
def test_a_greedy_run_in_an_older_trace_is_exact(rule):
    trace = recorded(unmasker=rule, dtype="float32")
    assert_exact(older(trace))


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ({"temperature": 0.5}, {}),
        ({"knobs": {"quota.score": "random"}}, {}),
        ({"knobs": {"quota.score": "entropy"}}, {}),
        ({}, {"quota.score": "entropy"}),
        ({"unmasker": "dream", "knobs": {"dream.top_k": 3}}, {}),
    ],
    ids=str,
)
def test_an_older_trace_says_what_it_lacks(changes, settings):
    trace = older(recorded(**changes))
    found = what_if(trace, 0, settings)
    assert found["refusal"] == OLD_TRACE
    assert not found["would"].any()
    assert found["did"].any()
    assert found["possible"]


def test_another_temperature_shows_the_most_probable_tokens_and_says_so():
    trace = recorded(temperature=0.0)
    found = what_if(trace, 0, {"temperature": "0.8"})
    assert "draws each token at random" in found["unknown"][0]
    assert (found["chance"][:, 0] <= found["chance"][:, 1]).all()
    assert (found["chance"][:, 1] < 1).any()
    greedy = what_if(recorded(temperature=0.8), 0, {"temperature": "0"})
    assert greedy["unknown"] == ()
    assert (greedy["chance"] == 1).all()


def test_a_branch_that_draws_anew_is_told():
    trace, told = recorded(temperature=0.7), "A branch draws its noise anew from the seed 0"
    assert any(told in note for note in what_if(trace, 2, {"temperature": "0.8"})["notes"])
    assert not any(told in note for note in what_if(trace, 0, {"temperature": "0.8"})["notes"])
    assert not any(told in note for note in what_if(trace, 2, {"temperature": "0"})["notes"])


@pytest.mark.parametrize("temperature", [0.3, 0.8, 1.0, 2.5])
def test_the_bounds_of_a_draw_hold_the_probability(temperature):
    logits = torch.randn(200, VOCAB, generator=torch.Generator().manual_seed(1)).double() * 2
    top = logits.softmax(-1).topk(5).values.float().numpy()
    true = (logits / temperature).softmax(-1).amax(-1).numpy()
    low, high = draw_bounds(top, temperature, VOCAB).T
    assert (low <= true + 1e-6).all()
    assert (true <= high + 1e-6).all()
    assert not (draw_bounds(top[:, :1] / 2, temperature, VOCAB)[:, 1] >= true).all()


def test_a_filter_within_the_recorded_tokens_is_known_and_others_are_not():
    trace = recorded(unmasker="dream")
    known = what_if(trace, 0, {"dream.top_k": "3"})
    assert known["unknown"] == ()
    assert known["refusal"] == ""
    assert "most probable tokens" in what_if(trace, 0, {"dream.top_p": "0.5"})["unknown"][0]
    assert "draws the order" in what_if(trace, 0, {"dream.alg_temp": "0.5"})["unknown"][0]


def test_a_guided_rule_is_refused_and_a_guided_run_may_be_compared_with_others():
    trace = recorded(unmasker="guided", steps=16)
    found = what_if(trace, 0, {})
    assert found["refusal"].startswith("Guided diffusion: its guider decides")
    assert not (found["would"] > 0).any()
    assert (found["did"] > 0).any()
    other = what_if(trace, 0, {"unmasker": "quota"})
    assert other["refusal"] == ""
    assert (other["would"] == COMMITTED).sum() == 1


def test_tokens_after_an_end_are_filled_as_in_the_run():
    fixed = ((0, 5), (1, 5), (3, EOS))
    trace = recorded(unmasker="threshold", eos="fill_safe", fixed=fixed, block_length=4)
    found = what_if(trace, 0, {"threshold.threshold": "2.0"})
    assert (found["would"] == FILLED).any()
    assert (found["ids"][found["would"] == FILLED] == EOS).all()


def test_the_form_has_every_knob_with_its_value_and_that_of_the_run():
    trace = recorded(unmasker="threshold", knobs={"threshold.threshold": 0.8})
    found = what_if(trace, 0, {"threshold.threshold": "0.4"})
    (knob,) = found["knobs"]
    assert (knob["name"], knob["value"], knob["run"]) == ("threshold", 0.4, 0.8)
    assert not found["own"]
    assert [rule["name"] for rule in found["rules"]] == list(unmaskers())
    other = what_if(trace, 0, {"unmasker": "dream"})
    names = [row["name"] for row in describe_fields(unmaskers()["dream"])]
    assert [row["name"] for row in other["knobs"]] == names
    assert {row["run"] for row in other["knobs"]} == {None}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seed": "1"}, "seed: a what-if changes unmasker, temperature"),
        ({"unmasker": "magic"}, "unmasker: 'magic' is unknown"),
        (
            {"threshold.threshold": "0.5"},
            "threshold.threshold: a what-if changes unmasker, temperature and settings of quota",
        ),
        ({"quota.score": "loud"}, "quota.score: 'loud' is unknown"),
        ({"quota.tempo": "1"}, "quota.tempo: unknown setting"),
        ({"temperature": "11"}, "temperature: 11.0 is outside"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        what_if(recorded(), 0, settings)
    assert str(caught.value).startswith(message)


def test_a_question_does_not_read_the_texts_of_the_methods(monkeypatch):
    """Which settings are texts is known after the first question; reading all took 5 ms."""
    trace = recorded()
    monkeypatch.setattr("engine.catalog.method_doc", lambda cls: pytest.fail("it was read"))
    assert what_if(trace, 0, {})["own"]


def test_a_step_that_is_not_there_or_was_not_recorded_is_named():
    trace = recorded()
    with pytest.raises(ValueError, match="step: expected a step of the trace, from 0 to 7"):
        what_if(trace, trace.steps, {})
    with pytest.raises(ValueError, match="press Record"):
        what_if(record(make()), 0, {})


@pytest.mark.parametrize(
    "damage",
    [
        {"candidate_position": lambda a: np.zeros_like(a)},
        {"candidate_id": lambda a: a[:, :1], "candidate_prob": lambda a: a[:, :1]},
        {"block": lambda a: a + 1},
        {"block": lambda a: a + 100},
    ],
    ids=["positions", "width", "next block", "far block"],
)
def test_a_damaged_trace_is_refused_with_a_sentence(damage):
    trace = recorded().snapshot()
    for name, change in damage.items():
        trace._arrays[name] = change(trace._arrays[name])
    with pytest.raises(ValueError, match="export it again"):
        what_if(trace, 0, {})


@pytest.mark.parametrize("change", [{"vocab_size": None}, {"stop_ids": 3}, {"eos_id": "x"}])
def test_a_model_that_a_trace_does_not_describe_is_refused(change):
    trace = recorded().snapshot()
    model = dict(trace.meta["model"]) | change
    trace.meta["model"] = {k: v for k, v in model.items() if v is not None}
    with pytest.raises(ValueError, match=r"^trace: meta\.model is incomplete"):
        what_if(trace, 0, {})


def test_a_run_that_is_impossible_says_why_and_keeps_its_form():
    knobs = {"dkv_cache.variant": "greedy", "quota.score": "random"}
    trace = recorded(cache="dkv_cache", knobs=knobs)
    assert_exact(trace)
    found = what_if(trace, 0, {"unmasker": "threshold"})
    assert found["refusal"].startswith("No run has these settings. dkv_cache.variant: greedy")
    assert found["rule"] == "threshold"
    assert (found["did"] > 0).any()
