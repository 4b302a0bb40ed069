"""Requests for an estimate: a spec on another model and device, by their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.config.spec import RunSpec
from engine.estimate.assumptions import Assumptions
from engine.estimate.devices import GPUS, THIS_MACHINE
from engine.estimate.estimate import Target, estimate, known_model
from engine.estimate.recorded import assumptions_of
from engine.models.base import ModelInfo
from engine.models.loading.random_weights import is_random_model
from engine.models.loading.registry import REGISTERED
from engine.trace.trace import Trace

FIELDS = ("tokens_per_forward", "share")


class KnownModels(Protocol):
    """The models of a session, as far as an estimate needs them."""

    def info(self, name: str) -> ModelInfo | None:
        """The sizes of a model; None if they are not known. ValueError names `model`."""

    def prompt(self, spec: RunSpec) -> list[int] | None:
        """The ids of a spec's prompt; None if its model is not on this machine."""

    def suffix_tokens(self, spec: RunSpec) -> int:
        """The number of tokens of a spec's suffix; 0 if its model is not on this machine."""


@dataclass(frozen=True)
class EstimateRequest:
    """What an estimate is asked for.

    `model` is a listed name, one of this machine, or a shape such as `llada:layers=4,d=64`;
    `device` a published GPU or `this`. `prompt_tokens` None: those of the spec's prompt on its own
    model, as those of its suffix always are; 1 if that model is not on this machine, which the
    estimate says. `assumptions` may have `tokens_per_forward` and `share`; what they leave out is
    that of the run `recorded`, or a default.
    """

    model: str
    device: str
    prompt_tokens: int | None = None
    assumptions: Mapping[str, float | None] = field(default_factory=dict)
    recorded: Trace | None = None


def estimate_spec(models: KnownModels, spec: RunSpec, request: EstimateRequest) -> dict[str, Any]:
    """The estimate of a spec; see `engine.estimate.estimate`.

    Raises ValueError naming `model`, `device`, `prompt_tokens`, `assumptions`, `recorded` or the
    setting that is wrong.
    """
    if not isinstance(request.model, str) or not isinstance(request.device, str):
        raise ValueError("model: the model and the device of an estimate are names")
    listed = REGISTERED.get(request.model)
    known = is_random_model(request.model) or (listed is not None and not listed.embedded)
    info = known_model(request.model, None if known else models.info(request.model))
    tokens, known_length = request.prompt_tokens, True
    if tokens is None:
        prompt = models.prompt(spec)
        tokens, known_length = max(len(prompt or ()), 1), prompt is not None
    target = Target(request.model, info, tokens, models.suffix_tokens(spec), known_length)
    return estimate(spec, target, request.device, _assumptions(spec, request))


def estimate_choices(described: Iterable[Mapping[str, Any]], public: bool) -> dict[str, Any]:
    """Models and devices of an estimate, as pairs of title and name; large models come first.

    `described` are the models of a catalog. On a public page this machine is not measured.
    """
    rows = [row for row in described if row["registered"]]
    rows.sort(key=lambda row: row["embedded"])
    devices = [(gpu.title, gpu.name) for gpu in GPUS.values()]
    here = [] if public else [("This machine, measured", THIS_MACHINE)]
    return {"models": [(row["title"], row["name"]) for row in rows], "devices": devices + here}


def _assumptions(spec: RunSpec, request: EstimateRequest) -> Assumptions:
    """Those given, and for the others those of the recorded run."""
    given = request.assumptions
    if not isinstance(given, Mapping) or set(given) - set(FIELDS):
        raise ValueError(f"assumptions: expected a mapping with {' or '.join(FIELDS)}")
    try:
        own = Assumptions(given.get("tokens_per_forward"), given.get("share"))
    except ValueError as error:
        raise ValueError(f"assumptions: {error}") from None
    if request.recorded is None:
        return own
    found = assumptions_of(request.recorded, spec)
    return Assumptions(
        found.tokens_per_forward if own.tokens_per_forward is None else own.tokens_per_forward,
        found.share if own.share is None else own.share,
        found.source,
        found.filled if own.tokens_per_forward is None else 0,
        frozenset(name for name in FIELDS if getattr(own, name) is not None),
    )
