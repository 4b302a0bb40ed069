"""Checks of the JSON bodies that are posted to the app's routes.

No pydantic models of our own: nearly every check depends on the listeners and components of the
running app; values of components are checked by the components' own pydantic models.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gradio as gr

SESSION = re.compile(r"[A-Za-z0-9_-]{1,64}")
MAX_PATH = 4_096  # characters; the time to resolve a path grows with their square
MAX_FILES = 100  # of a request; for each, Gradio leaves an empty file in the upload folder
MAX_DEPTH = 32
MAX_VALUES = 20_000  # of a request: Gradio keeps the values of a session, and a list has 64 bytes
EMPTY_KEYS = ("batched", "simple_format", "oauth_token")  # the page leaves these empty


class Refused(ValueError):
    """A refused request. The message names the field; `status` is the HTTP status."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


def check_body(app: Any, route: str, body: bytes) -> None:
    """Raise Refused if a body is invalid for its route.

    Args:
        app: Gradio's app.
        route: the path after the API's prefix, for example `queue/join`.
        body: the body of the request.
    """
    document = _parsed(body)
    _check_count(document)
    _check_values(document, Path(app.uploaded_file_dir))
    name, _, rest = route.partition("/")
    checks: Mapping[str, Callable[[gr.Blocks, dict[str, Any], str], None]] = {
        "queue": _check_event, "run": _check_event, "api": _check_event, "call": _check_call,
        "component_server": _check_server_call,
    }  # fmt: skip
    if name in checks:
        checks[name](app.get_blocks(), document, rest)


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body, parse_constant=_no_constant)
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Refused("body: it has a surrogate without its pair, which is not text", 400) from None
    except RecursionError:
        raise Refused(f"body: nested deeper than {MAX_DEPTH} levels", 400) from None
    except ValueError:
        raise Refused("body: not a JSON document", 400) from None
    if not isinstance(document, dict):
        raise Refused("body: expected an object")
    return document


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _check_count(document: dict[str, Any]) -> None:
    """Refuse a body with too many values: a megabyte of empty lists takes twenty in memory."""
    left: list[Any] = [document]
    count = 0
    while left and count + len(left) <= MAX_VALUES:
        value = left.pop()
        count += 1
        if isinstance(value, dict | list):
            left += value.values() if isinstance(value, dict) else value
    if left:
        raise Refused(f"body: more than {MAX_VALUES} values; send fewer")


def _check_values(value: Any, folder: Path, depth: int = 0) -> int:
    """Refuse a value that is nested too deeply, a file outside the upload folder, or many files.

    Returns the number of files.
    """
    if depth > MAX_DEPTH:
        raise Refused(f"body: nested deeper than {MAX_DEPTH} levels", 400)
    files = 0
    if isinstance(value, dict):
        if isinstance(value.get("path"), str) or isinstance(value.get("meta"), dict):
            _check_file(value, folder)
            files = 1
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            files += _check_values(one, folder, depth + 1)
            if files > MAX_FILES:
                raise Refused(f"data: more than {MAX_FILES} files; send fewer", 422)
    return files


def _check_file(value: Mapping[str, Any], folder: Path) -> None:
    path = value.get("path")
    try:
        short = isinstance(path, str) and len(path) <= MAX_PATH
        held = short and Path(str(path)).resolve().is_relative_to(folder.resolve())
        if not held or not Path(str(path)).resolve().is_file():
            raise ValueError
    except (ValueError, OSError):
        raise Refused(
            "data: the file was not uploaded to this app; upload it and send that path", 422
        ) from None


def _check_event(blocks: gr.Blocks, document: dict[str, Any], rest: str) -> None:
    """Check a call of one of the page's listeners, by number or by name."""
    session, number = document.get("session_hash"), document.get("fn_index")
    if session is None and rest == "join":
        raise Refused("session_hash: missing")
    if session is not None and not (isinstance(session, str) and SESSION.fullmatch(session)):
        raise Refused("session_hash: expected 1 to 64 letters, digits, - or _")
    if number is None and rest != "join":
        found = [fn for fn in blocks.fns.values() if fn.api_name == rest.rstrip("/")]
    else:
        found = [blocks.fns[number]] if type(number) is int and number in blocks.fns else []
    if not found or found[0].fn is None:
        raise Refused("fn_index: there is no such function; see /gradio_api/info")
    for name in EMPTY_KEYS:
        if document.get(name):
            raise Refused(f"{name}: not supported by this app; leave it out")
    given, expected = document.get("data"), len(found[0].inputs)
    if not isinstance(given, list) or len(given) != expected:
        raise Refused(f"data: expected a list of {expected}")
    for part, value in zip(found[0].inputs, given, strict=True):
        _check_form(part, value, "data")
    if found[0].collects_event_data and not isinstance(document.get("event_data"), dict):
        raise Refused("event_data: expected an object")


def _check_call(blocks: gr.Blocks, document: dict[str, Any], rest: str) -> None:
    """Check a call by name, with its values in a list or, for `v2`, under their names."""
    version, _, name = rest.partition("/")
    if version != "v2" or not name:
        _check_event(blocks, {**document, "fn_index": None}, rest)
        return
    found = next((fn for fn in blocks.fns.values() if fn.api_name == name), None)
    if found is None or found.fn is None:
        raise Refused("path: there is no such endpoint; see /gradio_api/info", 404)
    known = list(inspect.signature(found.fn).parameters)[: len(found.inputs)]
    for key in document:
        if key not in known:
            values = ", ".join(known) or "none"
            raise Refused(f"body: {key[:100]!r} is unknown; the values are {values}")
    for key, part in zip(known, found.inputs, strict=False):
        if key not in document:
            raise Refused(f"{key}: missing")
        _check_form(part, document[key], key)


def _check_form(part: Any, value: Any, name: str) -> None:
    """Refuse a value that does not fit the data model of its component, if it has one."""
    form = getattr(part, "data_model", None)
    if form is None or value is None:
        return
    try:
        form.model_validate(value, context={"validate_meta": True})
    except ValueError:
        raise Refused(f"{name}: expected {form.__name__}, as returned by the upload") from None


def _check_server_call(blocks: gr.Blocks, document: dict[str, Any], rest: str) -> None:
    """Check a call of a component's server function."""
    session, number = document.get("session_hash"), document.get("component_id")
    if not (isinstance(session, str) and SESSION.fullmatch(session)):
        raise Refused("session_hash: expected 1 to 64 letters, digits, - or _")
    if type(number) is not int or number not in blocks.blocks:
        raise Refused("component_id: there is no such component")
    name = document.get("fn_name")
    found = getattr(blocks.blocks[number], name, None) if isinstance(name, str) else None
    if not getattr(found, "_is_server_fn", False):
        raise Refused("fn_name: the component has no such function", 404)
    if "data" not in document:
        raise Refused("data: missing")
