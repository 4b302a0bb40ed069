"""A visitor of the app over plain HTTP: what the page's script sends, and what it does not."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import httpx
from gradio_client import Client

from tests.support.retrying import RetryingTransport

API = "/gradio_api"
WAIT = httpx.Timeout(120)


def program(url: str) -> Client:
    """A program that uses the API of an app without certificates: reading all of them is slow."""
    return Client(url, verbose=False, ssl_verify=False)


@lru_cache(4)
def config_of(url: str) -> dict[str, Any]:
    """What the app says of its components and listeners."""
    with httpx.Client(transport=RetryingTransport(), timeout=WAIT) as client:
        return client.get(url + "/config").json()


class Visitor:
    """One page load; `session` is its id, made up by the page as Gradio's script does."""

    def __init__(self, url: str) -> None:
        self.url, self.session = url, secrets.token_hex(6)
        self.http = httpx.Client(base_url=url, timeout=WAIT, transport=RetryingTransport())
        self.config = config_of(url)
        self.parts = {part["id"]: part["props"] for part in self.config["components"]}
        self.ids = {props.get("elem_id"): i for i, props in self.parts.items()}
        self.joined = ("", "")
        self._heart: httpx.Response | None = None
        self._heard: Iterator[dict[str, Any]] = iter(())  # held: letting it go would close it

    def close(self) -> None:
        """Cut all connections without a word."""
        self.http.close()

    def stay(self) -> None:
        """Open the heartbeat, as every page does."""
        asked = self.http.build_request("GET", f"{API}/heartbeat/{self.session}")
        self._heart = self.http.send(asked, stream=True)

    def leave(self) -> None:
        """End the heartbeat alone: the tab is closed, the rest of its connections linger."""
        if self._heart is not None:
            self._heart.close()

    def listener(self, name: str) -> dict[str, Any]:
        """A listener by its name among the endpoints, or as `elem_id.event`.

        A listener that only the page runs is left out for the one that follows it.
        """
        part, _, event = name.partition(".")
        rows, target = self.config["dependencies"], [self.ids.get(part), event]
        for row in rows:
            if (row["api_name"] == name and not event) or target in row["targets"]:
                after = [one for one in rows if one["trigger_after"] == row["id"]]
                return row if row["backend_fn"] or not after else after[0]
        raise LookupError(name)

    def values(self, row: dict[str, Any], **changes: Any) -> list[Any]:
        """The values of a listener's inputs as the page shows them, some changed by elem_id."""
        shown = {i: props.get("value") for i, props in self.parts.items()}
        shown |= {self.ids[name]: value for name, value in changes.items()}
        copy = self.ids["ds-values-copy"]  # the page copies the values of the settings to it
        rows = self.config["dependencies"]
        copied = next(one["inputs"] for one in rows if one["outputs"] == [copy])
        shown[copy] = [shown[i] for i in copied]
        return [shown[i] for i in row["inputs"]]

    def join(self, name: str, data: list[Any] | None = None, event: Any = None, **changes: Any):
        """Queue an event; its id."""
        row = self.listener(name)
        given = self.values(row, **changes) if data is None else data
        answer = self.post("/queue/join", self.body(row, given, event))
        answer.raise_for_status()
        self.joined = (name, answer.json()["event_id"])
        return self.joined[1]

    def body(self, row: dict[str, Any], data: list[Any], event: Any = None) -> dict[str, Any]:
        """The document that the page would post."""
        return {
            "data": data, "fn_index": row["id"], "session_hash": self.session,
            "event_data": event, "trigger_id": None,
        }  # fmt: skip

    def post(self, path: str, document: Any) -> httpx.Response:
        """Post a document to a route of the API; half a surrogate pair goes through as well."""
        kind = {"Content-Type": "application/json"}
        return self.http.post(API + path, content=json.dumps(document), headers=kind)

    def messages(self) -> Iterator[dict[str, Any]]:
        """What the server says of the session's events, until the last is over."""
        self._heard = (json.loads(line.removeprefix("data:")) for line in self.lines())
        return self._heard

    def lines(self) -> Iterator[str]:
        """The lines that the server sends for `messages`, each with one as JSON after `data:`."""
        query = {"session_hash": self.session}
        with self.http.stream("GET", API + "/queue/data", params=query) as stream:
            yield from (line for line in stream.iter_lines() if line.startswith("data:"))

    def ask(self, name: str, data: list[Any] | None = None, event: Any = None, **changes: Any):
        """Queue an event and give its last message's output: `data`, or `error`."""
        waited = self.join(name, data, event, **changes)
        for message in self.messages():
            if message["msg"] == "process_completed" and message["event_id"] == waited:
                return message["output"]
        raise AssertionError("the stream ended early")

    def direct(self, name: str) -> httpx.Response:
        """Call a listener that does not queue, as the page does."""
        row = self.listener(name)
        return self.post("/run/predict", self.body(row, self.values(row)))

    def server(self, part: str, name: str, data: Any) -> httpx.Response:
        """Call a component's own function."""
        return self.post(
            "/component_server",
            {
                "data": data, "component_id": self.ids[part], "fn_name": name,
                "session_hash": self.session,
            },
        )  # fmt: skip

    def upload(self, name: str, data: bytes) -> httpx.Response:
        """Upload a file."""
        return self.http.post(API + "/upload", files={"files": (name, data)})


def shown(message: dict[str, Any]) -> Any:
    """The first output of a message in full, or None where it only tells what changed."""
    found = (message.get("output") or {}).get("data") or [None]
    whole = found[0]
    if isinstance(whole, str):
        return json.loads(whole)
    if isinstance(whole, list) and whole and whole[0][:2] == ["replace", []]:
        return json.loads(whole[0][2])
    return whole if isinstance(whole, dict) else None
