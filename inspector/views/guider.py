"""Guider: how much of each step's draft an autoregressive model accepted, and its cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.core.events import PARTS
from engine.trace.trace import Trace
from inspector.page_data.lane_card import guider_facts
from inspector.page_data.packing import pack_arrays
from inspector.page_data.timeline import places
from inspector.page_data.tokens import pieces
from inspector.views import verdicts
from inspector.views.verdicts import column

RULE = {  # defaults of the unmasker's knobs, used if a spec leaves them out
    "guider": "tiny-qwen2", "rule": "rel", "k": 2, "tau": 0.5, "fallback": "dlm", "block": 32,
    "multi_chunk": True,
}  # fmt: skip
DRAFTS = ("step", "position", "id", "p_f", "p_g", "ok", "kl")
TOKENS = ("id", "p", "ok", "rank", "top", "top_p")
PART = PARTS.index("guider")
MAX_POINTS = 80_000  # drafted tokens, about, whose probabilities a slice has


def guider(trace: Trace) -> dict[str, Any]:
    """The guided steps of a run; only `{"asked": False}` for a run without a guider.

    Returns a document with:

    - `cells` [S, G]: the verdict of each step on each answer token as a code into `names`, 255 if
      the token was not drafted;
    - `drafted`, `accepted` [S]: numbers of tokens; `fell_back` [S]: 1 where the fallback's token
      was committed; `mean` [S]: the mean of `accepted` so far, NaN before the first draft;
    - `histogram` [K + 1]: number of steps by accepted length k; `survival` [K + 1]: Pr(k >= j);
      these three are of the steps that draft tokens;
    - `reached` [S]: tokens so far per step that drafts tokens, NaN before the first one; `needed`
      [S]: the tokens per such step that offset the guider's FLOPs (see `break_even`);
    - `numbers`: sums and shares of the run;
    - if the verdicts were recorded, `draft_*` [J] and `guider_*` [H] as in the trace, and `span`
      [J, 2]: the guider tokens that spell each drafted token.

    Raises ValueError if the verdicts do not fit the answer.
    """
    found = guider_facts_of(trace)
    if not found["asked"]:
        return found
    own = {"cells": verdicts.cells(trace)} | drafts(trace, range(trace.steps))
    return pack_arrays(found | own)


def guider_facts_of(trace: Trace) -> dict[str, Any]:
    """What `guider` returns for whole steps and for the run, without `cells` and tokens."""
    arrays = trace.arrays()
    if not len(arrays["guided_count"]):
        return {"asked": False}
    return acceptance(trace) | {
        "asked": True,
        "about": guider_facts(trace),
        "rule": rule(trace),
        "names": list(verdicts.NAMES),
        "recorded": bool(len(arrays["draft_step"])),
        "numbers": numbers(trace),
    }


def acceptance(trace: Trace) -> dict[str, Any]:
    """How much of each step's draft the guider accepted, in a run with a guider.

    Returns the arrays `drafted`, `accepted`, `fell_back`, `mean`, `histogram`, `survival`,
    `reached` and `needed` of `guider`. Raises ValueError if the verdicts do not fit the answer.
    """
    verdicts.check(trace)
    arrays, accepted, tokens = trace.arrays(), column(trace, "accepted"), own_commits(trace)
    flops = arrays["flops"].sum(1) - arrays["flops"][:, PART]
    drafting = drafting_steps(trace)
    counts = np.bincount(accepted[drafting], minlength=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean, reached = (np.cumsum(own) / np.cumsum(drafting) for own in (accepted, tokens))
    return {
        "drafted": column(trace, "drafted").astype(np.int32),
        "accepted": accepted.astype(np.int32),
        "fell_back": column(trace, "fell_back").astype(np.int32),
        "mean": mean.astype(np.float32),
        "histogram": counts.astype(np.int32),
        "survival": (counts[::-1].cumsum()[::-1] / max(drafting.sum(), 1)).astype(np.float32),
        "reached": reached.astype(np.float32),
        "needed": break_even(arrays["guided_flops"][:, 0], flops * drafting),
    }


def drafts(trace: Trace, steps: range) -> dict[str, Any]:
    """The drafted tokens of `steps` and the guider's: `draft_*`, `guider_*`, `span`, both texts.

    `span` are indices into the `guider_*` arrays that are returned.
    """
    arrays = trace.arrays()
    ends = steps.start, steps.stop
    mine, theirs = (slice(*map(int, np.searchsorted(arrays[f"{name}_step"], ends)))
                    for name in ("draft", "guider"))  # fmt: skip
    found: dict[str, Any] = {f"draft_{name}": arrays[f"draft_{name}"][mine] for name in DRAFTS}
    found |= {f"guider_{name}": arrays[f"guider_{name}"][theirs] for name in TOKENS}
    spans = verdicts.spans(trace, steps)[mine]
    ids = np.unique(np.concatenate((found["guider_id"], found["guider_top"]))).tolist()
    return found | {
        "span": np.where(spans == verdicts.NO_TOKEN, spans, spans - np.int32(theirs.start)),
        "pieces": pieces(trace.pieces, np.unique(found["draft_id"]).tolist()),
        "guider_pieces": pieces(trace.guider_pieces, ids),
    }


def probability_points(trace: Trace, steps: range) -> tuple[dict[str, np.ndarray], int]:
    """The drafted tokens of `steps`: `draft_step`, `draft_position`, `draft_p_f`, `draft_p_g`.

    `verdict` [J] is the code of each token's verdict, as in `cells` of `guider`. Beyond about
    MAX_POINTS tokens, they are those of every n-th step that drafts tokens; n comes second.
    """
    arrays, index = trace.arrays(), places(trace)
    inside = slice(*map(int, np.searchsorted(arrays["draft_step"], (steps.start, steps.stop))))
    every = max(-(-(inside.stop - inside.start) // MAX_POINTS), 1)
    rank = np.unique(arrays["draft_step"][inside], return_inverse=True)[1]
    chosen = rank % every == 0
    names = ("draft_step", "draft_position", "draft_p_f", "draft_p_g")
    found = {name: arrays[name][inside][chosen] for name in names}
    where = found["draft_step"], index[found["draft_position"]]
    return found | {"verdict": verdicts.cells(trace)[where]}, every


def check_guided(trace: Trace) -> None:
    """Raise ValueError if the run has no guider or the verdicts do not fit the answer."""
    if not len(trace.arrays()["guided_count"]):
        raise ValueError("This run has no guider.")
    verdicts.check(trace)


def break_even(guided: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Tokens per step at which the cost of a guider is offset, cumulative, float32 [S].

    This is 1 + (cost of the guider) / (cost of everything else), summed up to each step. With
    fewer tokens per step, decoding one token per step without a guider would have cost less. NaN
    if everything else cost nothing.

    Args:
        guided: cost of the guider [S].
        rest: cost of everything else [S], in the same unit; 0 in steps that draft nothing, which
            a run without a guider takes too.
    """
    other = np.cumsum(rest.astype(float))
    share = np.cumsum(guided.astype(float)) / np.where(other > 0, other, np.nan)
    return (1 + share).astype(np.float32)


