"""Branches that do not fit their parent, or have none, are refused."""

import pytest

from engine.config.spec import BranchStart
from engine.generate.branch import branch_point
from engine.serve.loaded_model import make_job
from engine.trace.trace import Trace
from tests.support.branching import PROMPT, loaded, make, record
from tests.support.micro import MASK, VOCAB

REFUSALS = [
    ({"start": BranchStart("q", 0)}, "start.trace: 'q' is no longer held; run it again"),
    ({"start": BranchStart("p", 9)}, "start.step: 9 is outside 0 to 8.* nearest valid value is 8"),
    ({"model": "other"}, "model: 'other' .* choose 'tiny-llada'"),
    ({"gen_length": 32}, "gen_length: 32 .* set it to 16"),
    ({"fixed": ((3, 5),)}, "fixed: .* use start.edits"),
    ({"start": BranchStart("p", 1, ((0, MASK),))}, f"start.edits: token id {MASK} .* use -1"),
    ({"start": BranchStart("p", 1, ((0, VOCAB),))}, f"start.edits: token id {VOCAB}"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSALS)
def test_a_branch_that_does_not_fit_is_refused(changes, message):
    parent, start = record(make()), {"start": BranchStart("p", 1)}
    assert branch_point(make(**start), {"p": parent}, PROMPT) is not None
    with pytest.raises(ValueError, match=message):
        branch_point(make(**start | changes), {"p": parent}, PROMPT)


def test_another_prompt_is_refused():
    spec = make(start=BranchStart("p", 1))
    for prompt in (PROMPT[:-1], [*PROMPT[:-1], 3 + PROMPT[-1] % 30], [*PROMPT, 5]):
        with pytest.raises(ValueError, match="prompt: it is not that of the run"):
            branch_point(spec, {"p": record(make())}, prompt)


def test_a_trace_that_has_not_begun_is_refused():
    with pytest.raises(ValueError, match=r"start\.trace: 'p' has not begun"):
        branch_point(make(start=BranchStart("p", 0)), {"p": Trace()}, PROMPT)


def test_ids_that_the_model_lacks_are_refused():
    """A trace file from elsewhere may hold such ids."""
    parent, spec = record(make()), make(start=BranchStart("p", 3))
    parent.meta["model"] |= {"vocab_size": VOCAB + 9, "mask_id": VOCAB + 8}
    with pytest.raises(ValueError, match=r"start\.trace: its answer holds token ids"):
        record(spec, parent)


def test_a_job_without_its_parent_is_refused():
    with pytest.raises(ValueError, match="start: the trace to branch from is not available"):
        make_job(loaded(), make(start=BranchStart("p", 0)), [PROMPT])
