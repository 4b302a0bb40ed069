"""The shelf keeps its budget, the desk knows who runs what, answers are remembered."""

from concurrent.futures import ThreadPoolExecutor

from inspector.shelf import Answers, Desk, Record, Shelf


class Flags:
    stopped = False

    def stop(self):
        self.stopped = True


def full_record(traces):
    return Record(traces=dict(traces))


def test_the_least_recently_used_goes_first(traces):
    size = full_record(traces).nbytes()
    shelf = Shelf(budget=3 * size)
    records = [full_record(traces) for _ in range(3)]
    for record in records:
        shelf.put(record)
    assert shelf.get(records[0].run_id) is records[0]
    shelf.put(full_record(traces))
    assert len(shelf) == 3
    assert shelf.get(records[1].run_id) is None
    assert shelf.get(records[0].run_id) is records[0]


def test_the_newest_stays_even_over_budget(traces):
    shelf = Shelf(budget=1)
    record = full_record(traces)
    shelf.put(record)
    assert shelf.get(record.run_id) is record


def test_what_nobody_uses_for_its_life_is_dropped(traces):
    now = [0.0]
    shelf = Shelf(life=10, clock=lambda: now[0])
    used, forgotten, pinned = (full_record(traces) for _ in range(3))
    shelf.pin(pinned)
    shelf.put(used)
    shelf.put(forgotten)
    now[0] = 6.0
    assert shelf.get(used.run_id) is used
    now[0] = 12.0
    assert shelf.get(forgotten.run_id) is None
    assert shelf.get(used.run_id) is used
    assert shelf.get(pinned.run_id) is pinned
    assert len(shelf) == 1


def test_what_is_pinned_can_be_dropped_by_nobody(traces):
    shelf, record = Shelf(budget=1), full_record(traces)
    shelf.pin(record)
    shelf.put(full_record(traces))
    shelf.drop(record.run_id)
    assert shelf.get(record.run_id) is record


def test_run_ids_cannot_be_guessed():
    ids = {Record().run_id for _ in range(1000)}
    assert len(ids) == 1000
    assert min(map(len, ids)) >= 24


def test_a_second_run_stops_the_first():
    desk, first, second = Desk(), Flags(), Flags()
    desk.begin("me", "run-1", first)
    desk.begin("me", "run-2", second)
    assert first.stopped
    assert not second.stopped
    assert desk.end("me", "run-1")
    assert desk.control("me") is second
    assert desk.end("me", "run-2")
    assert desk.control("me") is None
    assert desk.last("me") == "run-2"


def test_leaving_stops_the_run_of_that_visitor_only():
    desk, mine, yours = Desk(), Flags(), Flags()
    desk.begin("me", "run-1", mine)
    desk.begin("you", "run-2", yours)
    desk.leave("me")
    assert mine.stopped
    assert not yours.stopped
    assert desk.last("me") is None
    assert desk.last("you") == "run-2"
    assert not desk.end("me", "run-1")
    assert desk.end("you", "run-2")


def test_the_shelf_survives_many_threads(traces):
    shelf = Shelf(budget=5 * full_record(traces).nbytes())

    def work(_):
        record = full_record(traces)
        shelf.put(record)
        return shelf.get(record.run_id) is not None

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(200)))
    assert len(shelf) <= 5


def test_answers():
    answers = Answers()
    answers.learn(" 1 + 1? ", 2)
    answers.learn("open question", None)
    assert answers.expected("1 + 1?") == 2
    assert answers.expected("open question") is None
    for i in range(3000):
        answers.learn(f"problem {i}", i)
    assert answers.expected("1 + 1?") is None
    assert answers.expected("problem 2999") == 2999
