"""Hostile requests to every listener, route and file component of the app, over HTTP.

No response may be a 5xx or contain a file from outside the cache, no request may write a file
outside the cache, and every refusal names the field.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from hypothesis import strategies as st

from tests.support import hostile_web
from tests.support.browser import ROOT, App, running_app
from tests.support.hostile import Failed, each, is_named, races
from tests.support.micro import write_checkpoint
from tests.support.races import alone
from tests.support.races import races as good_races
from tests.support.web import Visitor, config_of

CANARY = "canary-7f3a91"
MODEL = "micro"
SMALL = {"ds-model": MODEL, "ds-prompt": "How many?", "ds-gen_length": 16, "ds-block_length": 8,
         "ds-a-steps": 8, "ds-b-steps": 8}  # fmt: skip
AT_ONCE = 6
STREAM_TIMEOUT = 10.0  # seconds


class Web:
    """Requests to a running app; `tally` counts the outcomes."""

    def __init__(self, app: App, folder: Path) -> None:
        self.app, self.tally = app, Counter()
        self._own = threading.local()
        self._lock = threading.Lock()
        self.outside = folder / "outside"
        self.outside.mkdir()
        (self.outside / "config.json").write_text(CANARY)
        self.places = [self.outside / "config.json", ROOT / "app.py", Path("/etc/passwd")]
        self.paths = st.sampled_from(
            [way for path in self.places for way in hostile_web.spellings(path)]
        )
        self.listeners = [row for row in self.visitor.config["dependencies"] if row["backend_fn"]]
        parts = self.visitor.config["components"]
        self.served = [
            (part["id"], name) for part in parts
            for name in part["props"].get("server_fns") or _server_names(part)
        ]  # fmt: skip

    @property
    def visitor(self) -> Visitor:
        """The visitor of the current thread."""
        if not hasattr(self._own, "visitor"):
            self._own.visitor = Visitor(self.app.url)
        return self._own.visitor

    def all_of(self, count: int, strategy: st.SearchStrategy, check: Any) -> None:
        """Draw `count` values, then check them, AT_ONCE at a time."""
        drawn: list = []
        each(count, strategy, drawn.append)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(check, drawn[:count]):
                pass

    def race(self, race: Any) -> None:
        """The endpoints of a race: its plan and, if it is small, its run."""
        found = self._ask("plan", [race])
        if found is not None and _small(found["plans"]):
            self._ask("run", [race])

    def listener(self, drawn: tuple) -> None:
        """A listener with values of its components, some or all of them junk."""
        number, places, values, event = drawn
        row = self.listeners[number % len(self.listeners)]
        data, settings = self.visitor.values(row, **SMALL), self.visitor.ids["ds-values-copy"]
        copied = dict(zip(row["inputs"], data, strict=True)).get(settings)
        for place, value in zip(places, values, strict=False):
            if data:
                into = copied if copied and place % 4 else data
                into[place % len(into)] = value
        if row["queue"]:
            self._queued(row, data, event)
        else:
            document = self.visitor.body(row, data, event)
            self._answered("listener", self.visitor.post("/run/predict", document))

    def served_by(self, drawn: tuple) -> None:
        """A component's own function, with junk."""
        number, value = drawn
        part, name = self.served[number % len(self.served)]
        document = {"data": value, "component_id": part, "fn_name": name}
        document["session_hash"] = self.visitor.session
        self._answered("component", self.visitor.post("/component_server", document))

    def body(self, drawn: tuple) -> None:
        """A route with a body of any form."""
        route, document, raw = drawn
        text = raw if raw is not None else json.dumps(document).encode()
        answer = self.visitor.http.post(
            "/gradio_api" + route, content=text, headers={"Content-Type": "application/json"}
        )
        self._answered("body", answer)

    def path(self, drawn: tuple) -> None:
        """A path that points, or seems to point, outside the cache."""
        prefix, path, method = drawn
        try:
            with self.visitor.http.stream(method, prefix + path, timeout=STREAM_TIMEOUT) as answer:
                if "text/event-stream" in answer.headers.get("content-type", ""):
                    self._count("path streamed")
                    return
                answer.read()
        except httpx.InvalidURL:
            self._count("path that is no URL")
            return
        self._answered("path", answer, named=False)

    def file(self, drawn: tuple) -> None:
        """A file component with a file that was not uploaded, or uploaded under an odd name."""
        path, name, data, upload = drawn
        if upload:
            answer = self.visitor.upload(name, data)
            self._answered("upload", answer, named=False)
            if answer.status_code != 200:
                return
            path = answer.json()[0]
        given = [{"path": path, "orig_name": name, "meta": {"_type": "gradio.FileData"}}]
        row = self.visitor.listener("ds-import.upload")
        self._queued(row, [given], None)

    def _ask(self, name: str, data: list) -> Any:
        output = self._queued(self.visitor.listener(name), data, None)
        return output["data"][0] if output and "data" in output else None

    def _queued(self, row: dict, data: list, event: Any) -> Any:
        answer = self.visitor.post("/queue/join", self.visitor.body(row, data, event))
        if answer.status_code != 200:
            self._answered("queued", answer)
            return None
        for message in self.visitor.messages():
            self._clean(json.dumps(message))
            if message["msg"] == "process_completed":
                output = message["output"]
                if not message["success"] and not is_named(output.get("error")):
                    given = str(data)[:300]
                    raise Failed(
                        f"{row['api_name']}: {output} names no field; the input was {given}"
                    )
                self._count("queued " + ("served" if message["success"] else "refused"))
                return output
        raise Failed(f"{row['api_name']}: no end; it was {str(data)[:300]}")

    def _answered(self, kind: str, answer: httpx.Response, named: bool = True) -> None:
        text, status = answer.text, answer.status_code
        self._clean(text)
        if status >= 500:
            raise Failed(f"{kind}: {status} {text[:300]} of {answer.request.url}")
        if status >= 400 and named and not _names_field(text):
            raise Failed(f"{kind}: {text[:300]} names no field; {answer.request.url}")
        self._count(kind + (" refused" if status >= 400 else " served"))

    def _count(self, what: str) -> None:
        with self._lock:
            self.tally[what] += 1

    def _clean(self, text: str) -> None:
        if CANARY in text or "root:x:0" in text or "Driftscope's web app: read the env" in text:
            raise Failed(f"a file from outside was read: {text[:300]}")


