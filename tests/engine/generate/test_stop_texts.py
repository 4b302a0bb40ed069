"""Stop texts and ends of text that stand on the canvas before the first step."""

import numpy as np
import pytest

from engine.config.branch_start import BranchStart
from engine.config.spec import RunSpec
from engine.core.files import ASSETS
from engine.models.loading.families import embedded_models
from engine.serve.session import Session
from tests.support.traces import trace_of

PROMPT = "Max has 3 keys. He finds 9 more. How many keys does he have?"
END, MASK = 1, 2  # the model's end of text and mask
RANDOM = {"quota.score": "random"}  # also positions behind a stop
FIELDS = {"prompt": PROMPT, "gen_length": 32, "block_length": 32, "steps": 32, "knobs": RANDOM}


@pytest.fixture(scope="module")
def session():
    return Session({"tiny-llada": embedded_models(ASSETS)["tiny-llada"]})


def traced(session, parents=None, **changes):
    return trace_of(session.run(RunSpec(**FIELDS | changes), parents=parents))


@pytest.fixture(scope="module")
def whole(session):
    """A run without stops; tests must not change it."""
    return traced(session)


def test_a_branch_of_a_run_with_a_stop_text_ends_where_the_run_does(session):
    parent = traced(session, stop=(".",))
    mask, last = parent.meta["model"]["mask_id"], parent.canvas_at(parent.steps)
    first = next(
        step
        for step in range(parent.steps)
        if b"." in [parent.pieces.get(token) for token in parent.canvas_at(step)[-32:].tolist()]
    )
    assert (last == mask).any()
    for step in range(first, parent.steps):
        start = BranchStart("parent", step)
        branch = traced(session, {"parent": parent}, stop=(".",), start=start)
        assert branch.steps == parent.steps - step
        assert ((branch.canvas_at(branch.steps) == mask) == (last == mask)).all()


def test_a_given_stop_text_ends_the_answer(session, whole):
    tokens = whole.canvas_at(whole.steps)[-32:].tolist()
    place = next(i for i in range(32) if whole.pieces[tokens[i]] == b".")
    for seed in range(4):
        given = traced(session, stop=(".",), fixed=((place, tokens[place]),), seed=seed)
        arrays = given.arrays()
        positions = arrays["commit_position"] - len(arrays["canvas"]) + 32
        assert 0 < len(positions) <= place
        assert positions.max() < place


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("rule", ["official", "fill_eager"])
def test_a_given_end_of_text_ends_the_answer_as_its_rule_says(session, rule, place):
    given = traced(session, eos=rule, fixed=((place, END),))
    arrays = given.arrays()
    positions = arrays["commit_position"] - len(arrays["canvas"]) + 32
    proposed = ~np.isnan(arrays["commit_confidence"])
    assert bool((positions[proposed] > place).any()) == (rule == "official")
    assert given.steps == (32 - 1 if rule == "official" else place)
    assert proposed.all()
    answer = given.canvas_at(0)[-32:]
    assert (answer[place + 1 :] == (END if rule == "fill_eager" else MASK)).all()
    assert given.arrays()["fixed_mask"].sum() == 1


def test_fill_safe_waits_until_no_position_before_a_given_end_is_masked(session, whole):
    tokens = whole.canvas_at(32)[-32:].tolist()
    known = tuple((offset, tokens[offset]) for offset in range(3))
    open_before = traced(session, eos="fill_safe", fixed=(*known, (9, END)))
    ended = traced(session, eos="fill_safe", fixed=(*known, (3, END)))
    assert open_before.steps >= 6
    assert ended.steps == 0
