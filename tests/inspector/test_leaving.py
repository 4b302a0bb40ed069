"""What is left of visitors who have gone: nothing."""

import json

from tests.inspector.conftest import small_race


def test_twenty_visitors_leave_nothing_behind(handlers, session, form, request_of):
    values = list(form.values(small_race(session, gen_length=16, block_length=16, steps=16)))
    staying = list(handlers.run(request_of("staying"), *values))
    held = len(handlers.shelf)
    for i in range(20):
        who = request_of(f"visitor {i}")
        for _ in handlers.run(who, *values):
            pass
        assert len(handlers.shelf) == held + 1
        handlers.leave(who)
        assert len(handlers.shelf) == held
    run_id = json.loads(staying[-1][0])["run"]
    assert json.loads(handlers.replay(run_id))["state"] == "done"
    assert handlers.desk.last("visitor 3") is None
