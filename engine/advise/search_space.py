"""The settings that a search may choose from, and the published ones that it has to beat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product

from engine.batch.settings import NamedSpec
from engine.cache.calibration.drift_profile import DriftProfile
from engine.catalog import derive_plan, policies
from engine.config.knobs import Scalar, searched_values
from engine.config.presets import Preset
from engine.config.spec import RunSpec
from engine.models.base import ModelInfo
from engine.models.loading.random_weights import PUBLISHED
from engine.models.loading.registry import REGISTERED

MAX_GRID = 2_000
DEFAULT = "defaults"
ALL = "all"
Knobs = Mapping[str, Scalar]


def searchable(info: ModelInfo | None = None) -> list[str]:
    """The caches with knobs to search, by name: all, or those for the attention of a model."""
    return [
        name
        for name, kind in policies().items()
        if searched_values(kind) and (info is None or info.attention in kind.attention)
    ]


def named_caches(text: str, info: ModelInfo) -> list[str]:
    """The caches that a text names, separated by commas; ALL stands for the searchable ones."""
    return searchable(info) if text == ALL else [name.strip() for name in text.split(",")]


def with_cache(base: RunSpec, cache: str, knobs: Knobs) -> RunSpec:
    """A spec with another cache; knobs of the unmasker are kept."""
    kept = {key: value for key, value in base.knobs.items() if _owner(key) == base.unmasker}
    return replace(base, cache=cache, knobs={**kept, **knobs})


def grid(base: RunSpec, cache: str) -> list[RunSpec]:
    """Every possible setting of a cache: all values to search of its knobs, over `base`.

    The values are those that the method's knobs name; settings that the method refuses are left
    out. Raises ValueError naming `cache` if it is unknown, has no knobs to search or too many
    settings.
    """
    values: dict[str, tuple[Scalar, ...]] = {}
    for name in cache.split("+"):
        if name not in policies():
            raise ValueError(f"cache: {name!r} is unknown; choose from {', '.join(searchable())}")
        own = searched_values(policies()[name])
        values |= {f"{name}.{knob}": found for knob, found in own.items()}
    if not values:
        raise ValueError(
            f"cache: {cache} has no settings to search; choose from {', '.join(searchable())}"
        )
    rows = [dict(zip(values, row, strict=True)) for row in product(*values.values())]
    if len(rows) > MAX_GRID:
        raise ValueError(
            f"cache: {cache} has {len(rows)} settings to search, more than {MAX_GRID}; search its "
            "methods one by one"
        )
    return list(_possible(base, cache, rows))


def fitted(base: RunSpec, cache: str, profile: Callable[[str], DriftProfile]) -> list[RunSpec]:
    """Settings that follow from the recorded drifts of exact runs; see `fitted_knobs`."""
    rows: list[dict[str, Scalar]] = []
    for name in cache.split("+"):
        found = policies()[name].fitted_knobs(profile)
        rows += [{f"{name}.{knob}": value for knob, value in one.items()} for one in found]
    return list(_possible(base, cache, rows))


def published(base: RunSpec, cache: str, family: str) -> list[NamedSpec]:
    """The method's defaults, and its settings in the presets of the model and its family.

    Those that do not go with `base` are left out, such as a sub-block that does not divide its
    block. Of a preset only the knobs of the cache are taken; lengths, unmasker and end of text are
    those of `base`. Settings that several tasks share appear once, under the name of the first. A
    title that several models use for other settings is followed by the knobs.
    """
    found = {_text(one): NamedSpec(DEFAULT, one) for one in _possible(base, cache, [{}])}
    for preset in _presets(base.model, family):
        if preset.fields.get("cache") != cache:
            continue
        own = {k: v for k, v in preset.fields.items() if "." in k and _owner(k) in cache.split("+")}
        for spec in _possible(base, cache, [own]):
            used = preset.title in {one.name for one in found.values()}
            name = f"{preset.title} ({name_of(spec)})" if used else preset.title
            found.setdefault(_text(spec), NamedSpec(name, spec))
    return list(found.values())


def without_repeats(specs: Iterable[RunSpec]) -> list[RunSpec]:
    """The specs without those that run like an earlier one."""
    return list({_text(one): one for one in reversed(list(specs))}.values())[::-1]


def title_of(cache: str) -> str:
    """The title of a cache; that of a stack names its upper method first."""
    return " on ".join(policies()[name].title for name in reversed(cache.split("+")))


def name_of(spec: RunSpec) -> str:
    """The knobs of a spec's cache in words; `defaults` if it sets none."""
    own = {key: value for key, value in spec.knobs.items() if _owner(key) != spec.unmasker}
    words = [f"{key.partition('.')[2]} {_value(value)}" for key, value in own.items()]
    return ", ".join(words) or DEFAULT


def _possible(base: RunSpec, cache: str, rows: list[dict[str, Scalar]]) -> Iterator[RunSpec]:
    """The specs of knobs that the method accepts."""
    for knobs in rows:
        try:
            spec = with_cache(base, cache, knobs)
            derive_plan(spec)
        except ValueError:
            continue
        yield spec


def _presets(model: str, family: str) -> list[Preset]:
    """The presets of a model, then those of the first published model of its family."""
    own = list(REGISTERED[model].presets) if model in REGISTERED else []
    config = PUBLISHED.get(family)
    cards = [card for card in REGISTERED.values() if config and card.config == config]
    return own + [preset for card in cards[:1] for preset in card.presets]


def _owner(key: str) -> str:
    return key.partition(".")[0]


def _value(value: Scalar) -> str:
    return "off" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _text(spec: RunSpec) -> str:
    """What two specs have in common if they run alike: all knobs, defaults included."""
    knobs = {}
    for name in spec.cache.split("+"):
        kind = policies()[name]
        own = {k.partition(".")[2]: v for k, v in spec.knobs.items() if _owner(k) == name}
        knobs[name] = str(kind(**own))
    return str(knobs)
