"""Races of the visitors in the long proofs, and the ways to abandon them."""

from __future__ import annotations

from collections.abc import Callable

from engine.tiny.corpus import exam_questions
from tests.support.browser import App
from tests.support.web import Visitor, shown

METHODS = (
    ("quota", "none"), ("threshold", "dual"), ("quota", "dllm_cache"), ("factor", "prefix"),
    ("quota", "spa_cache"), ("threshold", "dkv_cache"), ("quota", "d2_cache"),
    ("quota", "freecache"), ("frechet", "none"), ("certainty", "none"),
)  # fmt: skip
SHAPE = {"gen_length": 32, "block_length": 16, "steps": 32}


class Failed(AssertionError):
    """The app did something that it must not do."""


def races(count: int) -> list[dict]:
    """`count` different races, each with a sampled lane."""
    out = []
    for i, (_, prompt) in enumerate(exam_questions(count, 11, 0, "short_problems")):
        base = {"prompt": prompt, "seed": i, **SHAPE}
        unmasker, cache = METHODS[i % len(METHODS)]
        out.append(
            {
                "a": base | {"temperature": 0.5},
                "b": base | {"unmasker": unmasker, "cache": cache, "temperature": 0.2 * (i % 2)},
            }
        )
    return out


def texts(result: dict) -> dict[str, str]:
    """The text of each lane of a finished race."""
    if result.get("state") != "done":
        raise Failed(f"a race ended as {result.get('state')}: {result.get('message')}")
    return {lane: found["text"] for lane, found in result["lanes"].items()}


def alone(app: App, race: dict) -> dict[str, str]:
    """The texts of a race while nothing else runs."""
    visitor = Visitor(app.url)
    found = texts(visitor.ask("run", [race])["data"][0])
    visitor.close()
    return found


def form(seed: int = 0, steps: int = 32, length: int = 32) -> dict:
    """The page's settings of a small race, by elem_id."""
    prompt = exam_questions(1, seed, 0, "short_problems")[0][1]
    return {
        "ds-prompt": prompt, "ds-gen_length": length, "ds-block_length": 16, "ds-seed": seed,
        "ds-a-steps": steps,
    }  # fmt: skip


def to_step(visitor: Visitor, steps: int) -> None:
    """Read the messages of a page's race until `steps` steps have arrived."""
    seen = 0
    for message in visitor.messages():
        output = shown(message) or {}
        lanes = output.get("lanes") or {}
        seen += sum(len(lane.get("rows", ())) for lane in lanes.values()) + len(
            output.get("steps") or ()
        )
        if seen >= steps:
            return
    raise Failed("the race ended before it could be abandoned")


def stop(visitor: Visitor) -> None:
    """Press Stop."""
    visitor.direct("ds-stop.click").raise_for_status()


def cancel(visitor: Visitor) -> None:
    """Cancel the event, as a program does."""
    row = visitor.listener(visitor.joined[0])
    document = {"session_hash": visitor.session, "fn_index": row["id"]}
    visitor.post("/cancel", document | {"event_id": visitor.joined[1]}).raise_for_status()


WAYS: dict[str, Callable[[Visitor], None]] = {
    "Stop": stop, "cancel": cancel, "cut": Visitor.close, "tab closed": Visitor.leave,
}  # fmt: skip
