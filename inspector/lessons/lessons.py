"""The texts and settings of the lessons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inspector.lessons.choices import (
    DARE_CHOICES,
    DLLM_CHOICES,
    GUIDER_CHOICES,
    RULE_CHOICES,
    THRESHOLD_CHOICES,
    Choice,
)
from inspector.lessons.lesson_checks import (
    Check,
    cheapest_faithful,
    commit_call,
    drifted_share,
    equal_terms,
    first_wrong,
    frozen_from,
    kept_by_causal,
    last_word,
    missed_row,
    saved_by_reuse,
    who_wins,
)


@dataclass(frozen=True)
class Lesson:
    """One lesson on recorded runs.

    Attributes:
        key: name of the lesson in links.
        title, do, see, ask: texts of the lesson. Layers and steps in them count from 1.
        goal: what the reader knows afterwards, for teachers.
        minutes: how long the lesson takes.
        lanes: names of the traces of lanes A and B.
        action: what the reader has to do before the lesson is marked as done: `scrub`, `strip`,
            `threshold`, `choices` or `pin`.
        view: the view of the inspector that is opened.
        start: the cursor of the inspector; steps and layers in it count from 0.
        answer: the form of the answer: `number`, `choice` or `pin`.
        check: checks an answer against the traces.
        choices: the races that the reader can open.
    """

    key: str
    title: str
    goal: str
    minutes: int
    do: str
    see: str
    ask: str
    lanes: tuple[str, str]
    action: str
    view: str
    start: Mapping[str, int | str]
    answer: str
    check: Check
    choices: tuple[Choice, ...] = ()

    def races(self) -> dict[str, tuple[str, str]]:
        """The names of the traces of lanes A and B of every race, by the name of the race.

        The race that the lesson opens with has the name of lane B's trace.
        """
        chosen = {one.name: (one.lane_a or self.lanes[0], one.lane_b) for one in self.choices}
        return {self.lanes[1]: self.lanes} | chosen

    def runs(self) -> set[str]:
        """The names of all traces of the lesson."""
        return {name for lanes in self.races().values() for name in lanes}


LESSONS = (
    Lesson(
        "masks", "From masks to text",
        "The order in which plain decoding commits tokens: by confidence, not from left to right.",
        5,
        "Drag the step slider of this lesson, or the replay bar below, to its start and then to "
        "its end.",
        "Every position of the answer starts masked. In each step the model predicts a token for "
        "every mask, and some of these tokens are committed: they replace their masks. This does "
        "not go from left to right. In lane A each step commits the token of the current block "
        "with the highest confidence, and of equal ones the leftmost, as in the padding after the "
        "text. In lane B each step commits all tokens of the block whose confidence is at least "
        "0.95, and at least one.",
        "In lane A, which answer token before the end of the text was committed last? Give its "
        "number.",
        ("plain", "threshold_95"), "scrub", "candidates", {"lane": "a", "step": 0, "layer": 0},
        "number", last_word,
    ),
    Lesson(
        "attention", "Why there is no ordinary KV cache",
        "Why K and V of earlier tokens change, so that a KV cache as in autoregressive models is "
        "not exact.",
        7,
        "Go to step 13, layer 8, and switch the strip of answer tokens between causal and "
        "bidirectional.",
        "One token was committed in the step before. Every position attends to it, so from layer 2 "
        "on K and V change before it as well as after it. (In layer 1 they depend on the token of "
        "the position alone.) With causal attention, K and V of all positions before it would not "
        "change.",
        "At step 13, layer 8: how many answer tokens before the one just committed have a drift of "
        "V above 0.001? The strip marks them with a dot.",
        ("plain", "dual"), "strip", "drift", {"lane": "a", "step": 3, "layer": 3},
        "number", kept_by_causal,
    ),
    Lesson(
        "drift", "Most rows barely change",
        "How little most rows change from step to step, which is what caches exploit.",
        5,
        "Move the threshold from one end to the other.",
        "The view counts the rows whose drift is above the threshold. At a threshold of 0.03 these "
        "are only a few rows in a hundred: the values of most rows barely change from one step to "
        "the next.",
        "In lane A, over all steps, what percentage of the rows of layer 5 has a drift of V above "
        "0.05?",
        ("plain", "dllm_25_5"), "threshold", "counts", {"lane": "a", "step": 20, "layer": 4},
        "number", drifted_share,
    ),
    Lesson(
        "clocks", "Refresh intervals (dLLM-Cache)",
        "Recomputing at fixed intervals: what it saves, and when the text changes.",
        6,
        "Put each of the four settings in lane B. For each, look at Refresh schedule, then at "
        "Compare.",
        "A setting has an interval for the prompt and one for the answer. The longer an interval, "
        "the fewer refreshes of its part the schedule shows. The setting that refreshes the answer "
        "least often does not change the most tokens: what is recomputed between refreshes matters "
        "as well. Between refreshes, the first two settings recompute the quarter of the answer "
        "whose V changed most, the other two none of it. Layer 1 is recomputed in every step. "
        "Compare shows the share of token-layers recomputed; in the lanes, ≠ marks the tokens that "
        "changed.",
        "Which setting recomputes least, among those that change no token?",
        ("plain", "dllm_25_5"), "choices", "schedule", {"lane": "b", "step": 20, "layer": 4},
        "choice", cheapest_faithful, DLLM_CHOICES,
    ),
    Lesson(
        "thresholds", "Several tokens a step (Fast-dLLM)",
        "Committing several tokens in one forward: fewer forwards against a text that may differ.",
        6,
        "Put the thresholds 0.95, 0.7 and 0.5 in lane B, one after the other.",
        "A lower threshold commits more tokens per forward. Tokens that depend on each other are "
        "then chosen independently, and the text begins to differ.",
        "Which answer token is the first, from left to right, that differs between threshold 0.7 "
        "and plain decoding?",
        ("plain", "threshold_95"), "choices", "compare", {"lane": "b", "step": 2, "layer": 4},
        "number", first_wrong, THRESHOLD_CHOICES,
    ),
    Lesson(
        "selection", "Choosing what to recompute (SPA-Cache)",
        "Choosing rows by a cheap proxy of their drift, and what such a choice misses.",
        8,
        "Look at the probed steps of lane B and pin a cell.",
        "Layer 1 recomputes the whole answer in every step. Above it, between refreshes, a proxy "
        "of V, its low-rank projection, is compared with that of the previous step. The rows whose "
        "proxy drifted most are recomputed, as many as the layer's budget allows. The probe, an "
        "exact forward of the same step, shows which rows really drifted. In the map, underlined "
        "cells are reused rows; their error is the drift that was missed.",
        "Choose a layer of a probed step. If n rows are recomputed there, find a reused row whose "
        "attention output is among the n that drifted most. Pin it, then press Check.",
        ("plain", "spa_cache"), "pin", "error", {"lane": "b", "step": 20, "layer": 4},
        "pin", missed_row,
    ),
    Lesson(
        "freezing", "Freezing finished blocks (FlashDLM's FreeCache)",
        "What is saved if finished blocks and the prompt are never recomputed.",
        5,
        "Pin a cell of the schedule and move along the steps.",
        "Once a block is decoded, its K and V are frozen: they are never refreshed. The prompt is "
        "computed once.",
        "From which step on is no row of block 1 recomputed any more?",
        ("plain", "freecache"), "pin", "schedule", {"lane": "b", "step": 10, "layer": 4},
        "number", frozen_from,
    ),
    Lesson(
        "helper", "A small model as guider (FlashDLM's guided diffusion)",
        "How an autoregressive model can verify a draft, and what it can and cannot change.",
        8,
        "Put four runs in lane B, one after the other: FreeCache alone, FreeCache with the guider, "
        "FreeCache with a guider that spells numbers digit by digit, and the guider without a "
        "cache.",
        "The diffusion model predicts a token for every mask: the draft. The guider, an "
        "autoregressive model, reads up to 32 tokens of the draft in one forward and accepts them "
        "up to the first mismatch (✗). Some steps commit many tokens, others one. Every committed "
        "token was proposed by the diffusion model. If the guider has another vocabulary, the two "
        "texts are compared byte by byte, and only whole tokens of the draft are accepted.",
        "In the run FreeCache + guider, look at the first mismatch of each step. At how many of "
        "them is the guider's first choice the token that stands there in the final answer?",
        ("plain_fill_safe", "freecache_guided"), "choices", "guider",
        {"lane": "b", "step": 1, "layer": 4}, "number", who_wins, GUIDER_CHOICES,
    ),
    Lesson(
        "queries", "What reuse saves (DARE)",
        "What reuse of K and V, or of the attention output, saves of the whole computation.",
        8,
        "Put each of the three settings in lane B and look at Query drift, then at Compare.",
        "A row is reused (underlined) if the query of its first head drifted by no more than the "
        "layer's threshold τ since the previous step. DARE-KV reuses K and V: this saves their "
        "projections, and attention and feed-forward are still computed for every row. DARE-O "
        "reuses the attention output: this saves attention and most of the query and output "
        "projections, and K, V and feed-forward are still computed for every row. In layer 1 a "
        "query depends on its token alone. While a token stays the same, DARE-O therefore finds no "
        "drift there, nor in the layers above, whose input then stays the same too. The third "
        "setting recomputes "
        "all rows of layers 1 and 2.",
        "Which setting saves most, among those that leave the text as plain decoding writes it? "
        "Give the percentage of plain decoding's GFLOPs that it saves.",
        ("plain", "dare_kv"), "choices", "queries", {"lane": "b", "step": 20, "layer": 4},
        "number", saved_by_reuse, DARE_CHOICES,
    ),
    Lesson(
        "terms", "Comparing on equal terms",
        "How to compare two methods fairly: the same rule for the end of the text.",
        7,
        "Open the three races, one after the other, and compare the forwards of both lanes.",
        "Two rules end the runs here. With the rule official, every position is decoded, also "
        "those after the end of the text. With fill_safe, decoding stops at the end of the text "
        "once all before it is decoded; guided diffusion always stops there. Plain decoding writes "
        "the same text under both rules. Compare shows the rule of each lane, its forwards, and "
        "its forwards until the text is complete.",
        "If both lanes stop at the end of the text, how many times as many forwards does plain "
        "decoding take as guided diffusion?",
        ("plain", "plain_fill_safe"), "choices", "compare", {"lane": "b", "step": 2, "layer": 4},
        "number", equal_terms, RULE_CHOICES,
    ),
    Lesson(
        "blocks", "Block diffusion: when the cache is exact",
        "Why keys and values of a finished block are exact if attention is block-causal, and why "
        "that takes one more forward.",
        8,
        "Pin answer token 1 of lane A, which is in the first decoded block: click it, or move to "
        "it and press Enter. Move the slider of the steps from the first to the last. The token's "
        "card says for each step whether its row was recomputed, and why. Then do so in lane B.",
        "A position of this model attends to the blocks before its own and to its own block, and "
        "to no later one. Once a block holds its last token, nothing that follows changes it. One "
        "forward over its final tokens, the commit call, gives keys and values that stay. Those "
        "of its last decoding step are not exact: the tokens committed in that step were still "
        "masks in its input. Lane A (frozen blocks) keeps finished blocks only, and its error is 0 "
        "in every probed step. Lane B (sub-block cache) also keeps other rows of the current "
        "block, and there it has an error.",
        "Which step of lane A is the commit call of the first decoded block? It is the last step "
        "that computes rows of that block. Give its number.",
        ("block_frozen", "block_sub_block"), "scrub", "error", {"lane": "a", "step": 0, "layer": 0},
        "number", commit_call,
    ),
)  # fmt: skip


def described(lesson: Lesson) -> dict[str, Any]:
    """The data of a lesson that is sent to the page; the answer is not part of it."""
    names = ("key", "title", "goal", "minutes", "do", "see", "ask", "action", "view", "answer")
    choices = [{"label": one.label, "name": one.name} for one in lesson.choices]
    return {name: getattr(lesson, name) for name in names} | {
        "start": dict(lesson.start), "choices": choices, "lane_b": lesson.lanes[1],
    }  # fmt: skip
