"""BranchStart: plain data, and refusals that name the field."""

import json

import pytest

from engine.config.spec import BranchStart, RunSpec

GO = {"trace": "t", "step": 0}


def test_the_start_of_a_branch_is_plain_data():
    spec = RunSpec(start={"trace": "t", "step": 3, "edits": [[9, 1], [2, -1]]})
    assert spec.start == BranchStart("t", 3, ((2, -1), (9, 1)))
    plain = json.loads(json.dumps(spec.to_dict()))["start"]
    assert plain == {"trace": "t", "step": 3, "edits": [[2, -1], [9, 1]]}
    assert RunSpec().to_dict()["start"] is None
    assert RunSpec.from_dict({"start": GO}).start == BranchStart("t", 0)
    assert hash(spec) == hash(RunSpec.from_dict(spec.to_dict()))


REFUSALS = [
    ({"start": 3}, "start: expected a mapping of trace, step and edits"),
    ({"start": {"trace": "t"}}, "start: expected a mapping"),
    ({"start": GO | {"speed": 1}}, "start.speed: unknown field"),
    ({"start": GO | {"trace": 3}}, "start.trace: expected the id"),
    ({"start": GO | {"trace": ""}}, "start.trace: expected the id"),
    ({"start": GO | {"trace": "a/b"}}, "start.trace: expected the id"),
    ({"start": GO | {"trace": "a\n"}}, "start.trace: expected the id"),
    ({"start": GO | {"trace": "a" * 65}}, "start.trace: expected the id"),
    ({"start": GO | {"step": -1}}, "start.step: expected a whole number from 0"),
    ({"start": GO | {"step": True}}, "start.step: expected a whole number"),
    ({"start": GO | {"step": 2**31}}, "start.step: expected a whole number"),
    ({"start": GO | {"edits": 5}}, "start.edits: expected pairs"),
    ({"start": BranchStart("t", 0, 5)}, "start.edits: expected pairs"),
    ({"start": GO | {"edits": [[128, 1]]}}, "start.edits: .* offset from 0 to 127"),
    ({"start": GO | {"edits": [[-1, 1]]}}, "start.edits: .* offset from 0 to 127"),
    ({"start": GO | {"edits": [[0, -2]]}}, "start.edits: .* or -1 to mask it again"),
    ({"start": GO | {"edits": [[0, True]]}}, "start.edits"),
    ({"start": GO | {"edits": [[0, 1], [0, -1]]}}, "start.edits: an offset occurs twice"),
    (
        {"start": GO | {"edits": [[2, 1]]}, "fixed": [[2, 1]]},
        "start.edits: offset 2 is given by fixed",
    ),
]


@pytest.mark.parametrize(("data", "message"), REFUSALS)
def test_refusals_name_the_field_and_its_valid_values(data, message):
    with pytest.raises(ValueError, match=message):
        RunSpec.from_dict(data)
