"""Expert changes: what the page says of a run of a model with experts, against the trace."""

import numpy as np
import pytest

from engine.core.drift_codes import NOT_EVALUATED
from tests.browser.test_inspect_b import block, cell, percentages
from tests.support.looking import bring, expert_run, point, show_at

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return expert_run(tmp_path_factory.mktemp("models") / "micro")


@pytest.fixture
def race(viewer, trace, tmp_path):
    bring(viewer, {"a": trace}, tmp_path)
    return viewer


def test_readouts_are_the_changes_of_the_trace(race, trace):
    held = trace.arrays()["expert_changes"]
    step, layer = 3, 1
    show_at(race, "experts", "a", layer, step)
    row = held[step, layer]
    known = np.flatnonzero(row != NOT_EVALUATED)
    position = int(known[0])
    said = cell(race, "experts-steps", position, step)
    assert f"Position {position + 1}, " in said
    assert f"{row[position]} of 3 experts changed" in said
    changed = int((row[known] > 0).sum())
    assert f"{changed} of {len(known)} rows" in cell(race, "experts", step, layer)
    unknown = np.flatnonzero(row == NOT_EVALUATED)
    if len(unknown):
        assert "not computed again" in cell(race, "experts-steps", int(unknown[0]), step)
    sentence = block(race, "experts", "sum")
    assert sentence.startswith("Each token uses 3 of 8 experts.")
    assert "the router would not choose now" in sentence


def test_the_probed_step_that_is_shown_is_the_nearest_one(race, trace):
    probes = trace.arrays()["probe_step"]
    late = int(np.diff(probes).argmax()) + 1
    assert probes[late] - probes[late - 1] > 2
    show_at(race, "experts", "a", 1, int(probes[late]) - 1)
    figure = race.page.locator("#ds-race [data-figure=experts-probed]")
    figure.get_by_text(f"probed step {probes[late] + 1}:").first.wait_for()


def test_the_probed_line_is_of_all_outputs_in_use_recomputed_ones_too(race, trace):
    """Each probed row that took part counts, so the line is not called that of reused rows."""
    show_at(race, "experts", "a", 1, 3)
    legend = race.page.locator("#ds-race [data-figure=experts-by-layer] .ds-legend").inner_text()
    assert "in use, the router would now choose others (probed)" in legend
    assert "reused" not in legend
    probed = trace.arrays()["probe_expert_changes"][:, 1]
    known = probed[probed != NOT_EVALUATED]
    share = 100 * (known > 0).mean()
    said = point(race, "experts-by-layer", 0.75)
    assert said.startswith("Layer 2: ")
    assert percentages(said)[-1] == pytest.approx(share, abs=0.5)
