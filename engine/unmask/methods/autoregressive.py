"""Autoregressive decoding: a causal model writes the answer token by token, with a KV cache."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cache.base import CachePolicy
from engine.config.knobs import knob
from engine.config.spec import RunSpec
from engine.unmask.base import DecodingRule


@dataclass
class Autoregressive(DecodingRule):
    """A causal model in place of the diffusion model: one token a forward, from left to right.

    The model of the spec is not used. The run ends with the first end of text.
    """

    name = "autoregressive"
    title = "Autoregressive decoding"
    summary = "A causal model writes one token a forward, left to right, with an exact KV cache."

    model: str = knob(
        "tiny-qwen2", label="Causal model",
        help="The model that decodes this lane: an embedded one, a Hub name or a folder.",
    )  # fmt: skip

    def check(self, policy: CachePolicy, spec: RunSpec) -> None:
        """Raise ValueError naming the field of a diffusion run that has no meaning here."""
        if spec.cache != "none":
            raise ValueError(
                "cache: autoregressive decoding has its own exact KV cache; set cache to none"
            )
        for name, off in (("cfg_scale", 0.0), ("eos_suppress", "none"), ("fixed", ())):
            if getattr(spec, name) != off:
                raise ValueError(
                    f"{name}: not available with autoregressive decoding; leave {name} out"
                )
        if spec.start is not None:
            raise ValueError("start: an autoregressive run cannot continue another; leave it out")

    def end_of_text_rule(self, eos: str) -> str:
        """At least fill_safe, since nothing is written after an end of text."""
        return "fill_safe" if eos == "official" else eos
