"""The store keeps its budget, the live_runs knows who runs what, answers are remembered."""

import json
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

from engine.trace.trace import Trace
from inspector.files.export import MOST_MEMORY
from inspector.run_store import (
    KnownProblems,
    LiveRuns,
    RaceRecord,
    RunControls,
    RunStore,
    memory_of,
    store_bytes,
)


class Flags:
    stopped = False

    @property
    def state(self):
        return "stopped" if self.stopped else "running"

    def stop(self):
        self.stopped = True


def full_record(traces):
    return RaceRecord(traces=dict(traces))


def test_the_least_recently_used_goes_first(traces):
    size = full_record(traces).nbytes()
    store = RunStore(budget=3 * size)
    records = [full_record(traces) for _ in range(3)]
    for record in records:
        store.put(record)
    assert store.get(records[0].run_id) is records[0]
    store.put(full_record(traces))
    assert len(store) == 3
    assert store.get(records[1].run_id) is None
    assert store.get(records[0].run_id) is records[0]


def sized(size):
    record = RaceRecord()
    record.nbytes = lambda: size
    return record


def test_large_records_do_not_displace_small_ones():
    store = RunStore(budget=100)
    small, large = [sized(5) for _ in range(6)], [sized(40) for _ in range(5)]
    for record in [*small, *large]:
        store.put(record)
    assert [store.get(record.run_id) for record in small] == small
    assert [store.get(record.run_id) for record in large] == [None] * 4 + large[-1:]


def test_beside_a_large_newest_record_the_least_recently_used_of_the_small_go():
    store, small, newest = RunStore(budget=100), [sized(4) for _ in range(20)], sized(60)
    for record in [*small, newest]:
        store.put(record)
    assert [store.get(record.run_id) for record in small] == [None] * 10 + small[10:]
    assert store.get(newest.run_id) is newest


def test_the_newest_stays_even_over_budget(traces):
    store = RunStore(budget=1)
    record = full_record(traces)
    store.put(record)
    assert store.get(record.run_id) is record


def test_what_nobody_uses_for_its_life_is_dropped(traces):
    now = [0.0]
    store = RunStore(lifetime=10, clock=lambda: now[0])
    used, forgotten, pinned = (full_record(traces) for _ in range(3))
    store.pin(pinned)
    store.put(used)
    store.put(forgotten)
    now[0] = 6.0
    assert store.get(used.run_id) is used
    now[0] = 12.0
    assert store.get(forgotten.run_id) is None
    assert store.get(used.run_id) is used
    assert store.get(pinned.run_id) is pinned
    assert len(store) == 1


def test_what_is_pinned_can_be_dropped_by_nobody(traces):
    store, record = RunStore(budget=1), full_record(traces)
    store.pin(record)
    store.put(full_record(traces))
    store.drop(record.run_id)
    assert store.get(record.run_id) is record


def test_run_ids_cannot_be_guessed():
    ids = {RaceRecord().run_id for _ in range(1000)}
    assert len(ids) == 1000
    assert min(map(len, ids)) >= 24


def test_a_second_run_stops_the_first():
    live_runs, first, second = LiveRuns(), Flags(), Flags()
    live_runs.begin("me", "run-1", first)
    live_runs.begin("me", "run-2", second)
    assert first.stopped
    assert not second.stopped
    assert live_runs.end("me", "run-1", first)
    assert live_runs.control("me") is second
    assert live_runs.end("me", "run-2", second)
    assert live_runs.control("me") is None
    assert live_runs.last("me") == "run-2"


def test_the_end_of_a_part_does_not_end_the_next_part_of_the_same_run():
    live_runs, first, second = LiveRuns(), Flags(), Flags()
    live_runs.begin("me", "batch", first)
    live_runs.begin("me", "batch", second)
    live_runs.end("me", "batch", first)
    assert live_runs.control("me") is second


def test_every_run_can_be_stopped():
    controls = RunControls(Flags)
    made = [controls.new() for _ in range(3)]
    controls.stop()
    assert [one.stopped for one in made] == [True] * 3
    assert not controls.new().stopped


def test_leaving_stops_the_run_of_that_visitor_only():
    live_runs, mine, yours = LiveRuns(), Flags(), Flags()
    live_runs.begin("me", "run-1", mine)
    live_runs.begin("you", "run-2", yours)
    live_runs.leave("me")
    assert mine.stopped
    assert not yours.stopped
    assert live_runs.last("me") is None
    assert live_runs.last("you") == "run-2"
    assert not live_runs.end("me", "run-1", mine)
    assert live_runs.end("you", "run-2", yours)


def test_the_shelf_survives_many_threads(traces):
    store = RunStore(budget=5 * full_record(traces).nbytes())

    def work(_):
        record = full_record(traces)
        store.put(record)
        return store.get(record.run_id) is not None

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(200)))
    assert len(store) <= 5


def test_a_snapshot_does_not_change_with_the_race(traces):
    record = RaceRecord(expected="12", traces=dict(traces))
    kept, steps = record.snapshot(), traces["b"].steps
    record.state, record.recorded["a"] = "done", traces["a"]
    assert (kept.run_id, kept.state, kept.recorded) == (record.run_id, "running", {})
    assert kept.traces["b"].steps == steps
    assert kept.lock is not record.lock


def test_a_copy_says_where_the_race_comes_from(traces):
    own = {"parent": "p", "origin": "seed=1", "branches": ("a.3",), "bundled": "dual"}
    made = RaceRecord(traces=dict(traces), **own)
    copied = made.copy()
    assert copied.run_id != made.run_id
    assert {name: getattr(copied, name) for name in own} == own


def test_known_problems():
    def problem(prompt, answer):
        return {"prompt": prompt, "answer": answer, "answer_tokens": 9}

    known = KnownProblems()
    known.learn(problem(" 1 + 1? ", "2"))
    assert known.expected("1 + 1?") == "2"
    assert known.get("1 + 1?").answer_tokens == 9
    assert known.expected("open question") is None
    for i in range(3000):
        known.learn(problem(f"problem {i}", str(i)))
    assert known.expected("1 + 1?") is None
    assert known.expected("problem 2999") == "2999"


def test_the_budget_holds_several_large_imports_of_a_public_page_and_two_traces_of_any():
    assert store_bytes(64_000_000) >= 3 * MOST_MEMORY * 64_000_000
    assert store_bytes(1_600_000_000) == 3_200_000_000


def test_the_size_of_a_race_includes_its_meta_and_its_token_bytes(traces):
    small, lists = full_record(traces), 10_000
    large = Trace.from_bytes(traces["a"].to_bytes())
    large.meta["extra"] = [[] for _ in range(lists)]
    large._pieces |= {i: b"" for i in range(10**6, 10**6 + lists)}
    record = full_record(traces | {"a": large})
    grown = record.nbytes() - small.nbytes()
    assert 160 * lists < grown < 260 * lists
    assert small.nbytes() < 1_000_000


def test_the_memory_of_a_document_is_that_which_python_takes():
    text = "[" + ",".join(['{"":' * 50 + "[]" + "}" * 50] * 500) + "]"
    tracemalloc.start()
    document = json.loads(text)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken <= memory_of(document) < 1.5 * taken
