"""Control: pause, step, resume and stop, as a run sees them."""

import signal
import threading
import time

import pytest

from engine.core.control import Control, interrupted_later, stopped_by_interrupt


def test_a_fresh_control_lets_every_step_pass():
    control = Control()
    assert control.state == "running"
    assert all(control.take_turn() for _ in range(3))


def test_a_pause_holds_until_it_is_resumed():
    control = Control()
    control.pause()
    assert not control.take_turn()
    control.resume()
    assert control.take_turn()


def test_each_step_grants_one_turn():
    control = Control()
    control.step()
    control.step()
    assert [control.take_turn() for _ in range(3)] == [True, True, False]
    assert control.state == "paused"


def test_stopping_is_final():
    control = Control()
    control.stop()
    for change in (control.resume, control.pause, control.step):
        change()
        assert control.state == "stopped"
        assert not control.take_turn()


def test_waiting_times_out():
    control = Control()
    control.pause()
    began = time.perf_counter()
    assert not control.take_turn(0.05)
    assert 0.04 < time.perf_counter() - began < 2


def test_a_waiting_run_wakes_at_once():
    for wake, outcome in (("resume", True), ("step", True), ("stop", False)):
        control, seen = Control(), []
        control.pause()
        waiter = threading.Thread(target=lambda c=control, s=seen: s.append(c.take_turn(30)))
        waiter.start()
        getattr(control, wake)()
        waiter.join(10)
        assert seen == [outcome]


def test_steps_that_are_left_when_a_run_is_resumed_do_not_outlast_the_next_pause():
    control = Control()
    control.pause()
    control.step()
    control.step()
    assert control.take_turn()
    control.resume()
    assert control.take_turn()
    control.pause()
    assert not control.take_turn()


def test_a_second_interrupt_ends_the_process_as_usual():
    before, control = signal.signal(signal.SIGINT, signal.default_int_handler), Control()
    try:
        with stopped_by_interrupt(control):
            signal.raise_signal(signal.SIGINT)
            assert control.state == "stopped"
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def interruptible():
    """Control-C raises KeyboardInterrupt, as in a command."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_files_that_belong_together_are_all_written_before_an_interrupt(interruptible, tmp_path):
    def write():
        with interrupted_later():
            (tmp_path / "a").write_text("new")
            signal.raise_signal(signal.SIGINT)
            (tmp_path / "b").write_text("new")

    with pytest.raises(KeyboardInterrupt):
        write()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a", "b"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_an_interrupt_nothing_is_raised_later(interruptible):
    with interrupted_later():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_is_told_and_not_the_interrupt_before_it(interruptible):
    def write():
        with interrupted_later():
            signal.raise_signal(signal.SIGINT)
            raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
