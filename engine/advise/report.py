"""Advice as plain data and as a table.

A search may go on in another thread meanwhile, so what it fills is copied before it is read.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from engine.advise.advisor import FIRST_TEST, Advice, CacheAdvice
from engine.advise.measuring import Measured
from engine.advise.prediction import Prediction
from engine.advise.search_space import title_of, without_repeats
from engine.batch.outcome import Outcome
from engine.catalog import decoding_rules
from engine.config.spec import RaceSpec, RunSpec
from engine.core.tables import markdown_table, percentage

CARD = "run-card.json"
REPEAT = f"python -m engine repeat {CARD}"
HEAD = (
    "cache", "setting", "from", "prompts", "speed-up", "95 %", "kept", "95 %", "gained, lost", "p",
    "recomputed", "accepted", "on the Pareto front",
)  # fmt: skip


def advice_document(advice: Advice) -> dict[str, Any]:
    """Advice as plain data.

    `request` (without the prompts), `environment`, `finished`, `chosen` (None: plain decoding),
    `front`, and `caches`: of each its title, the size of its grid, runs of the search, runs that
    the whole grid would need, rank correlations of the predictions, every setting measured in the
    search, the settings of the final test, and what was not tested.
    """
    request, chosen = advice.request, advice.chosen()
    asked = {
        "base": request.base.to_dict(), "caches": list(request.caches), "keep": request.keep,
        "of": request.kind, "candidates": request.candidates, "random": request.random,
        "seed": request.seed, "search_prompts": len(request.search_prompts),
        "held_back_prompts": len(request.held_back),
    }  # fmt: skip
    return {
        "request": asked,
        "environment": dict(advice.environment),
        "finished": advice.finished,
        "chosen": None if chosen is None else _chosen(advice, *chosen),
        "front": [list(point) for point in advice.front()],
        "caches": [_cache(advice, name, found) for name, found in list(advice.caches.items())],
        "not_tested": untested(advice),
    }


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def untested(advice: Advice) -> list[str]:
    """What the advice says nothing about, in sentences."""
    request, said = advice.request, []
    for cache, found in list(advice.caches.items()):
        name, search = title_of(cache), found.search
        if found.problem:
            said.append(f"{name}: {found.problem}.")
        drawn = found.drawn.measured if found.drawn else {}
        both = [*search.measured.values(), *drawn.values()]
        ran, known = len(without_repeats(one.named.spec for one in both)), len(search.predictions)
        also = f" and {search.others} other, published or fitted ones" if search.others else ""
        others = "; the others were not" if ran < search.grid + search.others else ""
        said.append(
            f"{name}: of {search.grid} settings{also}, {known} {_were(known)} predicted and {ran} "
            f"{_were(ran)} run{others}."
        )
        if not found.held_back:
            said.append(f"{name}: no setting was tested on new prompts.")
        few = [
            one for one in list(found.held_back.values())
            if len(one.pairs) <= FIRST_TEST and not one.may_keep(request.keep)
        ]  # fmt: skip
        if few and len(request.held_back) > FIRST_TEST:
            said.append(
                f"{name}: {len(few)} setting{'s' * (len(few) > 1)} kept too little on the first "
                f"{FIRST_TEST} new prompts and {_were(len(few))} not run on the others."
            )
    base, rule = request.base, decoding_rules()[request.base.unmasker]
    said.append(
        f"Everything was measured with the unmasker {rule.title}, answers of {base.gen_length} "
        f"in blocks of {base.block_length}, {base.dtype} on {base.device}; other lengths, "
        "unmaskers, formats and machines were not tested."
    )
    if advice.failed:
        said.append(
            f"Plain decoding failed on {len(advice.failed)} of the {len(request.held_back)} "
            f"prompts of the test, which are left out: {next(iter(advice.failed.values()))}"
        )
    if advice.tested:
        said.append(_about_prompts(advice.tested))
    return said


def _about_prompts(count: int) -> str:
    """How many prompts a setting may change although it changes none of `count`.

    At the rate named, `count` prompts without a change have a probability of 5 %. A bootstrap
    interval does not show this: that of equal values is a point.
    """
    rate = 1 - 0.05 ** (1 / count)
    return (
        f"The test has {count} prompts. A setting that changes none of them may still change "
        f"{100 * rate:.2g} % of others like them (95 % confidence); intervals of equal values do "
        "not show that. Other kinds of prompts may keep less."
    )


def advice_table(advice: Advice) -> str:
    """The settings of the final tests as a Markdown table, and sentences on the search."""
    front = set(advice.front())
    rows = [
        _row(cache, found, name, one, (cache, name) in front)
        for cache, found in advice.caches.items()
        for name, one in sorted(found.held_back.items(), key=lambda item: -item[1].speed_up)
    ]
    lines = [markdown_table(HEAD, rows), ""]
    lines += [_searched(name, found) for name, found in advice.caches.items()]
    chosen = advice.chosen()
    if chosen:
        name, own = chosen[1], advice.caches[chosen[0]].held_back[chosen[1]]
        link = _race(advice, own).to_query()
        slower = "" if own.speed_up > 1 else " It is not faster, so plain decoding serves better."
        lines += [
            "", f"Chosen: {name}, {own.speed_up:.2f} times as fast as plain decoding.{slower}",
            "", f"To race it, add this to the address of the page: `?{link}`",
        ]  # fmt: skip
    elif advice.finished:
        lines += ["", "Chosen: plain decoding; the test accepted no setting."]
    lines += ["", "Not tested:", *(f"- {one}" for one in untested(advice))]
    return "\n".join(lines) + "\n"


def race_of(plain: RunSpec, spec: RunSpec, prompt: str) -> RaceSpec:
    """A race of plain decoding and a setting on a prompt."""
    lanes = [dataclasses.replace(one, prompt=prompt, messages=()) for one in (plain, spec)]
    return RaceSpec(*lanes)


def _race(advice: Advice, measured: Measured) -> RaceSpec:
    """The race of a setting against plain decoding (`Advice.raced`)."""
    return race_of(advice.request.plain, measured.named.spec, advice.raced.prompt)


def _chosen(advice: Advice, cache: str, name: str) -> dict[str, Any]:
    """The chosen setting: its figures, its spec, a preset and the link of a race."""
    own = advice.caches[cache].held_back[name]
    spec, race = own.named.spec, _race(advice, own)
    fields = {k: v for k, v in spec.to_dict().items() if k not in ("model", "prompt", "messages")}
    preset = {"name": "advised", "title": name, "source": "measured", "fields": fields}
    card = _run_card(advice, race, own)
    return _measured(own) | {
        "cache": cache, "preset": preset, "query": race.to_query(), "card": card,
    }  # fmt: skip


def _run_card(advice: Advice, race: RaceSpec, chosen: Measured) -> dict[str, Any]:
    """The run card of the chosen setting's race (`engine.config.run_card`).

    Its results are those of the race's prompt, as they were measured in the final test.
    """
    where, request = advice.environment, advice.request
    lanes = {
        lane: {
            "spec": spec.to_dict(),
            "model": {"name": spec.model, "digest": where.get("checkpoint")},
            "guider": None,
            "results": {"reason": outcome.reason, "text": outcome.text, "metrics": _costs(outcome)},
        }
        for lane, spec, outcome in zip(("a", "b"), (race.a, race.b), chosen.pairs[0], strict=True)
    }
    advised = {
        "keep": request.keep, "of": request.kind, "prompts": len(chosen.pairs),
        "setting": _measured(chosen), "not_tested": untested(advice),
    }  # fmt: skip
    return {
        "run": "advised", "lanes": lanes, "summary": {}, "repeat": REPEAT,
        "environment": dict(where), "advice": advised,
    }  # fmt: skip


def _costs(outcome: Outcome) -> dict[str, Any]:
    """The costs of a run, under the names of a trace's metrics."""
    return {
        "nfe": outcome.forwards, "text_nfe": outcome.text_forwards, "total_ms": outcome.ms,
        "text_ms": outcome.text_ms, "gflops": outcome.gflops, "recomputed": outcome.recomputed,
        "cache_bytes": outcome.cache_bytes,
    }  # fmt: skip


