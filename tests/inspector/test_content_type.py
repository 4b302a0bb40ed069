"""The types of body that the gate reads as JSON."""

import json

import pytest

from tests.inspector.test_gate import call_of, client, served  # noqa: F401


@pytest.mark.parametrize("kind", [None, "text/plain", "multipart/form-data-x", "application/xml"])
def test_only_a_body_that_is_called_json_is_read_as_json(client, kind):  # noqa: F811
    """A page of another site may send text without asking the server first."""
    headers = {"Content-Type": kind} if kind else {}
    body = json.dumps(call_of(client))
    answer = client.post("/gradio_api/component_server", content=body, headers=headers)
    assert answer.status_code == 415
    assert answer.json()["detail"] == "Content-Type: expected application/json"


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON"])
def test_a_type_of_body_may_have_parameters_and_capitals(client, kind):  # noqa: F811
    body = json.dumps(call_of(client))
    answer = client.post(
        "/gradio_api/component_server", content=body, headers={"Content-Type": kind}
    )
    assert answer.json() == 6