def own_commits(trace: Trace) -> np.ndarray:
    """Tokens committed by each step, int64 [S], without those filled in after the end of text."""
    arrays = trace.arrays()
    own = np.isfinite(arrays["commit_confidence"])
    return np.bincount(arrays["commit_step"][own], minlength=trace.steps)


def numbers(trace: Trace) -> dict[str, float | int | None]:
    """Sums and shares over all steps; a share is None if its denominator is 0.

    `top1` and so on are shares of the judged guider tokens, `nll` and `kl` are means in nats,
    `flops_share` and `prefill_share` are the shares of the guider and its prefill in all FLOPs.
    """
    arrays = trace.arrays()
    names = ("drafted", "accepted", "judged", "straddle_loss", "forwards", "fed", "prefilled")
    sums: dict[str, float | int | None] = {name: int(column(trace, name).sum()) for name in names}
    judged, tokens = column(trace, "judged"), int(own_commits(trace).sum())
    kl, nll = arrays["draft_kl"], arrays["guided_nll"].astype(float)
    weighed = np.where(np.isnan(nll), 0, nll) @ judged
    total = float(arrays["flops"].astype(float).sum())
    shares = {
        name: ratio(float(column(trace, name).sum()), judged.sum())
        for name in ("top1", "top2", "top5")
    }
    spent = arrays["guided_flops"].astype(float).sum(0)
    return sums | shares | {
        "tokens": tokens,
        "fallback_rate": ratio(column(trace, "fell_back").sum(), drafting_steps(trace).sum()),
        "nll": ratio(weighed, judged[~np.isnan(nll)].sum()),
        "kl": ratio(float(np.nansum(kl.astype(float))), np.isfinite(kl).sum()),
        "per_forward": ratio(tokens, int(arrays["forwards"].sum())),
        "per_guider_forward": ratio(tokens, int(column(trace, "forwards").sum())),
        "flops_share": ratio(spent[0], total),
        "prefill_share": ratio(spent[1], total),
    }  # fmt: skip


def rule(trace: Trace) -> dict[str, Any]:
    """The knobs of the guided unmasker as scalars; an invalid value is replaced by its default."""
    knobs = trace.meta["spec"].get("knobs")
    given: Mapping[str, Any] = knobs if isinstance(knobs, Mapping) else {}
    said = {name: given.get(f"guided.{name}", default) for name, default in RULE.items()}
    odd = [name for name, value in said.items() if type(value) not in (type(RULE[name]), int)]
    return said | {name: RULE[name] for name in odd}


def ratio(part: float, whole: float) -> float | None:
    """Quotient of `part` and `whole`, or None if `whole` is not positive."""
    return float(part) / float(whole) if whole > 0 else None


def drafting_steps(trace: Trace) -> np.ndarray:
    """The steps that draft tokens, bool [S]; the others compute rows of known tokens.

    Of a draft that the guider's tokens cannot spell no token is counted as drafted.
    """
    return (column(trace, "drafted") > 0) | (column(trace, "fell_back") > 0)
