"""Slices that are tables: facts of a view, counts by layer and step, one token, one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from engine.core.drift_codes import NOT_EVALUATED
from engine.core.events import QUANTITIES, SITES
from engine.trace.trace import Trace
from inspector.page_data.row_counts import count_above
from inspector.page_data.tokens import pieces
from inspector.slices.fields import Fields, SliceError
from inspector.slices.message import Cut
from inspector.views import (
    candidates,
    error,
    experts,
    guider,
    lens,
    queries,
    schedule,
    similarity,
)
from inspector.views.drift import check as check_drift
from inspector.views.drift import drift_of
from inspector.views.frame import frame_facts

WhatIf = Callable[[Trace, int, Mapping[str, str]], dict[str, Any]]
MOST_COUNTS = 1_000_000  # numbers of 2 bytes, which a message holds


def frame(trace: Trace, fields: Fields) -> Cut:
    """Sizes of the run, and what its steps did to each position."""
    return Cut.of(frame_facts(trace))


def plan_bits(trace: Trace, fields: Fields) -> Cut:
    """Bits of the rows recomputed: of a `layer` [S, sites, W], or of a `step` [L, sites, W]."""
    schedule.check(trace)
    plan = trace.arrays()["plan"]
    if fields.has("layer") == fields.has("step"):
        raise SliceError("layer", "give either layer or step")
    if fields.has("quantity"):
        site = SITES.index(fields.choice("quantity", SITES))
        plan = plan[:, :, site : site + 1]
    if fields.has("step"):
        return Cut({"bits": plan[fields.whole("step", 0, len(plan))]})
    steps = fields.window("step", len(plan))
    return Cut({"bits": plan[steps, fields.whole("layer", 0, plan.shape[1])]}, _span(steps))


def token(trace: Trace, fields: Fields) -> Cut:
    """What happened to one `position`: its drift [Q, S, L] and its recomputed sites [S, L].

    The sites of a step and layer are one byte: bit i is set if `events.SITES[i]` was recomputed.
    `drift` is left out if the run has no drifts.
    """
    schedule.check(trace)
    arrays = trace.arrays()
    position = fields.whole("position", 0, len(arrays["canvas"]))
    steps = fields.window("step", trace.steps)
    done = arrays["plan"][steps, :, :, position // 8] >> np.uint8(7 - position % 8) & np.uint8(1)
    weights = np.array([1 << site for site in range(len(SITES))], np.uint8)
    found = {"sites": (done * weights).sum(-1, dtype=np.uint8)}
    if len(arrays["drift"]):
        place = slice(position, position + 1)
        found["drift"] = np.moveaxis(trace.cells("drift", steps, positions=place)[..., 0], 2, 0)
    return Cut(found, {"quantities": list(QUANTITIES), "no_data": NOT_EVALUATED} | _span(steps))


def counts(trace: Trace, fields: Fields) -> Cut:
    """Rows of a position window with a drift above `code`, or with any drift: [S, L]."""
    quantity = fields.choice("quantity", QUANTITIES)
    check_drift(trace)
    _check_counts(trace.steps * trace.layers)
    code = fields.whole("code", 0, NOT_EVALUATED) if fields.has("code") else -1
    window = fields.window("position", len(trace.arrays()["canvas"]))
    layers = (drift_of(trace, quantity, layers=slice(i, i + 1)) for i in range(trace.layers))
    rows = [count_above(codes[None, :, 0, window], code)[0] for codes in layers]
    return Cut({"rows": np.stack(rows, 1).astype(np.uint16)})


def expert_facts(trace: Trace, fields: Fields) -> Cut:
    """The experts of a row and of a layer, and the probed steps."""
    experts.check(trace)
    return Cut.of(experts.facts(trace))


def expert_counts(trace: Trace, fields: Fields) -> Cut:
    """Rows of a window of positions by changed experts: of the steps, and of the probes.

    `rows` [S, L, active + 1] and `probed` [E, L, active + 1].
    """
    experts.check(trace)
    arrays, active = trace.arrays(), experts.active_experts(trace)
    window = fields.window("position", len(arrays["canvas"]))
    steps = trace.steps + len(arrays["probe_expert_changes"])
    _check_counts(steps * trace.layers * (active + 1), "steps, layers and experts")
    layers = [slice(i, i + 1) for i in range(trace.layers)]
    return Cut(
        {
            name: np.concatenate(
                [experts.rows_by_changes(of(trace, layers=one), active, window) for one in layers],
                1,
            )
            for name, of in (("rows", experts.changes_of), ("probed", experts.probed_of))
        }
    )


def rows_done(trace: Trace, fields: Fields) -> Cut:
    """Rows of a position window that were recomputed, by step, layer and site [S, L, 4]."""
    schedule.check(trace)
    _check_counts(trace.steps * trace.layers * len(SITES))
    window = fields.window("position", len(trace.arrays()["canvas"]))
    done = schedule.rows_done(trace, window.start, window.stop)
    return Cut({"done": done.astype(np.uint16)})


def _check_counts(numbers: int, of: str = "steps and layers") -> None:
    """Raise ValueError if no message holds so many `numbers` of a run's steps and layers."""
    if numbers > MOST_COUNTS:
        raise ValueError(f"This run has too many {of} to count its rows. The maps show them.")


