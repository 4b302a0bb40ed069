"""The lessons: what to do, what to see, and a question that the data answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inspector.lessons.lesson_checks import (
    DLLM_CHOICES,
    Check,
    cheapest_faithful,
    drifted_share,
    first_wrong,
    frozen_from,
    kept_by_causal,
    last_word,
    missed_row,
    who_wins,
)


@dataclass(frozen=True)
class Lesson:
    """One lesson on recorded runs.

    `lanes` names the traces of both lanes; `choices` (label, trace) may stand in lane B instead;
    `action` names what the reader has to do before the mark is set; `view` and `start` set the
    inspector; `answer` is `number`, `choice` or `pin`; `check` judges the answer by the traces.
    """

    key: str
    title: str
    do: str
    see: str
    ask: str
    lanes: tuple[str, str]
    action: str
    view: str
    start: Mapping[str, int | str]
    answer: str
    check: Check
    choices: tuple[tuple[str, str], ...] = ()


LESSONS = (
    Lesson(
        "masks", "From masks to text",
        "Drag the replay bar to its very start, then on to its end.",
        "All masks stand there from the start. Tokens appear out of order: the surest first, "
        "wherever it is in the block.",
        "Which answer token, of those before the end of the text, was unmasked last? "
        "Give its number.",
        ("plain", "threshold_95"), "scrub", "candidates", {"lane": "a", "step": 0, "layer": 0},
        "number", last_word,
    ),
    Lesson(
        "attention", "Why there is no ordinary KV cache",
        "Go to step 13, layer 8, and switch the strip below between causal and bidirectional.",
        "One token was unmasked in the step before. Every position sees it, so K and V move "
        "before it as well as after it. Causal attention would have kept all that stands before.",
        "At step 13, layer 8: how many answer tokens before the one just unmasked moved by more "
        "than 0.001? The strip counts them.",
        ("plain", "dual"), "strip", "drift", {"lane": "a", "step": 3, "layer": 3},
        "number", kept_by_causal,
    ),
    Lesson(
        "drift", "But most of it barely changes",
        "Move the threshold from one end to the other.",
        "The counts fall to almost nothing long before the threshold reaches a tenth: most rows "
        "come out nearly as they were.",
        "What share of the rows of layer 5, in per cent, moves by more than 0.05 in V?",
        ("plain", "dllm_25_5"), "threshold", "counts", {"lane": "a", "step": 20, "layer": 4},
        "number", drifted_share,
    ),
    Lesson(
        "clocks", "Refresh clocks (dLLM-Cache)",
        "Put each of the three settings in lane B.",
        "The longer the intervals, the thinner the schedule, and the sooner the text parts from "
        "plain decoding.",
        "Which is the cheapest setting that changes no token?",
        ("plain", "dllm_25_5"), "choices", "schedule", {"lane": "b", "step": 20, "layer": 4},
        "choice", cheapest_faithful, DLLM_CHOICES,
    ),
    Lesson(
        "thresholds", "Blocks and thresholds (Fast-dLLM)",
        "Put 0.95, 0.7 and 0.5 in lane B.",
        "A lower threshold commits more tokens a forward. Tokens that depend on each other are "
        "then decided apart, and the text begins to differ.",
        "Which answer token is the first that 0.7 decodes otherwise than plain decoding?",
        ("plain", "threshold_95"), "choices", "compare", {"lane": "b", "step": 2, "layer": 4},
        "number", first_wrong,
        (("0.95", "threshold_95"), ("0.7", "threshold_70"), ("0.5", "threshold_50")),
    ),
    Lesson(
        "selection", "Choosing what to recompute (SPA-Cache)",
        "Look at the probed steps of lane B and pin a cell.",
        "A layer recomputes the rows whose proxy moved most, as many as its budget allows. The "
        "exact forward beside it shows which rows had truly moved.",
        "Find a row that had moved as much as those chosen and was not recomputed: pin it at a "
        "probed step, then press Check.",
        ("plain", "spa_cache"), "pin", "error", {"lane": "b", "step": 20, "layer": 4},
        "pin", missed_row,
    ),
    Lesson(
        "freezing", "Freezing what is done (FlashDLM's FreeCache)",
        "Pin a cell of the schedule and move along the steps.",
        "Once a block is decoded its K and V stand for good: no clock ever renews them. The "
        "prompt is computed once.",
        "From which step on is no row of block 1 recomputed any more?",
        ("plain", "freecache"), "pin", "schedule", {"lane": "b", "step": 10, "layer": 4},
        "number", frozen_from,
    ),
    Lesson(
        "helper", "A helper model (FlashDLM's guided diffusion)",
        "Put FreeCache alone in lane B, then the guider with it, then one that spells numbers "
        "digit by digit, then a guider without a cache.",
        "An autoregressive model reads the whole draft in one forward and agrees to it up to the "
        "first mismatch (✗): some steps commit many tokens, others one. Every token committed is "
        "the diffusion model's. A guider with other tokens agrees byte by byte, as far as the "
        "draft has whole tokens.",
        "Where do they disagree, and who wins? With FreeCache and the guider: at how many of the "
        "first mismatches does the guider's first choice stand in the answer at the end?",
        ("plain", "freecache_guided"), "choices", "guider", {"lane": "b", "step": 1, "layer": 4},
        "number", who_wins,
        (
            ("FreeCache only", "freecache"), ("FreeCache + guider", "freecache_guided"),
            ("FreeCache + guider of another vocabulary", "freecache_guided_digits"),
            ("Guider only", "guided"),
        ),
    ),
)  # fmt: skip


def described(lesson: Lesson) -> dict[str, Any]:
    """What the page may know of a lesson; the answer stays here."""
    names = ("key", "title", "do", "see", "ask", "action", "view", "answer")
    choices = [{"label": label, "name": name} for label, name in lesson.choices]
    return {name: getattr(lesson, name) for name in names} | {
        "start": dict(lesson.start), "choices": choices, "lane_b": lesson.lanes[1],
    }  # fmt: skip
