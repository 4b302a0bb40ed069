"""Logit lens: the token that each layer would give, in the run's own pass and in the exact one."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core.events import NOT_COMPUTED
from engine.trace.trace import Trace
from inspector.page_data.packing import pack_arrays
from inspector.page_data.tokens import pieces

PASSES = ("run", "exact")
NEVER = -1
NO_TOKEN = -1


def lens(trace: Trace) -> dict[str, Any]:
    """The logit lens of the probed steps of a run, over n positions of the answer.

    Returns a document with the arrays of `lens_facts` and of each probed step (first axis):

    - `ids` [E, 2, L, n]: see `ids_of`;
    - `probs`, `token_probs` [E, 2, L, n]: see `codes_of`;
    - `stays` [E, 2, n], `turned` [E, n]: see `layers_of`;
    - `pieces`: the texts of all ids.

    Raises ValueError if the run has none.
    """
    facts = lens_facts(trace)
    probes = range(len(facts["step"]))
    ids = np.stack([ids_of(trace, probe) for probe in probes])
    whole: dict[str, Any] = {"ids": ids}
    for name, token in (("probs", False), ("token_probs", True)):
        whole[name] = np.stack([codes_of(trace, probe, token) for probe in probes])
    found = [layers_of(trace, probe) for probe in probes]
    whole |= {name: np.stack([one[name] for one in found]) for name in ("stays", "turned")}
    return pack_arrays(facts | whole | {"pieces": pieces(trace.pieces, np.unique(ids).tolist())})


def check(trace: Trace) -> None:
    """Raise ValueError, with the remedy, if the run has no logit lens."""
    arrays = trace.arrays()
    if not len(arrays["probe_step"]):
        raise ValueError(
            "This run was not probed: press Record and probe to see what each layer would predict."
        )
    if not len(arrays["lens_id"]):
        raise ValueError(
            "This run was probed without the logit lens, by an earlier version or with "
            "record_positions outside of the answer: press Record and probe again."
        )


def lens_facts(trace: Trace) -> dict[str, Any]:
    """What is known of the whole run; a prediction is a position with logits in both passes.

    - `step` [E]: the probed steps; `position` [n]: the positions of the lens;
    - `compared`, `differing` [E, L]: positions that have a hidden state after the layer in both
      passes, and those of them whose best tokens differ there;
    - `predicted`, `flips` [E]: predictions, and those of them that differ;
    - `shift`: how far before its token a hidden row is.

    Raises ValueError if the run has no logit lens.
    """
    check(trace)
    arrays = trace.arrays()
    probes = range(len(arrays["probe_step"]))
    known = np.stack([(codes_of(trace, one) != NOT_COMPUTED).all(0) for one in probes])
    differ = known & (arrays["lens_id"][:, 0] != arrays["lens_id"][:, 1])
    compared, differing = (cells.sum(-1).astype(np.int32) for cells in (known, differ))
    return {
        "step": arrays["probe_step"],
        "position": arrays["lens_position"],
        "compared": compared,
        "differing": differing,
        "predicted": compared[:, -1].copy(),
        "flips": differing[:, -1].copy(),
        "shift": trace.logit_shift,
    }


def codes_of(trace: Trace, probe: int, token: bool = False) -> np.ndarray:
    """Codes of a probed step, uint8 [2, L, n]; NOT_COMPUTED where a pass predicts nothing.

    They are `probs` or, with `token`, `token_probs` of `engine.core.events.LogitLens`. Caches that
    keep outputs compute the last layer of more rows than the step predicts; those are left out.
    Raises ValueError if the run has no logit lens.
    """
    check(trace)
    arrays = trace.arrays()
    codes = arrays["lens_token_prob" if token else "lens_prob"][probe].copy()
    predicted = arrays["probe_position"][arrays["probe_row"] == probe]
    codes[:, -1, ~np.isin(arrays["lens_position"], predicted)] = NOT_COMPUTED
    return codes


def ids_of(trace: Trace, probe: int) -> np.ndarray:
    """The best tokens of a probed step after each layer, int32 [2, L, n].

    NO_TOKEN where `codes_of` is NOT_COMPUTED. Raises ValueError if the run has no logit lens.
    """
    known = codes_of(trace, probe) != NOT_COMPUTED
    return np.where(known, trace.arrays()["lens_id"][probe], NO_TOKEN)


def layers_of(trace: Trace, probe: int) -> dict[str, np.ndarray]:
    """The layers at which the tokens of a probed step are decided, int32 indices from 0.

    - `stays` [2, n]: in each pass, the first layer from which the best token is that of the last
      layer; NEVER if the pass has no logits at the position;
    - `turned` [n]: the first layer from which the run's best token differs from the exact one up to
      the last layer; NEVER if the predictions are equal or not compared;
    - `final` [2, n]: the best token after the last layer, NO_TOKEN if it was not computed.

    Raises ValueError if the run has no logit lens.
    """
    ids = ids_of(trace, probe)
    known, final = ids != NO_TOKEN, ids[:, -1]
    stays = _first_of_the_end(known & (ids == final[:, None]))
    turned = _first_of_the_end(known.all(0) & (ids[0] != ids[1]))
    return {"stays": stays, "turned": turned, "final": final}


def cells(trace: Trace, probe: int, of_pass: int, token: bool) -> np.ndarray:
    """Codes of a probed step and a pass by layer and canvas position, uint8 [L, T].

    They are the probabilities of the best token or, with `token`, of the one that is best after the
    last layer of the exact pass; NOT_COMPUTED where there is none. Raises ValueError if the run has
    no logit lens.
    """
    arrays, codes = trace.arrays(), codes_of(trace, probe, token)[of_pass]
    out = np.full((len(codes), len(arrays["canvas"])), NOT_COMPUTED, np.uint8)
    out[:, arrays["lens_position"]] = codes
    return out


def _first_of_the_end(flags: np.ndarray) -> np.ndarray:
    """First layer from which `flags` [..., L, n] are true up to the last one, or NEVER."""
    layers = flags.shape[-2]
    lasting = np.logical_and.accumulate(flags[..., ::-1, :], -2).sum(-2)
    return np.where(lasting > 0, layers - lasting, NEVER).astype(np.int32)
