"""Branches: what continues from the parent's step, and what starts again."""

from dataclasses import fields

import numpy as np
import pytest

from engine.catalog import make_unmasker, policies, unmaskers
from engine.config.plan import derive
from engine.config.spec import BranchStart, RaceSpec, RunSpec
from engine.core.events import KINDS, RunStarted, StepEvent
from engine.serve.session import Session
from engine.trace.trace import Trace
from tests.engine.serve.test_race import BASE
from tests.support.branching import RANDOM, WIDTH, branch, make, record, tail
from tests.support.micro import EOS, MASK, block_model_of, full_policies
from tests.support.traces import trace_of

FULL = KINDS.index("full")
CACHES = [*full_policies(), "dual+dare_kv", "freecache+dare_o"]


@pytest.mark.parametrize(
    ("unmasker", "steps", "every"),
    [
        (name, *one)
        for name, rule in unmaskers().items()
        for one in ([(8, 3), (6, 1)] if rule.scheduled else [(6, 3)])  # the others spend no steps
    ],
)
def test_a_branch_without_edits_repeats_its_parent(unmasker, steps, every):
    parent = record(make(unmasker=unmasker, steps=steps))
    assert parent.steps > 3
    for step in range(0, parent.steps + 1, every):
        assert tail(branch(parent, step)) == tail(parent, step)
    assert tail(branch(parent, 1)) != tail(parent, 2)


OTHERS = [
    {"cfg_scale": 1.0},
    {"knobs": {"quota.score": "margin"}},
    {"fixed": ((2, 5), (9, 6), (10, 7))},
    {"eos": "fill_eager", "fixed": ((6, EOS), (12, EOS)), "steps": 6},
    {"eos_suppress": "confidence", "steps": 12},
    {"stop": ("33 34",), "fixed": ((4, 33), (5, 34)), "unmasker": "sequential"},
    {"unmasker": "threshold", "cfg_scale": 2.0, "fixed": ((3, 5),)},
]


@pytest.mark.parametrize("family", ["gqa", "shifted-mha"])
@pytest.mark.parametrize("changes", OTHERS)
def test_a_branch_repeats_its_parent_under_other_settings(changes, family):
    """In every third step: of a plain run, the test above begins a branch in every step."""
    parent = record(make(**changes), family=family)
    for step in range(0, parent.steps, 3):
        assert tail(branch(parent, step, family=family)) == tail(parent, step)


@pytest.mark.parametrize("fixed", [((0, EOS),), ((4, EOS), (7, 5)), ((0, 5), (1, EOS))])
def test_a_branch_of_a_block_model_repeats_a_parent_with_a_given_end(fixed):
    model = block_model_of("mha", stop_ids=(EOS,))
    parent = record(make(block_length=4, fixed=fixed), family=model)
    for step in range(parent.steps):
        assert tail(branch(parent, step, family=model)) == tail(parent, step)


def exact_knobs(name):
    policy = policies()[name].exact()
    return {f"{name}.{f.name}": getattr(policy, f.name) for f in fields(policy)}


@pytest.mark.parametrize("name", [n for n, c in full_policies().items() if c.exact() is not None])
def test_a_branch_repeats_its_parent_with_a_cache_at_exact_settings(name):
    spec = make(cache=name, knobs=exact_knobs(name))
    parent = record(spec)
    for step in (0, 3, 4, 6):
        assert tail(branch(parent, step)) == tail(parent, step)
    assert tail(parent) == tail(record(make()))


@pytest.mark.parametrize("unmasker", ["quota", "threshold"])
def test_an_edit_changes_the_later_steps(unmasker):
    parent = record(make(unmasker=unmasker, steps=16))
    place = int(parent.arrays()["commit_position"][0]) - WIDTH
    token = int(parent.arrays()["commit_id"][0])
    same, other = (branch(parent, 3, (place, t)) for t in (token, (token + 1) % MASK))
    assert tail(same) == tail(parent, 3)
    assert tail(other) != tail(parent, 3)
    assert other.canvas_at(other.steps)[WIDTH + place] == (token + 1) % MASK


def test_the_parent_is_not_changed():
    parent = record(make())
    before = {name: array.copy() for name, array in parent.arrays().items()}
    meta = dict(parent.meta)
    branch(parent, 3, (0, 7), (9, 8))
    assert parent.meta == meta
    assert all(np.array_equal(before[name], a) for name, a in parent.arrays().items())


@pytest.mark.parametrize("cache", CACHES)
def test_the_first_step_of_a_branch_computes_every_row(cache):
    parent = record(make(cache=cache))
    kinds = set()
    for step in range(0, parent.steps, 2):
        arrays = branch(parent, step, most=3).arrays()
        assert (arrays["kind"][0], arrays["rows"][0]) == (FULL, WIDTH + 16)
        assert arrays["recomputed"][0] == 1
        kinds |= set(arrays["kind"][1:].tolist())
    assert (kinds == {FULL}) == (cache == "none")


def test_the_first_step_computes_every_row_with_a_known_order_too():
    knobs = RANDOM | {"dkv_cache.variant": "greedy", "dkv_cache.reload_interval": 99}
    parent = record(make(cache="dkv_cache", knobs=knobs))
    for step in range(1, parent.steps):
        kinds = branch(parent, step).arrays()["kind"]
        assert kinds[0] == FULL
    assert FULL not in parent.arrays()["kind"][1:4]


