"""Vocabulary: the catalog of models and methods, looked up by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.spec import RaceSpec


class Vocabulary:
    """The catalog, looked up by name; `a+b` is the cache b standing on a."""

    def __init__(self, catalog: Mapping[str, Any], default: RaceSpec) -> None:
        self.default = default
        self.models: list[dict[str, Any]] = list(catalog["models"])
        self.any_model: bool = catalog["any_model"]
        self.guiders: list[str] = list(catalog.get("guiders", ()))
        titles = catalog.get("device_titles", {})
        self.devices: list[str] = list(catalog["devices"])
        self.device_choices = [
            (f"{name} · {titles[name]}" if name in titles else name, name) for name in self.devices
        ]
        self.methods = {kind: list(catalog[kind + "s"]) for kind in ("unmasker", "cache")}
        self.fields = {row["name"]: row for row in catalog["fields"]}

    def presets(self, model: Any) -> list[Mapping[str, Any]]:
        """The named settings of a model; none where it is not on the list."""
        return [one for row in self.models if row["name"] == model for one in row["presets"]]

    def choices(self, kind: str) -> list[tuple[str, str]]:
        """Title and name of every unmasker, or of every cache and every pair that may stack."""
        single = [(str(row["title"]), str(row["name"])) for row in self.methods[kind]]
        pairs = [
            (f"{row['title']} on {base['title']}", f"{base['name']}+{row['name']}")
            for row in self.methods[kind]
            for base in self.methods[kind]
            if base["name"] in row.get("stackable_on", ()) and base["name"] != "none"
        ]
        return single + pairs

    def parts(self, kind: str, name: Any) -> list[Mapping[str, Any]]:
        """The descriptions that a name stands for; none where it is not a choice."""
        if name not in [choice for _, choice in self.choices(kind)]:
            return []
        rows = {row["name"]: row for row in self.methods[kind]}
        return [rows[part] for part in str(name).split("+")]

    def scheduled(self, unmasker: Any) -> bool:
        """Whether the unmasker spends `steps`."""
        return any(row["scheduled"] for row in self.parts("unmasker", unmasker))

    def title(self, spec: Mapping[str, Any]) -> str:
        """A lane's name: its methods, and the knob of the unmasker that decides."""
        cache, unmasker = (str(spec.get(kind, ""))[:40] for kind in ("cache", "unmasker"))
        start = spec.get("start")
        step = start.get("step") if isinstance(start, Mapping) else None
        tail = f", from step {step + 1}" if type(step) is int else ""
        if cache == "none" and self.scheduled(unmasker):
            return "Plain decoding" + tail
        parts = [] if cache == "none" else [self._title("cache", cache)]
        knobs = spec.get("knobs")
        knob = knobs.get(f"{unmasker}.{unmasker}", "") if isinstance(knobs, Mapping) else ""
        parts.append(f"{self._title('unmasker', unmasker)} {str(knob)[:12]}".strip())
        return " + ".join(parts) + tail

    def _title(self, kind: str, name: str) -> str:
        return next((title for title, choice in self.choices(kind) if choice == name), name)