def schedule_kinds(trace: Trace, fields: Fields) -> Cut:
    """Kinds of each step and region, as planned and as done, and the share recomputed so far."""
    schedule.check(trace)
    running = schedule.running(trace.arrays()["recomputed"], trace.commit_calls)
    return Cut(schedule.kinds(trace) | {"running": running}, {"regions": list(schedule.REGIONS)})


def schedule_portion(trace: Trace, fields: Fields) -> Cut:
    """Share of each region that a step recomputed [S, 3]."""
    schedule.check(trace)
    return Cut({"portion": schedule.portions(trace)})


def query_facts(trace: Trace, fields: Fields) -> Cut:
    """Thresholds of the query drift by layer, and the edges of the histogram."""
    return Cut.of(queries.query_facts(trace))


def query_histogram(trace: Trace, fields: Fields) -> Cut:
    """Rows of a `layer` by query drift [4, 2, bins]."""
    queries.check(trace)
    layer = fields.whole("layer", 0, trace.layers)
    return Cut({"counts": queries.layer_histogram(trace, layer)})


def query_reuse(trace: Trace, fields: Fields) -> Cut:
    """Share of rows reused by layer and site [L, 4]."""
    return Cut({"reuse": queries.reuse_by_layer(trace)})


def similarity_facts(trace: Trace, fields: Fields) -> Cut:
    """The compared steps and groups, and the mean change of K and V between steps [2, L, G]."""
    return Cut({"change": similarity.changes(trace)} | similarity.compared_steps(trace))


def similarity_row(trace: Trace, fields: Fields) -> Cut:
    """One compared step (`index`) against those up to it, in a `layer`: codes [X, G]."""
    similarity.check(trace)
    kind = SITES.index(fields.choice("quantity", SITES[:2]))
    layer = fields.whole("layer", 0, trace.layers)
    index = fields.whole("index", 0, len(similarity.compared_steps(trace)["steps"]))
    start = index * (index + 1) // 2
    pairs = slice(start, start + index + 1)
    return Cut({"codes": similarity.compared(trace, kind, layer, pairs)})


def error_facts(trace: Trace, fields: Fields) -> Cut:
    """The probed steps, their predictions summed up, and whether there is a bound (DARE)."""
    error.check(trace)
    bounded = error.bounded_part(trace) is not None
    return Cut.of(error.error_facts(trace) | {"bounded": bounded})


def error_mean(trace: Trace, fields: Fields) -> Cut:
    """Mean error of a site by probe and layer [E, L]."""
    error.check(trace)
    site = SITES.index(fields.choice("quantity", SITES))
    return Cut({"mean": error.mean_errors(error.errors_of(trace, site))})


def error_recall(trace: Trace, fields: Fields) -> Cut:
    """Recall of the rows chosen at a site, and of a random choice, by probe and layer [E, L]."""
    error.check(trace)
    site = SITES.index(fields.choice("quantity", SITES))
    recall, chance = error.recalls(trace, [site])
    return Cut({"recall": recall[..., 0], "chance": chance[..., 0]})


