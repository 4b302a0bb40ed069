"""Catalog: models, methods and fields of the session, looked up by name."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from engine.config.knobs import text_knobs
from engine.config.spec import RaceSpec


class Catalog:
    """The session's catalog with look-ups by name.

    A stacked cache has a name of the form `a+b`: the cache b on top of the cache a.
    """

    def __init__(self, catalog: Mapping[str, Any], default: RaceSpec) -> None:
        self.default = default
        self.models: list[dict[str, Any]] = list(catalog["models"])
        self.any_model: bool = catalog["any_model"]
        self.trace_bytes: int = catalog["trace_bytes"]  # the largest trace file
        self.image_bytes: int = catalog["image_limits"]["file_bytes"]  # the largest image file
        self.guiders: list[str] = list(catalog["guiders"])
        self.estimates: Mapping[str, Any] = catalog["estimates"]  # models and devices
        titles = catalog["device_titles"]
        self.devices: list[str] = list(catalog["devices"])
        self.device_choices = [
            (f"{name} · {titles[name]}" if name in titles else name, name) for name in self.devices
        ]
        self.methods = {kind: list(catalog[kind + "s"]) for kind in ("unmasker", "cache")}
        self.fields = {row["name"]: row for row in catalog["fields"]}
        self.text_knobs = text_knobs(chain.from_iterable(self.methods.values()))

    def presets(self, model: Any) -> list[Mapping[str, Any]]:
        """The presets of a model; an empty list for an unknown model."""
        return [one for row in self.models if row["name"] == model for one in row["presets"]]

    def choices(self, kind: str) -> list[tuple[str, str]]:
        """(title, name) of every method of a kind: `unmasker`, or `cache` with all legal stacks."""
        single = [(str(row["title"]), str(row["name"])) for row in self.methods[kind]]
        pairs = [
            (f"{row['title']} on {base['title']}", f"{base['name']}+{row['name']}")
            for row in self.methods[kind]
            for base in self.methods[kind]
            if base["name"] in row.get("stackable_on", ()) and base["name"] != "none"
        ]
        return single + pairs

    def parts(self, kind: str, name: Any) -> list[Mapping[str, Any]]:
        """The catalog rows of a method: two for a stacked cache, none for an unknown name."""
        if name not in [choice for _, choice in self.choices(kind)]:
            return []
        rows = {row["name"]: row for row in self.methods[kind]}
        return [rows[part] for part in str(name).split("+")]

    def uses_steps(self, unmasker: Any) -> bool:
        """Whether the unmasker uses the field `steps`."""
        return any(row["scheduled"] for row in self.parts("unmasker", unmasker))

    def title(self, spec: Mapping[str, Any]) -> str:
        """The title of a lane: its methods, and the unmasker's main knob or the causal model."""
        cache, unmasker = (str(spec.get(kind, ""))[:40] for kind in ("cache", "unmasker"))
        if cache == "none" and self.uses_steps(unmasker):
            usual = unmasker == self.default.a.unmasker
            order = "" if usual else f" ({self._title('unmasker', unmasker)})"
            return "Plain decoding" + order
        parts = [] if cache == "none" else [self._title("cache", cache)]
        knobs = spec.get("knobs")
        knobs = knobs if isinstance(knobs, Mapping) else {}
        knob, title = knobs.get(f"{unmasker}.{unmasker}", ""), self._title("unmasker", unmasker)
        if model := str(knobs.get("autoregressive.model", ""))[:40]:
            return f"{title} ({model})"
        parts.append(f"{title} {str(knob)[:12]}".strip())
        return " + ".join(parts)

    def _title(self, kind: str, name: str) -> str:
        return next((title for title, choice in self.choices(kind) if choice == name), name)