def _cache(advice: Advice, name: str, found: CacheAdvice) -> dict[str, Any]:
    search, prompts = found.search, len(advice.request.search_prompts)
    return {
        "cache": name,
        "title": title_of(name),
        "grid": search.grid,
        "grid_runs": search.grid * prompts,
        "runs": search.runs,
        "random_runs": None if found.drawn is None else found.drawn.runs,
        "correlations": search.correlations(),
        "searched": [_setting(found, one) for one in list(search.measured)],
        "held_back": [
            _measured(one) | {"from": found.origin(key), "chosen": key == found.chosen}
            for key, one in list(found.held_back.items())
        ],
    }


def _setting(found: CacheAdvice, name: str) -> dict[str, Any]:
    search = found.search
    own = search.predictions.get(name)
    predicted = None if own is None else _predicted(own)
    return _measured(search.measured[name]) | {"from": found.origin(name), "predicted": predicted}


def _predicted(own: Prediction) -> dict[str, Any]:
    return {
        "gflops": float(own.gflops.sum()), "recomputed": own.recomputed, "error": own.error,
        "time": own.time, "kept": own.kept,
    }  # fmt: skip


def _measured(own: Measured) -> dict[str, Any]:
    slow, fast = own.speed_up_interval
    return {
        "name": own.named.name, "spec": own.named.spec.to_dict(), "prompts": len(own.pairs),
        "speed_up": own.speed_up, "speed_up_low": slow, "speed_up_high": fast,
        "ms": own.ms, "recomputed": own.recomputed, "gflops": own.gflops,
        "kept": None if own.kept is None else dataclasses.asdict(own.kept),
    }  # fmt: skip


def _row(cache: str, found: CacheAdvice, name: str, own: Measured, front: bool) -> list[str]:
    kept, chosen = own.kept, " (chosen)" if name == found.chosen else ""
    several = len(own.pairs) > 1  # a single prompt gives no interval
    slow, fast = own.speed_up_interval
    figures = [""] * 4
    if kept is not None:
        discordant = f"{kept.gained}, {kept.lost}" if kept.p is not None else ""
        figures = [
            percentage(kept.share),
            f"{percentage(kept.low)} to {percentage(kept.high)}" if several else "",
            discordant, "" if kept.p is None else f"{kept.p:.2g}",
        ]  # fmt: skip
    return [
        cache, name.partition(": ")[2] + chosen, found.origin(name), str(len(own.pairs)),
        f"{own.speed_up:.2f}", f"{slow:.2f} to {fast:.2f}" if several else "", *figures,
        percentage(own.recomputed),
        "yes" if name in found.accepted else "no", "yes" if front else "",
    ]  # fmt: skip


def _searched(name: str, found: CacheAdvice) -> str:
    """A sentence on the size of a search, and how well the prediction ranked its settings."""
    search, ranks = found.search, found.search.correlations()
    said = f"{title_of(name)}: {search.runs} runs chose among {search.grid} settings"
    words = [
        f"{ranks[key]:.2f} for {what}"
        for key, what in (("kept", "what is kept"), ("time", "the time"))
        if ranks[key] is not None
    ]
    if words:
        said += f"; rank correlation of prediction and measurement: {', '.join(words)}"
    return said + "."
