"""The catalog: makes methods from names and knobs, and describes every method as plain data.

python -m engine catalog                  prints the table of methods
python -m engine catalog --write-readme   updates the table in README.md
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import engine.cache.methods
import engine.unmask.methods
from engine.cache.base import CachePolicy
from engine.cache.stack import Stack
from engine.config.blocks import BlockGrid
from engine.config.knobs import describe_fields, text_knobs
from engine.config.plan import DerivedPlan, SharedBlocks, derive, quota
from engine.config.spec import RunSpec
from engine.core.command_line import table_command
from engine.core.method_docs import MethodDoc, read_method_docs
from engine.core.tables import README, markdown_table
from engine.models.base import ModelInfo
from engine.unmask.base import DecodingRule, Unmasker
from engine.unmask.proposals import SCORE_ALIASES

T = TypeVar("T")


@cache
def policies() -> dict[str, type[CachePolicy]]:
    """Every cache policy of engine.cache.methods by name; import errors are not caught."""
    return plugins(engine.cache.methods, CachePolicy)


@cache
def decoding_rules() -> dict[str, type[DecodingRule]]:
    """Every unmasker, and autoregressive decoding, by the name that a spec's `unmasker` has."""
    return plugins(engine.unmask.methods, DecodingRule)


@cache
def unmaskers() -> dict[str, type[Unmasker]]:
    """Every unmasker of engine.unmask.methods by name."""
    return plugins(engine.unmask.methods, Unmasker)  # type: ignore[type-abstract]


def method_doc(cls: type[CachePolicy] | type[DecodingRule]) -> MethodDoc:
    """The section of a method in the Markdown file beside its module; empty if there is none.

    Raises ValueError if the file cannot be read.
    """
    path = Path(inspect.getfile(cls)).with_suffix(".md")
    return read_method_docs(path).get(cls.name, MethodDoc())


def make_policy(spec: RunSpec) -> CachePolicy:
    """A new policy of a spec; `a+b` is b stacked on a.

    Raises ValueError that names `cache`, `unmasker` or the knob, and its valid values.
    """
    window, plus, reuse = spec.cache.partition("+")
    policy = _make(policies(), window, "cache", spec)
    if plus:
        policy = Stack(policy, _make(policies(), reuse, "cache", spec))
    rule = make_rule(spec)
    policy.check(spec.block_length, rule.has_planned_order)
    rule.check(policy, spec)
    return policy


def make_rule(spec: RunSpec) -> DecodingRule:
    """A new unmasker of a spec, or its autoregressive decoding; see `make_unmasker`."""
    return _make(decoding_rules(), spec.unmasker, "unmasker", spec)


def make_unmasker(spec: RunSpec) -> Unmasker:
    """A new unmasker of a spec.

    Raises ValueError naming `unmasker` if it is unknown or autoregressive, or the knob.
    """
    rule = make_rule(spec)
    if not isinstance(rule, Unmasker):
        raise ValueError(
            f"unmasker: {spec.unmasker} has no denoising steps, so this does not apply to it; "
            "choose another unmasker"
        )
    return rule


def derive_plan(
    spec: RunSpec, info: ModelInfo | None = None, tokens: int | None = None
) -> tuple[DerivedPlan, bool]:
    """The derived plan of a spec, and whether its unmasker uses the field `steps`.

    `info` is the model and `tokens` the prompt's length, if known. The blocks of a model with
    block-causal attention depend on both; the plan of an unknown prompt is that of the most blocks.
    Raises ValueError that names the method, the knob or the field that makes the run impossible.
    """
    rule = make_rule(spec)
    policy = make_policy(spec)
    check_knobs(spec)
    blocks = None
    if info is not None and info.block_causal and isinstance(rule, Unmasker):
        prompt = spec.block_length + 1 if tokens is None else tokens
        grid = BlockGrid.of(prompt, spec.gen_length, spec.block_length, True)
        blocks = SharedBlocks(grid, prompt, policy.most_fills(grid))
    limited = rule.scheduled and not policy.can_commit(_most_due(rule, spec))
    plan = derive(spec, rule.scheduled, rule.planned_counts, rule.guided, blocks, limited)
    return plan, rule.scheduled