def _names_field(text: str) -> bool:
    """Whether a refusal's `detail` names a field, or its location as FastAPI does."""
    try:
        detail = json.loads(text)["detail"]
    except (ValueError, KeyError, TypeError):
        return False
    if isinstance(detail, list):
        return all(isinstance(one, dict) and one.get("loc") for one in detail)
    return is_named(detail) or detail in ("Not Found", "Method Not Allowed")


def _small(plans: dict) -> bool:
    return all(p["max_forwards"] <= 32 and not p["fetch_bytes"] for p in plans.values())


def _server_names(part: dict) -> list[str]:
    known = {"ds-race": ["replay", "view"], "ds-methods": ["methods"]}
    known["ds-learn"] = ["titles", "lesson", "check", "view"]
    return known.get(part["props"].get("elem_id"), [])


def shares(web: Web) -> list[tuple[st.SearchStrategy, Any, int]]:
    """The strategy of each check, and its share of the count in percent."""
    return [
        (races(MODEL), web.race, 10),
        (hostile_web.listeners, web.listener, 25),
        (hostile_web.served, web.served_by, 10),
        (hostile_web.bodies, web.body, 25),
        (hostile_web.paths(web.paths), web.path, 20),
        (hostile_web.files(web.paths), web.file, 10),
    ]


def over_http(folder: Path, count: int) -> Counter:
    """Send `count` requests to an app with a small model; returns the outcomes."""
    small, cache = write_checkpoint(folder / "served" / MODEL), folder / "cache"
    env = {"DRIFTSCOPE_MODELS": str(small), "GRADIO_TEMP_DIR": str(cache), "SPACE_ID": "own/space"}
    env |= {"TMPDIR": str(folder / "tmp"), "XDG_CACHE_HOME": str(folder / "made")}
    (folder / "tmp").mkdir()
    with running_app(folder, **env) as app:
        web = Web(app, folder)
        before, expected = _files(folder, cache), alone(app, good_races(1)[0])
        for strategy, check, share in shares(web):
            web.all_of(max(1, count * share // 100), strategy, check)
        if alone(app, good_races(1)[0]) != expected:
            raise Failed("the app gives another text than before")
        if new := _files(folder, cache) - before:
            raise Failed(f"files were written outside the cache: {sorted(new)[:5]}")
        if "unexpected failure" in (said := app.log.read_text()):
            raise Failed(said[said.index("unexpected failure") :][:3_000])
    config_of.cache_clear()
    return web.tally


def _files(folder: Path, cache: Path) -> set[str]:
    """All files in the repository and around the cache, without those that the app may write."""
    made = {cache, folder / "tmp", folder / "made", ROOT / ".git"}
    found = [
        path
        for root in (folder, ROOT)
        for path in root.rglob("*")
        if "__pycache__" not in str(path)
    ]
    return {str(p) for p in found if not any(p.is_relative_to(m) for m in made)}
