"""Refresh schedule, query drift, guider and error: what the page says against the trace."""

import re

import numpy as np
import pytest

from engine.core.drift_codes import NOT_EVALUATED, decode
from engine.core.events import KINDS, QUANTITIES
from tests.support.looking import bring, drawn, point, recorded_lanes, show_at

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser

Q0 = QUANTITIES.index("q0")
BOX = "#ds-race [data-inspect]"
ERROR = f"{BOX} .ds-view[data-view=error]"


@pytest.fixture(scope="module")
def lanes(shipped):
    knobs = {
        "dare_o.skip_first_layers": 2
    }  # the recomputed layers make "done" differ from "planned"
    return recorded_lanes(shipped, "probe", knobs, a="dllm_cache", b="dare_o")


@pytest.fixture(scope="module")
def race(viewer, lanes, tmp_path_factory):
    bring(viewer, lanes, tmp_path_factory.mktemp("lanes"))
    return viewer


def cell(race, figure, x, y, click=False):
    """The same at the middle of a heat's cell."""
    canvas = race.page.locator(f"{BOX} [data-figure={figure}] canvas")
    wide, high = map(int, canvas.get_attribute("data-cells").split(","))
    return point(race, figure, (x + 0.5) / wide, (y + 0.5) / high, click)


def percentages(text):
    return [float(n) for n in re.findall(r"([\d.]+) %", text)]


def block(race, view, name):
    drawn(race)
    return race.text(f".ds-view[data-view={view}] [data-block={name}]")


def test_schedule_and_queries_are_those_of_the_trace(race, lanes):
    trace = lanes["b"]
    arrays, plan = trace.arrays(), trace.recompute_map()
    planned, done = arrays["planned"], trace.recomputed_kinds()
    show_at(race, "schedule", "b", 4, 9)
    places = np.argwhere(planned != done)
    assert len(places)
    said = block(race, "schedule", "differs")
    assert said.startswith(f"Done differs from planned in {len(places)} of {planned.size} cells")
    step, region = places[0]
    for row in (region, region + 3):
        text = cell(race, "schedule-kinds", step, row)
        words = re.search(r"planned (\w+), done (\w+);", text).groups()
        assert words == (KINDS[planned[step, region]], KINDS[done[step, region]])
    prompt = plan[12][..., : int(arrays["prompt_mask"].sum())].mean()
    assert percentages(cell(race, "schedule-kinds", 12, 0)) == [
        pytest.approx(100 * prompt, abs=0.06)
    ]
    text = cell(race, "schedule-layers", 12, 5)
    assert percentages(text) == pytest.approx(100 * plan[12, 5].mean(-1), abs=0.06)
    assert not plan[12, 5].all()
    text = point(race, "schedule-running", 12.5 / 32, 0.5)
    so_far = [100 * lanes[lane].arrays()["recomputed"][:13].mean() for lane in "ab"]
    assert percentages(text) == pytest.approx(so_far, abs=0.06)
    cell(race, "schedule-layers", 20, 6, click=True)
    assert race.page.locator(f"{BOX}[data-step='20'][data-layer='6']").count() == 1

    show_at(race, "queries", "b", 6, 9)
    drift, limit = arrays["drift"][:, 6, Q0], trace.meta["facts"]["threshold"][6]
    kept = ~plan[:, 6, 2]
    for x, y in ((40, 5), (8, 20), (50, 20)):
        text = cell(race, "queries-drift", x, y)
        tau = float(re.search(r"\(threshold ([\d.]+)\)", text)[1])
        assert tau == pytest.approx(limit, rel=0.06)
        assert text.endswith("reused" if kept[y, x] else "recomputed")
        code = int(drift[y, x])
        shown = re.search(r"query drift (below )?([\d.]+)", text)
        assert (shown[1] is not None) == (code == 0)
        if code:
            assert float(shown[2]) == pytest.approx(float(decode(code)), rel=0.06)
        age = 0
        while kept[y - age, x]:
            age += 1
        old = re.search(r"(\d+) steps? old", cell(race, "queries-stale", x, y))
        assert (int(old[1]) if old else 0) == age
    seen = drift != NOT_EVALUATED
    share = percentages(point(race, "queries-profile", (7 - 0.4) / 8.2, 0.5))
    aimed = trace.meta["facts"]["reuse"][6]
    assert share == pytest.approx([100 * (kept & seen).sum() / seen.sum(), 100 * aimed], abs=0.06)
    assert 0 < (kept & seen).sum() < seen.sum()
    show_at(race, "queries", "a", 6, 9)
    assert "there is no threshold" in block(race, "queries", "said")


def test_errors_are_those_of_the_probed_steps(race, lanes):
    trace = lanes["a"]
    arrays, plan = trace.arrays(), trace.recompute_map()
    steps, wrong = arrays["probe_step"], arrays["probe_top"][:, 0] != arrays["probe_top"][:, 1]
    assert wrong.any()
    show_at(race, "error", "a", 5, int(steps[3]) + 1)
    keys = race.page.locator(f"{ERROR} [data-probe]")
    assert keys.all_inner_texts() == [str(s + 1) for s in steps]
    assert race.text(".ds-view[data-view=error] [data-probe][aria-pressed=true]") == str(
        steps[3] + 1
    )
    assert f"{wrong.sum()} of {len(wrong)} predictions" in block(race, "error", "sum")
    for x, y in ((5, 6), (40, 6)):
        text = cell(race, "error-rows", x, y)
        code = int(arrays["probe_error"][3, y, 2, x])
        if decode(code) >= 1e-4:
            found = float(re.search(r"attention output ([\d.]+)", text)[1])
            assert found == pytest.approx(float(decode(code)), rel=0.06)
        assert ("recomputed" in text) == bool(plan[steps[3], y, 2, x])
    codes = arrays["probe_error"][6, 7, 2]
    want = decode(codes[codes != NOT_EVALUATED]).mean()
    text = cell(race, "error-means", 6, 7, click=True)
    assert float(re.search(r"attention output ([\d.]+)", text)[1]) == pytest.approx(want, rel=0.06)
    assert race.page.locator(f"{BOX}[data-step='{steps[6]}'][data-layer='7']").count() == 1

    probe = int(arrays["probe_row"][wrong][0])
    race.page.locator(f"{ERROR} [data-probe='{steps[probe]}']").click()
    here = arrays["probe_row"] == probe
    said = block(race, "error", "flips")
    assert f"{here.sum()} predictions" in said
    flipped = [arrays["probe_position"][i] for i in np.flatnonzero(here & wrong)]
    prompt = arrays["prompt_mask"].sum()
    named = [int(n) for n in re.findall(r"answer token (\d+): most likely in the run", said)]
    assert named == [p - prompt + 1 for p in flipped][:8]
    first = np.flatnonzero(here & wrong)[0]
    pieces = [trace.pieces[int(i)].decode().strip() for i in arrays["probe_top"][first]]
    assert all(piece in said for piece in pieces)
    assert "bound is not shown" in block(race, "error", "bound")

    show_at(race, "guider", "a", 5, 3)
    assert "This run has no guider" in block(race, "guider", "said")
    assert cell(race, "guider", 4, 2).endswith("not checked by a guider")
    legend = race.page.locator(f"{BOX} [data-figure=guider] .ds-legend li").all_inner_texts()
    assert [re.sub(r"\W", "", text) for text in legend[:3]] == [
        "accepted",
        "mismatch",
        "notchecked",
    ]
