"""The number of threads is measured, and the setting in force is left as it was."""

import torch

from engine import threads


def test_more_threads_are_taken_only_where_they_pay(monkeypatch):
    monkeypatch.setattr(threads, "_time", {1: 1.0, 2: 0.95, 4: 0.5}.get)
    assert threads.best_threads(4) == 4
    monkeypatch.setattr(threads, "_time", {1: 1.0, 2: 0.95, 4: 2.0}.get)
    assert threads.best_threads(4) == 1


def test_the_setting_is_left_as_it_was():
    before = torch.get_num_threads()
    assert 1 <= threads.best_threads(1) <= 1
    assert torch.get_num_threads() == before
