"""GrowingArray, and the memory that a trace needs while it grows."""

import pickle

import numpy as np

from engine.trace.growing import GrowingArray
from engine.trace.synthetic import synthetic_events, synthetic_spec
from engine.trace.trace import Trace
from tests.engine.trace.test_trace import peak_of


def test_rows_are_those_appended_also_beyond_the_capacity():
    random, array, parts = np.random.default_rng(0), GrowingArray("uint8", 4), []
    for n in (0, 3, 1, 5, 0, 9, 40):
        parts.append(random.integers(0, 256, (n, 2, 3), np.uint8))
        array.append(parts[-1])
        assert np.array_equal(array.rows, np.concatenate(parts))
        assert len(array) == sum(map(len, parts))


def test_rows_that_were_read_do_not_change():
    array = GrowingArray("int32", 2)
    array.append(np.arange(2))
    before = array.rows
    array.append(np.arange(5, 9))
    assert before.tolist() == [0, 1]
    assert array.rows.dtype == np.int32


def test_within_the_capacity_rows_are_not_moved():
    array = GrowingArray("int32", 100)
    array.append(np.arange(50))
    before = array.rows
    array.append(np.arange(50))
    assert np.shares_memory(before, array.rows)
    array.append(np.arange(1))
    assert not np.shares_memory(before, array.rows)


def test_reserved_memory_is_not_pickled():
    array = GrowingArray("uint8", 1_000_000)
    array.append(np.ones((3, 7)))
    data = pickle.dumps(array)
    assert len(data) < 2_000
    again = pickle.loads(data)
    again.append(np.zeros((1, 7)))
    assert again.rows.sum(1).tolist() == [7, 7, 7, 0]


def test_a_growing_trace_holds_its_arrays_once():
    events = list(synthetic_events(synthetic_spec(64), 8, 2_800))
    trace = Trace()

    def grow():
        for event in events:
            trace.append(event)
            assert len(trace.arrays()["rows"]) == trace.steps

    peak = peak_of(grow)
    held = sum(array.nbytes for array in trace.arrays().values())
    joined = peak_of(lambda: [np.concatenate([e.recording.drift for e in events[1:-1]])])
    assert held > 8_000_000
    assert peak < 1.2 * held
    assert joined > 0.8 * held  # a copy would be seen
