"""Similarity, drift counts and the scatter: numbers on the page against the recorded trace."""

import re

import numpy as np
import pytest

from engine.core.drift_codes import NOT_EVALUATED, decode
from engine.core.events import QUANTITIES
from inspector.views import registry
from tests.browser.test_inspect_b import block, cell
from tests.inspector.unpacked import unpacked
from tests.support.looking import bring, drawn, point, recorded_lanes, show_at

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def lanes(shipped):
    return recorded_lanes(shipped, "layers", a="none", b="spa_cache")


@pytest.fixture(scope="module")
def race(viewer, lanes, tmp_path_factory):
    bring(viewer, lanes, tmp_path_factory.mktemp("lanes"))
    return viewer


def control(race, view, name, value):
    found = race.page.locator(f"#ds-race .ds-view[data-view={view}] [data-control={name}]")
    if found.evaluate("e => e.tagName") == "SELECT":
        found.select_option(value)
    else:
        found.fill(value)
    drawn(race)


def numbers(text):
    return [float(n.replace(",", "")) for n in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def test_drift_counts_are_those_of_the_trace(race, lanes):
    for lane, quantity, tau, rows in (("a", "v", 0.05, "all"), ("b", "attn", 0.01, "answer")):
        arrays = lanes[lane].arrays()
        first = int(arrays["prompt_mask"].sum()) if rows == "answer" else 0
        codes = arrays["drift"][:, :, QUANTITIES.index(quantity), first:]
        far, seen = decode(codes), codes != NOT_EVALUATED
        above = far > tau
        show_at(race, "counts", lane, 4, 9)
        control(race, "counts", "quantity", quantity)
        control(race, "counts", "tau", str(round(float(np.log10(tau)) * 20) / 20))
        control(race, "counts", "rows", rows)
        assert numbers(block(race, "counts", "sum"))[:2] == [above.sum(), seen.sum()]
        assert 0 < above.sum() < seen.sum()
        text = cell(race, "counts", 12, 5)
        assert numbers(text)[:4] == [13, 6, above[12, 5].sum(), seen[12, 5].sum()]
        order = np.lexsort((np.arange(far.shape[-1]), -np.nan_to_num(far[12, 5], nan=-1)))[:5]
        places = [int(n) for n in re.findall(r"position (\d+)", text)]
        assert places == (order + first + 1)[: len(places)].tolist()
        assert len(places) == min(5, seen[12, 5].sum())
        share = 100 * above[:, 6].sum() / seen[:, 6].sum()
        done = lanes[lane].recompute_map()[1:, 6, QUANTITIES.index(quantity), first:]
        text = point(race, "counts-layers", 6.5 / 8)
        drifted, *others = [float(n) for n in re.findall(r"([\d.]+) %", text)]
        assert drifted == pytest.approx(share, abs=0.5)
        planned = lanes[lane].meta["facts"].get("budget")
        if planned:  # a budget is for the steps between refreshes
            done = done[~done.all(-1)]
        assert len(others) == 1 + bool(planned)
        assert others[0] == pytest.approx(100 * done.mean(), abs=0.5)
        if planned:
            assert others[1] == pytest.approx(100 * planned[6], abs=0.5)
            assert others[0] == pytest.approx(others[1], abs=3)
        text = point(race, "counts-steps", 12.5 / 32)
        assert numbers(text)[:3] == [13, above[12].sum(), seen[12].sum()]
    cell(race, "counts", 20, 2, click=True)
    assert race.page.locator("#ds-race [data-inspect]").get_attribute("data-layer") == "2"
    assert race.page.locator("#ds-race [data-inspect]").get_attribute("data-step") == "20"


def test_similarity_and_scatter_are_those_of_the_trace(race, lanes):
    codes = decode(lanes["a"].arrays()["similarity"])
    pair = lambda t, u: max(t, u) * (max(t, u) + 1) // 2 + min(t, u)  # noqa: E731

    def cosines(text):
        return [float(n) for n in re.findall(r"cosine (-?[\d.]+) \(", text)]

    show_at(race, "similarity", "a", 3, 20)
    control(race, "similarity", "kind", "k")
    control(race, "similarity", "group", "1")
    for x, y in ((7, 18), (18, 7)):
        want = 1 - codes[pair(x, y), 0, 3, 1]
        assert cosines(cell(race, "similarity-steps", x, y)) == [pytest.approx(want, abs=1e-4)]
    show_at(race, "similarity", "a", 3, 20)
    text = point(race, "similarity-distance", 5 / 31)
    assert "step 21 compared with step 16" in text.lower()
    assert cosines(text) == pytest.approx((1 - codes[pair(20, 15), 0, 3]).tolist(), abs=1e-4)
    before = np.mean([codes[pair(t, t - 1), 0] for t in range(1, 32)], 0)
    text = cell(race, "similarity-layers", 2, 6, click=True)
    assert cosines(text) == [pytest.approx(1 - before[6, 2], abs=1e-4)]
    values = race.page.locator("#ds-race [data-view=similarity] [data-control=group]").input_value()
    assert values == "2"
    want = 1 - codes[pair(4, 9), 0, 6, 2]
    assert cosines(cell(race, "similarity-steps", 4, 9)) == [pytest.approx(want, abs=1e-4)]

    for lane, missing in (("a", False), ("b", True)):
        view = registry.draw(lanes[lane], "scatter")
        stats, counts = unpacked(view["stats"]), unpacked(view["counts"])
        show_at(race, "scatter", lane, 3, 20)
        control(race, "scatter", "layers", "one")
        shown = numbers(re.sub(r"of layer 4 ", "", block(race, "scatter", "sum")))
        assert shown[0] == counts[0, 3].sum()
        assert shown[1:] == pytest.approx(stats[:2, 3][:, [2, 0, 1]].ravel().tolist(), abs=6e-4)
        i, j = np.unravel_index(counts[0, 3].argmax(), counts[0, 3].shape)
        text = cell(race, "scatter-1", int(i), counts.shape[-1] - 1 - int(j))
        assert numbers(text)[0] == counts[0, 3].max()
        note = race.page.locator("#ds-race [data-view=scatter] [data-block=missing]")
        assert note.is_visible() == missing
