"""What the API of many prompts keeps of a call after its end."""

from types import SimpleNamespace

from engine.batch.service import BatchService
from inspector.handlers.tasks.batch_api import BatchEndpoints
from inspector.run_store import RunControls


def test_a_call_leaves_no_control(session, request_of):
    handlers = SimpleNamespace(session=session, controls=RunControls(session.control))
    endpoints = BatchEndpoints(handlers, BatchService(session))
    asked = {"prompts": "one", "spec": {"gen_length": 8, "block_length": 8, "steps": 1}}
    *_, last = endpoints.batch(asked | {"estimate": True}, request_of())
    assert last["state"] == "done"
    assert endpoints._live._live == endpoints._live._seen == {}
