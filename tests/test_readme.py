"""What the README shows can be run."""

import re
from dataclasses import dataclass

import pytest
import torch

from engine.cache.base import CachePolicy, LayerPlan, LayerProbe, RunInfo, StepPlan, StepView
from engine.cache.store import Site
from engine.catalog import with_table
from engine.costs import with_costs
from engine.fields import knob
from tests.micro import ROOT, make_spec, model_of, run

README = (ROOT / "README.md").read_text(encoding="utf-8")
NAMES = (
    CachePolicy, LayerPlan, LayerProbe, RunInfo, Site, StepPlan, StepView, dataclass, knob, torch,
)  # fmt: skip


def policy_of_the_readme():
    source = next(b for b in re.findall(r"```python\n(.*?)```", README, re.S) if "EveryOther" in b)
    scope = {"__name__": "readme"} | {getattr(n, "__name__"): n for n in NAMES}  # noqa: B009
    exec(source, scope)
    return scope["EveryOther"]


def test_the_policy_of_the_readme_runs_and_is_exact_where_it_says():
    policy, model, spec = policy_of_the_readme(), model_of("mha"), make_spec()
    plain = run(model, spec)
    assert (run(model, spec, policy=policy.exact).ids == plain.ids).all()
    kinds = [event.kind for event in run(model, spec, policy=policy).events]
    assert kinds == ["full", *["partial"] * 7] * 2


def test_the_table_of_methods_is_fresh():
    assert with_table(README) == README
    assert "| cache `dkv_cache` |" in README
    with pytest.raises(ValueError, match="marks"):
        with_table("# no marks")


@pytest.mark.parametrize("folder", ["table", "table/dream"])
def test_the_readme_shows_the_saved_tables(folder):
    table = (ROOT / "assets" / folder / "table.md").read_text(encoding="utf-8")
    assert table in README


def test_the_table_of_costs_is_fresh():
    assert with_costs(README) == README
    assert "| LLaDA 8B Instruct | `l40sx1`" in README
    with pytest.raises(ValueError, match="marks"):
        with_costs(README.replace("<!-- costs -->", ""))


def test_the_readme_has_its_two_lines_and_front_matter():
    for line in ("pip install -r requirements.txt", "python app.py", "pytest"):
        assert line in README
    assert README.startswith("---\ntitle: Driftscope\n")
