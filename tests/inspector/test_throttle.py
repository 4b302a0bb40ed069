"""Coalescing loses nothing, keeps to its rate and ends with the last item."""

import pytest

from inspector.server.throttle import coalesce


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def ticking(self, count, interval):
        for i in range(count):
            self.now += interval
            yield i


@pytest.mark.parametrize("interval", [0.001, 0.01, 0.3])
def test_nothing_is_lost_and_the_rate_is_kept(interval):
    clock = Clock()
    batches = list(coalesce(clock.ticking(400, interval), 8, clock))
    assert [i for batch in batches for i in batch] == list(range(400))
    assert len(batches) <= 400 * interval * 8 + 2
    assert batches[-1][-1] == 399


def test_slow_items_come_one_by_one():
    clock = Clock()
    assert [len(b) for b in coalesce(clock.ticking(5, 1.0), 8, clock)] == [1] * 5


def test_a_slow_reader_still_gets_every_item():
    clock = Clock()
    seen = []
    for batch in coalesce(clock.ticking(50, 0.02), 8, clock):
        clock.now += 0.5
        seen += batch
    assert seen == list(range(50))


def test_empty_stream():
    assert list(coalesce([], 8)) == []


def test_an_item_that_goes_out_at_once_ends_its_batch():
    clock = iter(range(100))
    batches = coalesce("abCdE", 1e-9, lambda: next(clock), at_once=str.isupper)
    assert ["".join(batch) for batch in batches] == ["a", "bC", "dE"]
