"""Figures of the schedule, the guider and the time: their numbers are those of the trace."""

import numpy as np
import pytest

from engine.core.events import KINDS, SITES
from engine.trace.schema import MAX_POSITIONS
from inspector.figures import counts, guider, schedule, style, time
from inspector.views import verdicts
from tests.inspector.figure_traces import (
    FFN,
    changed,
    dual,
    end_texts,
    example,
    named,
    shown,
)
from tests.support.handmade_guided_run import CODES, guided_trace


def test_the_schedule_shows_planned_above_done():
    figure = schedule.figure(dual())
    planned, done = dual().arrays()["planned"], dual().recomputed_kinds()
    both = np.concatenate((planned, done), 1).T
    for code in np.unique(both).tolist():
        np.testing.assert_array_equal(shown(figure, schedule.LOOKS, code), both == code)
    assert figure.data[0].y[:4] == (
        "planned: prompt", "planned: block", "planned: rest", "done: prompt",
    )  # fmt: skip


def test_the_schedule_of_a_trace_without_planned_kinds_is_blank_above():
    trace = changed(dual(), planned=np.zeros((0, 3), np.uint8))
    full = shown(schedule.figure(trace), schedule.LOOKS, KINDS.index("full"))
    assert not full[:3].any()
    assert full[3:].any()


def test_the_schedule_marks_where_done_differs_from_planned():
    planned = dual().recomputed_kinds()
    planned[4, 2] = (planned[4, 2] + 1) % len(KINDS)
    figure = schedule.figure(changed(dual(), planned=planned))
    dots = named(figure, "done differs from planned")
    assert (list(dots.x), list(dots.y)) == ([5], ["done: rest"])


def test_a_share_of_rows_reads_as_all_or_none_only_if_it_is():
    texts = end_texts(named(schedule.figure(dual()), "share"), len(SITES) * MAX_POSITIONS)
    assert texts == ["0.002%", "99.998%"]
    assert end_texts(counts.figure(dual()).data[0], MAX_POSITIONS) == ["0.01%", "99.99%"]


def test_the_hover_texts_of_sums_read_as_all_or_none_only_if_they_are():
    shares = (0, 1e-5, 0.5, 0.9999999, 1)
    texts = ["0.00 %", "below 0.01 %", "50.00 %", "above 99.99 %", "100.00 %"]
    assert [style.percent(share, 2) for share in shares] == texts
    line = named(schedule.figure(dual()), "recomputed so far")
    assert line.customdata[0] == style.percent(line.y[0] / 100, 1) == "100.0 %"
    bars = named(counts.figure(dual()), "drifted, of the evaluated rows")
    assert list(bars.customdata) == [style.percent(share / 100, 2) for share in bars.x]


def test_the_schedule_shows_the_share_of_rows_recomputed():
    bits = dual().recompute_map()
    share = named(schedule.figure(dual(), quantity="ffn"), "share").z
    assert share[5, 3] == pytest.approx(bits[3, 5, FFN].mean())
    mean = named(schedule.figure(dual()), "share").z
    assert mean[5, 3] == pytest.approx(bits[3, 5].mean(), rel=1e-5)
    line = named(schedule.figure(dual()), "recomputed so far")
    assert line.y[9] == pytest.approx(100 * dual().arrays()["recomputed"][:10].mean(), rel=1e-5)


def test_the_guider_has_a_verdict_for_every_drafted_token():
    figure = guider.figure(guided_trace())
    for name in {name for row in CODES for name in row if name}:
        here = shown(figure, guider.LOOKS, verdicts.NAMES.index(name))
        np.testing.assert_array_equal(here, [[one == name for one in row] for row in CODES])
    (bars,) = (trace for trace in figure.data if trace.type == "bar")
    assert list(bars.x) == [2, 0, 3]


def test_tokens_known_before_a_step_are_blank():
    trace = example("methods/guided")
    heats = [one for one in guider.figure(trace).data if one.type == "heatmap"]
    blank = np.all([np.isnan(heat.z) for heat in heats], 0)
    answer = np.flatnonzero(~trace.arrays()["prompt_mask"])[: blank.shape[1]]
    before = trace.step_map()[answer] < np.arange(trace.steps)[:, None]
    np.testing.assert_array_equal(blank, before & (trace.step_map()[answer] >= 0))
    assert blank.any()


def test_tokens_after_the_last_drafted_one_are_left_out():
    trace = example("methods/guided")
    cells = verdicts.cells(trace)
    width = guider.figure(trace).data[0].z.shape[1]
    drafted = ~np.isin(cells, (verdicts.NOT_DRAFTED, verdicts.FILLED))
    assert width < cells.shape[1]
    assert drafted[:, width - 2].any()
    assert not drafted[:, width - 1 :].any()


def test_a_large_map_of_categories_has_no_glyphs():
    looks = {1: style.Look("#000000", "one", "x")}
    small, large = (
        list(style.category_maps(np.ones((2, count)), looks, "", [1, 2]))
        for count in (3, style.MAX_GLYPHS)
    )
    assert [part.type for part in small] == ["heatmap", "scatter"]
    assert [part.type for part in large] == ["heatmap"]


def test_times_are_those_of_every_lane(traces):
    figure = time.figure(traces)
    assert [t.name for t in figure.data] == ["Lane A", "Lane A", "Lane B", "Lane B"]
    for lane, (each, total) in zip("ab", (figure.data[:2], figure.data[2:]), strict=True):
        arrays = traces[lane].arrays()
        took = arrays["forward_ms"] + arrays["decide_ms"]
        np.testing.assert_allclose(each.y, took, atol=1e-3)
        np.testing.assert_allclose(total.y, took.cumsum(), atol=1e-3)
        assert list(each.text) == [KINDS[kind] for kind in arrays["kind"]]


def test_lanes_differ_by_more_than_colour(traces):
    a, b = time.figure(traces).data[::2]
    assert (a.line.dash, a.marker.symbol) != (b.line.dash, b.marker.symbol)


def test_a_lane_has_the_same_look_without_the_other(traces):
    alone = time.figure({"b": traces["b"]}).data[0]
    assert alone.line == time.figure(traces).data[2].line


def test_runs_may_have_any_names(traces):
    data = time.figure({"plain": traces["a"], "cached": traces["b"]}).data
    assert [one.name for one in data[::2]] == ["plain", "cached"]
    assert data[0].line != data[2].line


def test_one_run_is_named_in_the_title(traces):
    figure = time.figure(traces["b"])
    assert [each.type for each in figure.data] == ["scatter"] * 2
    assert "cache dual, unmasker" in figure.layout.title.text