def error_bound(trace: Trace, fields: Fields) -> Cut:
    """DARE's proxy [E, 2] and the true error [E] of a `layer`."""
    error.check(trace)
    if error.bounded_part(trace) is None:
        raise ValueError(
            "Only a run with DARE that recorded q0 and attn in every step has a bound."
        )
    proxy, true = error.layer_bound(trace, fields.whole("layer", 0, trace.layers))
    return Cut({"proxy": proxy, "true": true})


def error_predictions(trace: Trace, fields: Fields) -> Cut:
    """The compared predictions of a `probe`."""
    error.check(trace)
    arrays = trace.arrays()
    probe = fields.whole("probe", 0, len(arrays["probe_step"]))
    rows = np.flatnonzero(arrays["probe_row"] == probe)
    return Cut.of(error.predictions(trace, rows))


def lens_facts(trace: Trace, fields: Fields) -> Cut:
    """The probed steps of the logit lens, and how many of its tokens differ by layer."""
    return Cut.of(lens.lens_facts(trace))


def lens_layers(trace: Trace, fields: Fields) -> Cut:
    """The layers at which the tokens of a `probe` are decided, and the last layer's tokens."""
    found = lens.layers_of(trace, _lens_probe(trace, fields))
    return Cut(found, {"pieces": pieces(trace.pieces, np.unique(found["final"]).tolist())})


def lens_ids(trace: Trace, fields: Fields) -> Cut:
    """The best tokens of a `probe` [2, L, n] at a window of the lens's positions (`token`).

    -1 where a pass has no hidden state.
    """
    probe = _lens_probe(trace, fields)
    window = fields.window("token", len(trace.arrays()["lens_position"]))
    found = lens.ids_of(trace, probe)[:, :, window]
    facts = {"token_from": window.start, "token_to": window.stop}
    return Cut({"ids": found}, facts | {"pieces": pieces(trace.pieces, np.unique(found).tolist())})


def _lens_probe(trace: Trace, fields: Fields) -> int:
    """The index of a probed step that has a logit lens."""
    lens.check(trace)
    return fields.whole("probe", 0, len(trace.arrays()["lens_id"]))


def candidate_list(trace: Trace, fields: Fields) -> Cut:
    """The candidates of a `step`, of one `position` if it is given."""
    candidates.check(trace)
    arrays = trace.arrays()
    chosen = arrays["candidate_step"] == fields.whole("step", 0, trace.steps)
    if fields.has("position"):
        position = fields.whole("position", 0, len(arrays["canvas"]))
        chosen &= arrays["candidate_position"] == position
    return Cut.of(candidates.listed(trace, np.flatnonzero(chosen)))


def what_if_step(trace: Trace, fields: Fields, apply: WhatIf) -> Cut:
    """What a `step` would have committed under other `settings`, a query of an unmasker's knobs.

    `apply` is Session.what_if. The texts of the tokens are in `pieces`.
    """
    candidates.check(trace)
    step = fields.whole("step", 0, trace.steps)
    found = apply(trace, step, fields.settings("settings"))
    shown = np.unique(np.concatenate((found["ids"], found["did_ids"]))).tolist()
    texts = pieces(trace.pieces, [one for one in shown if one >= 0])
    return Cut.of(found | {"pieces": texts, "step": step})


def guider_facts(trace: Trace, fields: Fields) -> Cut:
    """Sums, shares and series by step of a guided run."""
    return Cut.of(guider.guider_facts_of(trace))


def guider_step(trace: Trace, fields: Fields) -> Cut:
    """The drafted tokens of a `step` and the guider's tokens for them."""
    guider.check_guided(trace)
    step = fields.whole("step", 0, trace.steps)
    return Cut.of(guider.drafts(trace, range(step, step + 1)))


def guider_points(trace: Trace, fields: Fields) -> Cut:
    """Both probabilities and the verdict of each token drafted in a window of steps.

    Of many tokens, those of every n-th step that drafts are given; the fact `every` is n.
    """
    guider.check_guided(trace)
    steps = fields.window("step", trace.steps)
    found, every = guider.probability_points(trace, range(steps.start, steps.stop))
    return Cut(found, _span(steps) | {"every": every})


def _span(steps: slice) -> dict[str, Any]:
    """The window of steps that an array holds."""
    return {"step_from": steps.start, "step_to": steps.stop}