def _most_due(rule: DecodingRule, spec: RunSpec) -> int:
    """The most tokens of a block that the schedule of a rule requires of one step."""
    steps = max(spec.steps // spec.blocks, 1)
    counts = rule.planned_counts(spec.block_length, steps)
    if counts is None and rule.confidence_decides:
        counts = quota(spec.block_length, steps)
    return spec.block_length if counts is None else max(counts)


def check_model(spec: RunSpec, info: ModelInfo) -> None:
    """Raise ValueError naming the field of a denoising run that does not fit the model.

    Fixed tokens have to be in its vocabulary; see also `check_methods`.
    """
    for _, token in spec.fixed:
        if token >= info.vocab_size or token == info.mask_id:
            raise ValueError(
                f"fixed: token id {token} is not a text token of the model, whose ids are below "
                f"{info.vocab_size}; choose another"
            )
    check_methods(spec, info)


def check_methods(spec: RunSpec, info: ModelInfo) -> None:
    """Raise ValueError naming the field of a method or block size that does not fit the model."""
    policy = make_policy(spec)
    if info.attention not in policy.attention:
        kinds = [policies()[name] for name in spec.cache.split("+")]
        title = " on ".join(kind.title for kind in reversed(kinds))
        if info.block_causal:
            raise ValueError(
                f"cache: {title} keeps rows that see the whole canvas, but a position of this "
                "model sees only the blocks up to its own; choose frozen, which is exact"
            )
        raise ValueError(
            f"cache: {title} needs block-causal attention, but every position of this model sees "
            "the whole canvas, so no block is ever final; choose none, prefix or dual"
        )
    if not info.block_causal:
        return
    if spec.block_length not in info.block_sizes:
        sizes = " or ".join(map(str, info.block_sizes))
        raise ValueError(
            f"block_length: {spec.block_length} is not a block size of this model; set it to "
            f"{sizes}"
        )
    if spec.cfg_scale:
        raise ValueError(
            "cfg_scale: guidance masks the prompt, whose blocks this model computes once for all; "
            "set it to 0"
        )
    if spec.suffix:
        raise ValueError(
            "suffix: the blocks of this model do not see text after the answer; leave it empty"
        )


def with_end_of_text_rules(specs: Sequence[RunSpec]) -> list[RunSpec]:
    """Runs that are compared, with the end-of-text rule by which each runs in its `eos`.

    Specs of the same `eos` keep a common rule: if an unmasker changes the rule of one of them
    (DecodingRule.end_of_text_rule), all get the changed one. Specs that differ in `eos` each get
    their own. Raises ValueError naming `unmasker` or a knob.
    """
    rules = [make_rule(spec).end_of_text_rule(spec.eos) for spec in specs]
    if len({spec.eos for spec in specs}) == 1:
        changed = [rule for rule in rules if rule != specs[0].eos]
        rules = [changed[0]] * len(specs) if changed else rules
    return [replace(spec, eos=rule) for spec, rule in zip(specs, rules, strict=True)]


def check_knobs(spec: RunSpec) -> None:
    """Raise ValueError for a knob of a method that the spec does not use."""
    used = {spec.unmasker, *spec.cache.split("+")}
    for key in spec.knobs:
        if key.split(".")[0] not in used:
            raise ValueError(
                f"{key}: this run does not use that method; its cache is {spec.cache}, its "
                f"unmasker {spec.unmasker}; leave the setting out"
            )


def describe() -> dict[str, list[dict[str, Any]]]:
    """Unmaskers, caches and the fields of a spec as plain data.

    Each method has its name, title, paper, summary, description, published figures and knobs, an
    unmasker whether it `denoises` (autoregressive decoding does not), and a cache the kinds of
    attention that it is made for and the reasons of its decisions (engine.core.reasons).
    """
    rules = decoding_rules().values()
    return {
        "unmaskers": [
            _described(c)
            | {"scheduled": c.scheduled, "guided": c.guided, "denoises": issubclass(c, Unmasker)}
            for c in rules
        ],
        "caches": [
            _described(c)
            | {"stackable_on": c.stackable_on, "reasons": [r._asdict() for r in c.reasons]}
            | {"attention": c.attention}
            for c in policies().values()
        ],
        "fields": describe_fields(RunSpec),
    }


@cache
def text_knobs_of_methods() -> frozenset[str]:
    """The names `method.knob` of the text knobs of all methods, see `RunSpec.from_flat`."""
    kinds: tuple[type[CachePolicy] | type[DecodingRule], ...]
    kinds = (*decoding_rules().values(), *policies().values())
    return frozenset(text_knobs({"name": c.name, "knobs": describe_fields(c)} for c in kinds))


def _described(cls: type[CachePolicy] | type[DecodingRule]) -> dict[str, Any]:
    """A method as plain data; `account` and `where` are older names of description and source."""
    row: dict[str, Any] = {n: getattr(cls, n) for n in ("name", "title", "paper", "summary")}
    doc = method_doc(cls)
    knobs = [
        knob | {"background": doc.knobs.get(knob["name"], "")} for knob in describe_fields(cls)
    ]
    published = [asdict(one) | {"where": one.source} for one in doc.published]
    return row | {
        "description": doc.description, "account": doc.description, "published": published,
        "knobs": knobs,
    }  # fmt: skip


def plugins(package: ModuleType, base: type[T]) -> dict[str, type[T]]:
    """The classes of a package's modules that derive from `base`, by their attribute `name`.

    `none` and `quota` come first, the others in alphabetical order.
    """
    found: dict[str, type[T]] = {}
    for entry in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{entry.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, base) and "name" in vars(value):
                found[vars(value)["name"]] = value
    return dict(sorted(found.items(), key=lambda item: (item[0] not in ("none", "quota"), item[0])))


def _make(kinds: dict[str, type[T]], name: str, field: str, spec: RunSpec) -> T:
    if name not in kinds:
        raise ValueError(f"{field}: {name!r} is unknown; choose from {', '.join(kinds)}")
    known = {row["name"] for row in describe_fields(kinds[name])}
    knobs = {}
    for key, value in spec.knobs.items():
        owner, knob = key.split(".")
        if owner == name:
            if knob not in known:
                raise ValueError(
                    f"{key}: unknown setting; {name} has {', '.join(sorted(known)) or 'none'}"
                )
            knobs[knob] = SCORE_ALIASES.get(str(value), value) if knob == "score" else value
    return kinds[name](**knobs)


def table() -> str:
    """Every method as a row of a Markdown table: name, summary, paper."""
    lines = []
    for kind in ("cache", "unmasker"):
        for row in describe()[f"{kind}s"]:
            paper = row["paper"].removeprefix("arXiv ")
            link = f"[{paper}](https://arxiv.org/abs/{paper})" if paper else ""
            what = f"**{row['title']}.** {row['summary']}"
            lines.append((f"{kind} `{row['name']}`", what, link))
    return markdown_table(("name", "what it does", "paper"), lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; `arguments` default to those of the process."""
    table_command("catalog", "The methods of the engine.", table, "methods", README, arguments)
