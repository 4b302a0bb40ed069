"""The format `driftscope-run`, version 1: its fields, their limits, and the run that they make.

`README.md` beside this module describes the format.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.trace.schema import MAX_ID, MAX_POSITIONS, MAX_STEPS

FORMAT, VERSION = "driftscope-run", 1
FIELDS = (
    "format", "version", "model", "method", "machine", "prompt", "prompt_tokens", "vocabulary",
    "end_tokens", "block_length", "start", "mask", "canvases", "tokens", "step_map",
    "confidences", "seconds",
)  # fmt: skip
MAX_NAME, MAX_PROMPT, MAX_TOKEN = 300, 100_000, 1_000  # characters
MAX_CELLS = 4_000_000  # steps times positions of the canvases
MAX_SECONDS = 1e6  # of a step
MAX_FOREIGN_ID = MAX_ID - 2  # one id is left for the mask
CANVAS_TYPES = {int, str, type(None)}

Token = int | str


@dataclass(frozen=True)
class ForeignRun:
    """A checked run of another engine.

    Places count the positions of the answer from 0, steps from 0. Tokens are ids or texts, all of
    one kind.

    Attributes:
        prompt_tokens: the tokens of the prompt; may be empty if they are not known.
        start: the token of each answer place before the first step, None for a mask.
        commits: for each step, the (place, token) pairs that it committed.
        confidences: probability of the token of each place at its commit, None if unknown.
        seconds: duration of each step; None if unknown.
        vocabulary: the texts of ids.
        end_tokens: the tokens that end a text.
        block_length: places of a block; the whole answer if blocks are not known.
        prompt: the text of the prompt; empty if unknown.
        model, method, machine: names; empty if unknown.
    """

    prompt_tokens: tuple[Token, ...]
    start: tuple[Token | None, ...]
    commits: tuple[tuple[tuple[int, Token], ...], ...]
    confidences: tuple[float | None, ...]
    seconds: tuple[float, ...] | None
    vocabulary: Mapping[int, str] = field(default_factory=dict)
    end_tokens: tuple[Token, ...] = ()
    block_length: int = 1
    prompt: str = ""
    model: str = ""
    method: str = ""
    machine: str = ""

    @property
    def tokens(self) -> set[Token]:
        """Every token that the run shows or names."""
        given = [token for token in self.start if token is not None]
        committed = (token for step in self.commits for _, token in step)
        return {*self.prompt_tokens, *given, *self.end_tokens, *committed}

    @property
    def is_spelt(self) -> bool:
        """Whether the texts of all tokens are known."""
        return all(self.text_of(token) is not None for token in self.tokens)

    def text_of(self, token: Token) -> str | None:
        """The text of a token; None if the file does not give it."""
        return token if isinstance(token, str) else self.vocabulary.get(token)


def read_run(data: Any) -> ForeignRun:
    """The run of a parsed document; ValueError names the field and the remedy."""
    if not isinstance(data, dict):
        raise ValueError("file: expected one JSON object with the fields of a run")
    if data.get("format") != FORMAT:
        raise ValueError(f"format: should be {FORMAT!r}")
    if type(data.get("version")) is not int or data["version"] != VERSION:
        raise ValueError(f"version: should be {VERSION}, the only version so far")
    for name in data:
        if name not in FIELDS:
            raise ValueError(f"{name[:60]!a}: unknown; the fields are {', '.join(FIELDS)}")
    prompt_tokens = _tokens(data, "prompt_tokens")
    start, commits = _canvas_form(data) if "canvases" in data else _step_map_form(data)
    if len(prompt_tokens) + len(start) > MAX_POSITIONS:
        raise ValueError(
            f"prompt_tokens: with the answer more than {MAX_POSITIONS} positions; leave the "
            "prompt's tokens out"
        )
    seconds = _seconds(data, commits, "canvases" in data)
    commits = (*commits, *((),) * (len(seconds or ()) - len(commits)))
    run = ForeignRun(
        prompt_tokens, start, commits, _confidences(data, len(start)), seconds,
        _vocabulary(data), _tokens(data, "end_tokens"), _block_length(data, len(start)),
        _text(data, "prompt", MAX_PROMPT), _name(data, "model"), _name(data, "method"),
        _name(data, "machine"),
    )  # fmt: skip
    if len({type(token) for token in run.tokens}) > 1:
        raise ValueError(
            "tokens: some are ids and some are texts; give ids everywhere, with their texts in "
            "vocabulary, or texts everywhere"
        )
    return run


def _list(data: Mapping[str, Any], name: str) -> list[Any]:
    found = data.get(name)
    if not isinstance(found, list):
        raise ValueError(f"{name}: expected a list, got {type(found).__name__}")
    return found


def _token(value: Any, where: str) -> Token:
    if type(value) is int and 0 <= value <= MAX_FOREIGN_ID:
        return value
    if isinstance(value, str):
        return _encodable(value, where, MAX_TOKEN)
    said = repr(value)[:20] if type(value) is int else type(value).__name__
    raise ValueError(
        f"{where}: {said} is no token; give an id from 0 to {MAX_FOREIGN_ID} or the token's text"
    )


def _tokens(data: Mapping[str, Any], name: str) -> tuple[Token, ...]:
    """An optional list of tokens."""
    if name not in data:
        return ()
    found = _list(data, name)
    _check_length(name, found)
    return tuple(_token(value, f"{name}: position {i + 1}") for i, value in enumerate(found))


def _places(data: Mapping[str, Any], name: str) -> tuple[Token | None, ...]:
    """A list with a token or null for each place of the answer; the token `mask` counts as null."""
    found = _list(data, name)
    _check_length(name, found)
    mask = _mask(data)
    return tuple(
        None if value is None or value == mask else _token(value, f"{name}: position {i + 1}")
        for i, value in enumerate(found)
    )


def _mask(data: Mapping[str, Any]) -> Token | None:
    return _token(data["mask"], "mask") if "mask" in data else None


def _check_length(name: str, found: Sequence[Any]) -> None:
    if len(found) > MAX_POSITIONS:
        raise ValueError(f"{name}: {len(found)} positions; at most {MAX_POSITIONS}")


def check_steps(name: str, count: int) -> None:
    """Raise ValueError naming the field for a number of steps that cannot be shown."""
    if not 1 <= count <= MAX_STEPS:
        raise ValueError(f"{name}: {count} steps; from 1 to {MAX_STEPS} can be shown")


Steps = tuple[tuple[tuple[int, Token], ...], ...]


def _canvas_form(data: Mapping[str, Any]) -> tuple[tuple[Token | None, ...], Steps]:
    """The start and the commits of a file that has the canvas after each step."""
    for name in ("tokens", "step_map"):
        if name in data:
            raise ValueError(f"{name}: given beside canvases; keep one of the two forms")
    rows, mask = _list(data, "canvases"), _mask(data)
    check_steps("canvases", len(rows))
    length = len(rows[0]) if isinstance(rows[0], list) else 0
    start = _places(data, "start") if "start" in data else (None,) * length
    if not length or len(start) != length:
        raise ValueError(
            f"canvases: step 1 has {length} positions and start {len(start)}; each canvas holds "
            "the positions of the answer, without the prompt"
        )
    _check_length("canvases", rows[0])
    if length * len(rows) > MAX_CELLS:
        raise ValueError(
            f"canvases: {len(rows)} steps of {length} positions, more than {MAX_CELLS} cells; "
            "give tokens and step_map"
        )
    before, steps = list(start), []
    for step, row in enumerate(rows, 1):
        if not isinstance(row, list) or len(row) != length:
            raise ValueError(f"canvases: step {step} is no list of {length} positions as step 1 is")
        if not {*map(type, row)} <= CANVAS_TYPES:
            raise ValueError(f"canvases: step {step} holds something other than tokens and null")
        steps.append(_commits(before, [None if new == mask else new for new in row], step))
    return start, tuple(steps)


def _commits(
    before: list[Token | None], row: list[Any], step: int
) -> tuple[tuple[int, Token], ...]:
    """What a step committed; `before` becomes its canvas. ValueError if it changed a token."""
    found = []
    for place, (old, new) in enumerate(zip(before, row, strict=True)):
        if old == new:
            continue
        if old is not None:
            did = "masks the token of" if new is None else "changes the token of"
            raise ValueError(
                f"canvases: step {step} {did} position {place + 1}; a race shows runs that keep "
                "their tokens. Give the final tokens with the step of their last commit: tokens "
                "and step_map in place of canvases"
            )
        before[place] = _token(new, f"canvases: step {step}, position {place + 1}")
        found.append((place, before[place]))
    return tuple(found)  # type: ignore[arg-type]


def _step_map_form(data: Mapping[str, Any]) -> tuple[tuple[Token | None, ...], Steps]:
    """The start and the commits of a file that has the final tokens and the step of each."""
    if "step_map" not in data:
        raise ValueError("canvases: missing; give canvases, or tokens and step_map")
    tokens, when = _places(data, "tokens"), _list(data, "step_map")
    start = _places(data, "start") if "start" in data else (None,) * len(tokens)
    if not tokens or not len(tokens) == len(when) == len(start):
        raise ValueError(
            f"step_map: {len(when)} steps for {len(tokens)} tokens (start: {len(start)}); give one "
            "for each position of the answer, null for none"
        )
    steps: list[list[tuple[int, Token]]] = []
    for place, (token, step) in enumerate(zip(tokens, when, strict=True)):
        if step is None and token == start[place]:
            continue
        where = f"step_map: position {place + 1}"
        if type(step) is not int or not 1 <= step <= MAX_STEPS:
            said = repr(step)[:20]
            raise ValueError(f"{where}: {said} is no step from 1 to {MAX_STEPS}; the first is 1")
        if token is None or start[place] is not None:
            raise ValueError(f"{where}: a step for a mask or a given token; write null")
        steps.extend([] for _ in range(step - len(steps)))
        steps[step - 1].append((place, token))
    check_steps("step_map", len(steps))
    return start, tuple(map(tuple, steps))


def _seconds(data: Mapping[str, Any], commits: Steps, exact: bool) -> tuple[float, ...] | None:
    if "seconds" not in data:
        return None
    found = _list(data, "seconds")
    if not len(commits) <= len(found) <= (len(commits) if exact else MAX_STEPS):
        raise ValueError(f"seconds: {len(found)} for {len(commits)} steps; give one for each step")
    for step, value in enumerate(found, 1):
        if not _is_number(value) or not 0 <= value <= MAX_SECONDS:
            raise ValueError(
                f"seconds: step {step} should be a number from 0 to {MAX_SECONDS:.0f}; leave the "
                "field out if times are not known"
            )
    return tuple(map(float, found)) if sum(found) else None


def _confidences(data: Mapping[str, Any], length: int) -> tuple[float | None, ...]:
    if "confidences" not in data:
        return (None,) * length
    found = _list(data, "confidences")
    if len(found) != length:
        raise ValueError(f"confidences: {len(found)} for {length} positions; give one for each")
    for place, value in enumerate(found, 1):
        if value is not None and not (_is_number(value) and 0 <= value <= 1):
            raise ValueError(
                f"confidences: position {place} should be a probability from 0 to 1, or null"
            )
    return tuple(None if value is None else float(value) for value in found)


def _is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _vocabulary(data: Mapping[str, Any]) -> dict[int, str]:
    found = data.get("vocabulary", {})
    if not isinstance(found, dict):
        raise ValueError("vocabulary: expected an object from ids to texts")
    out = {}
    for name, text in found.items():
        if not (name.isascii() and name.isdecimal() and len(name) <= 8):
            raise ValueError(f"vocabulary: {name[:20]!a} is no token id")
        if not isinstance(text, str):
            raise ValueError(f"vocabulary: the text of {name} should be a string")
        out[int(name)] = _encodable(text, f"vocabulary: the text of {name}", MAX_TOKEN)
    return out


def _block_length(data: Mapping[str, Any], length: int) -> int:
    found = data.get("block_length", length)
    if type(found) is not int or not 1 <= found <= length:
        raise ValueError(f"block_length: should be a whole number from 1 to {length}")
    return found


def _text(data: Mapping[str, Any], name: str, most: int) -> str:
    found = data.get(name, "")
    if not isinstance(found, str):
        raise ValueError(f"{name}: expected a text, got {type(found).__name__}")
    return _encodable(found, name, most)


def _name(data: Mapping[str, Any], name: str) -> str:
    found = _text(data, name, MAX_NAME)
    if any(unicodedata.category(character) in ("Cc", "Cf") for character in found):
        raise ValueError(f"{name}: holds a control character; remove it")
    return found


def _encodable(text: str, where: str, most: int) -> str:
    if len(text) > most:
        raise ValueError(f"{where}: {len(text)} characters; at most {most}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{where}: holds half a character (a lone surrogate); replace it"
        ) from None
    return text
