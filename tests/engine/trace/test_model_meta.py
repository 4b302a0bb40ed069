"""What a trace file says of its model has the types with which a what-if computes."""

import pytest

from engine.generate.what_if import what_if
from engine.trace.trace import Trace
from tests.engine.generate.test_what_if import recorded
from tests.engine.trace.test_hostile_traces import refused, rewritten

WRONG = [{"d_model": "64"}, {"n_heads": 1.5}, {"logit_shift": None}, {"block_sizes": 4}]


@pytest.mark.parametrize("change", WRONG)
def test_a_number_of_the_model_of_another_type_is_refused(change):
    trace = recorded()
    data = rewritten(trace, {}, model=trace.meta["model"] | change)
    refused(data, "trace: meta.model should have whole numbers .*, a list block_sizes")


@pytest.mark.parametrize("left_out", ["d_model", "n_heads", "logit_shift", "block_sizes"])
def test_a_number_that_an_older_file_lacks_is_not_needed(left_out):
    trace = recorded()
    model = {name: value for name, value in trace.meta["model"].items() if name != left_out}
    read = Trace.from_bytes(rewritten(trace, {}, model=model))
    assert what_if(read, 0, {})["own"]