def test_known_tokens_are_neither_masked_nor_fixed():
    parent = record(make())
    trace = branch(parent, 3)
    arrays = trace.arrays()
    assert np.array_equal(arrays["canvas"], parent.canvas_at(3))
    assert not arrays["fixed_mask"].any()
    assert np.array_equal(arrays["prompt_mask"], parent.arrays()["prompt_mask"])
    assert (arrays["canvas"] == MASK).sum() == 10 == len(arrays["commit_position"])
    assert set(arrays["canvas"].tolist()) <= set(trace.pieces)
    assert trace.meta["spec"]["start"] == {"trace": "p", "step": 3, "edits": []}


def test_metrics_count_only_the_tokens_of_the_branch():
    parent = record(make(eos_suppress="logits"))
    whole, part = parent.meta["metrics"], branch(parent, 3).meta["metrics"]
    before = parent.canvas_at(3)[WIDTH:]
    kept = np.arange(16) < whole["tokens"]
    assert part["tokens"] == int((before[kept] == MASK).sum()) < whole["tokens"]
    assert part["positions"] == 10


def test_a_branch_at_the_end_takes_no_step():
    parent = record(make())
    trace = branch(parent, parent.steps)
    assert (trace.steps, trace.meta["reason"]) == (0, "done")
    assert trace.meta["texts"] == parent.meta["texts"]
    again = Trace.from_bytes(trace.to_bytes())
    assert np.array_equal(again.canvas_at(0), parent.canvas_at(parent.steps))


@pytest.mark.parametrize("changes", [{"steps": 6}, {"block_length": 16, "steps": 5}])
def test_a_stopped_run_can_be_a_parent(changes):
    whole, cut = record(make(**changes)), record(make(**changes), most=2)
    for step in range(3):
        assert tail(branch(cut, step)) == tail(whole, step)


def test_remasked_tokens_are_decoded_first_and_blocks_in_order():
    parent = record(make())
    trace = branch(parent, 6, (1, -1), (4, -1), (12, -1))
    blocks = [block for block, _ in tail(trace)]
    assert blocks == sorted(blocks)
    assert tail(trace)[0][0] == 0
    assert {p - WIDTH for p, _ in tail(trace)[0][1]} == {1, 4}
    assert MASK not in trace.canvas_at(trace.steps)
    assert len(trace.arrays()["commit_position"]) == 6 + (parent.canvas_at(6)[WIDTH + 12] != MASK)


def cases(seed, count=40):
    """Random steps, edits and settings."""
    draw = np.random.default_rng(seed)
    for _ in range(count):
        offsets = draw.permutation(16)[: draw.integers(0, 6)].tolist()
        edits = [(o, int(t)) for o, t in zip(offsets, draw.integers(-1, 5, 16), strict=False)]
        edits = [(o, t if draw.random() < 0.5 else -1) for o, t in edits]
        changes = {
            "unmasker": str(draw.choice(["quota", "threshold", "certainty"])),
            "eos": str(draw.choice(["official", "fill_safe", "fill_eager"])),
            "steps": int(draw.choice([4, 8, 12, 16])),
            "block_length": int(draw.choice([4, 8])),
        }
        yield float(draw.random()), edits, changes


@pytest.mark.parametrize("unmasker", ["quota", "threshold"])
def test_the_plan_of_a_branch_bounds_its_forwards(unmasker):
    parent = record(make(unmasker=unmasker))
    spread = set()
    for share, edits, changes in cases(3):
        trace = branch(parent, int(share * (parent.steps + 1)), *edits, **changes)
        spec = RunSpec.from_dict(trace.meta["spec"])
        plan = derive(spec, make_unmasker(spec).scheduled)
        assert plan.min_forwards <= trace.steps <= plan.max_forwards
        assert (trace.arrays()["masks_left"][-1:] == 0).all()
        spread.add(plan.min_forwards)
    assert len(spread) > 2


@pytest.fixture(scope="module")
def shared(checkpoint):
    return Session({"micro": checkpoint})


@pytest.fixture(scope="module")
def finished(shared):
    return trace_of(shared.run(RunSpec(**BASE)))


def test_a_session_branches_from_the_traces_it_is_given(shared, finished):
    spec = RunSpec(**BASE, start=BranchStart("held.a", 5))
    events = list(shared.run(spec, parents={"held.a": finished}))
    assert tail(trace_of(events)) == tail(finished, 5)
    assert events[-1].texts == tuple(finished.meta["texts"])
    start = next(e for e in events if isinstance(e, RunStarted))
    assert np.array_equal(start.canvas[0], finished.canvas_at(5))


def test_each_lane_of_a_race_has_its_own_branch(shared, finished):
    edited = RunSpec(**BASE, start=BranchStart("x", 5, ((15, 40),)))
    race = RaceSpec(RunSpec(**BASE, start=BranchStart("x", 9)), edited)
    events = list(shared.race(race, parents={"x": finished}))
    lanes = {lane: [e for name, e in events if name == lane] for lane in "ab"}
    assert tail(trace_of(lanes["a"])) == tail(finished, 9)
    assert lanes["b"][-1].canvas[0, -1] == 40
    assert sum(isinstance(e, StepEvent) for e in lanes["b"]) == 10


def test_a_session_refuses_a_parent_that_it_is_not_given(shared):
    spec = RunSpec(**BASE, start=BranchStart("gone", 5))
    with pytest.raises(ValueError, match=r"start\.trace: 'gone' is no longer held; run it again"):
        next(shared.run(spec))
    with pytest.raises(ValueError, match=r"start\.trace: 'gone'"):
        next(shared.race(RaceSpec(RunSpec(**BASE), spec), parents={}))
