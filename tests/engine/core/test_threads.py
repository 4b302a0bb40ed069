"""The number of threads is measured, and the current setting is restored."""

import os

import pytest
import torch

from engine.core import threads


def test_more_threads_are_chosen_only_if_faster(monkeypatch):
    for last, best in ((0.5, 4), (2.0, 1)):
        times = {1: 1.0, 2: 0.95, 4: last}
        monkeypatch.setattr(threads, "_time", lambda n, _, times=times: times[n])
        assert threads.best_threads(4) == best


def test_powers_of_two_and_all_cores_are_tried():
    assert [threads.thread_counts(cores) for cores in (1, 2, 6, 8)] == [
        [1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8],
    ]  # fmt: skip


def test_the_given_work_is_measured():
    counted = []
    threads.best_threads(1, [lambda: counted.append(torch.get_num_threads())])
    assert set(counted) == {1}
    assert len(counted) == threads.REPEATS


def test_small_works_count_as_much_as_large_ones(monkeypatch):
    seconds = {"now": 0.0}
    monkeypatch.setattr(threads.time, "perf_counter", lambda: seconds["now"])

    def work(one, four):
        def run():
            seconds["now"] += {1: one, 2: one, 4: four}[torch.get_num_threads()]

        return run

    large = work(100.0, 60.0)
    assert threads.best_threads(4, [large]) == 4
    assert threads.best_threads(4, [large, work(1.0, 3.0)]) == 1


def test_the_setting_is_restored():
    before = torch.get_num_threads()
    assert 1 <= threads.best_threads(1) <= 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("quota", "cores"), [
    ("max 100000", 8), ("200000 100000", 2), ("50000 100000", 1), ("150000 100000", 2),
    ("1600000 100000", 8), ("nothing", 8), ("1 0", 8), (None, 8),
])  # fmt: skip
def test_cores_are_those_of_the_process_within_its_quota(monkeypatch, tmp_path, quota, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    path = tmp_path / "cpu.max"
    if quota is not None:
        path.write_text(quota)
    assert threads.usable_cores(path) == cores


@pytest.mark.parametrize(("given", "cores"), [
    ("1", 1), ("2", 2), ("16", 8), ("0", 8), ("-1", 8), ("4,2", 8), ("many", 8), ("", 8),
])  # fmt: skip
def test_cores_are_at_most_the_threads_that_the_environment_allows(
    monkeypatch, tmp_path, given, cores
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert threads.usable_cores(tmp_path / "no quota") == cores


def test_a_pinned_process_measures_no_more_threads_than_its_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    tried = []
    monkeypatch.setattr(threads, "_time", lambda n, _: tried.append(n) or 1.0)
    assert threads.best_threads() == 1
    assert tried == [1]
