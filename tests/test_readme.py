"""What the README shows can be run."""

import re
from dataclasses import dataclass

import pytest
import torch

from engine import catalog
from engine.bench import space_costs
from engine.cache.base import CachePolicy, LayerPlan, LayerProbe, RunInfo, StepPlan, StepView
from engine.cache.store import Site
from engine.config.knobs import knob
from engine.core.tables import renewed
from tests.support.micro import ROOT, make_spec, model_of, run

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


@pytest.mark.parametrize(
    ("module", "name", "row"),
    [
        (catalog, "methods", "| cache `dkv_cache` |"),
        (space_costs, "costs", "| LLaDA 8B Instruct | `l40sx1`"),
    ],
)
def test_a_computed_table_is_fresh(module, name, row):
    assert renewed(README, module.table(), name) == README
    assert row in module.table()


@pytest.mark.parametrize("missing", ["<!-- costs -->", "<!-- end of costs -->"])
def test_a_mark_that_is_missing_is_named(missing):
    with pytest.raises(ValueError, match=missing):
        renewed(README.replace(missing, ""), "", "costs")


@pytest.mark.parametrize("folder", ["results", "results/dream"])
def test_the_readme_shows_the_saved_tables(folder):
    table = (ROOT / "assets" / folder / "table.md").read_text(encoding="utf-8")
    assert table in README


def test_the_readme_has_its_two_lines_and_front_matter():
    for line in ("pip install -r requirements.txt", "python app.py", "pytest"):
        assert line in README
    assert README.startswith("---\ntitle: Driftscope\n")
