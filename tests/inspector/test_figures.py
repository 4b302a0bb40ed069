"""Figures for notebooks: their numbers are those of the trace, their looks those of the page."""

import json
import re
import runpy
from functools import cache

import numpy as np
import pytest

from engine.core.drift_codes import NOT_EVALUATED, decode
from engine.core.events import KINDS, QUANTITIES
from engine.trace.trace import Trace
from inspector.figures import counts, drift, guider, schedule, similarity, style, time
from inspector.figures.checks import QUANTITY_NAMES
from inspector.static_files import STATIC
from inspector.views import verdicts
from inspector.views.similarity import comparison
from tests.support.big_trace import narrowed
from tests.support.handmade_guided_run import CODES, guided_trace
from tests.support.micro import ROOT

EXAMPLES = ROOT / "assets" / "examples"
COLOUR, GLYPH = r"\[(?P<colour>[\d, ]+)\]", '"(?P<glyph>.)"'
V, FFN = QUANTITIES.index("v"), QUANTITIES.index("ffn")


@cache
def example(name):
    return Trace.load(EXAMPLES / f"{name}.npz")


def plain():
    return example("a-recorded")


def dual():
    return example("b-recorded")


def changed(trace, **arrays):
    """A copy of a trace with other arrays."""
    copy = Trace()
    copy.meta = json.loads(json.dumps(trace.meta))
    copy._arrays = dict(trace.arrays()) | arrays
    return copy


def narrow():
    """Layers 3 and 5, every other step and 30 positions of K, V and FFN."""
    return narrowed(dual(), [2, 4], [0, V, FFN], 2, slice(500, 530))


def without_drift():
    arrays = example("a").arrays()
    return changed(dual(), **{name: arrays[name] for name in ("drift", "similarity", "probe_step")})


def named(figure, name):
    """The trace of a figure with this name."""
    return next(trace for trace in figure.data if trace.name == name)


def shown(figure, looks, code):
    """Whether a cell of a category map is of a category, bool [rows, columns]."""
    look = looks[code]
    return ~np.isnan(named(figure, f"{look.glyph} {look.name}").z)


EVERY = {
    "drift of a layer": lambda: drift.figure(dual(), layer=3),
    "drift of a step": lambda: drift.figure(dual(), step=7, quantity="q0"),
    "similarity": lambda: similarity.figure(plain(), layer=0),
    "cosine": lambda: similarity.figure(plain(), layer=7, quantity="k", scale="linear"),
    "counts": lambda: counts.figure(example("lessons/spa_cache"), quantity="ffn"),
    "schedule": lambda: schedule.figure(dual()),
    "guider": lambda: guider.figure(example("methods/guided")),
    "time": lambda: time.figure(example("a")),
    "times": lambda: time.figure({"a": example("a"), "b": example("b")}),
}


@pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)
def test_a_figure_is_written_as_html(make):
    assert "Plotly.newPlot" in make().to_html(include_plotlyjs=False)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_drift_of_a_layer_is_decoded_and_blank_where_nothing_was_evaluated(quantity):
    heat = drift.figure(dual(), layer=3, quantity=quantity).data[0]
    codes = dual().arrays()["drift"][:, 3, QUANTITIES.index(quantity)]
    assert heat.z.dtype == np.float32
    np.testing.assert_allclose(heat.z, decode(codes), rtol=1e-6)
    assert (np.isnan(heat.z) == (codes == NOT_EVALUATED)).all()
    assert 0 < np.isnan(heat.z).mean() < 1


def test_drift_of_a_step_has_a_row_for_each_layer():
    heat = drift.figure(dual(), step=7, quantity="attn").data[0]
    codes = dual().arrays()["drift"][7, :, QUANTITIES.index("attn")]
    np.testing.assert_allclose(heat.z, decode(codes), rtol=1e-6)
    assert heat.z.shape[0] == 8


def test_drift_of_a_narrowed_run_is_blank_where_nothing_was_recorded():
    codes = dual().arrays()["drift"][:, :, V].copy()
    recorded = np.zeros(codes.shape, bool)
    recorded[np.ix_(np.arange(0, len(codes), 2), [2, 4], np.arange(500, 530))] = True
    codes[~recorded] = NOT_EVALUATED
    for part, index in (({"layer": 4}, (slice(None), 4)), ({"step": 6}, 6)):
        heat = drift.figure(narrow(), **part).data[0]
        np.testing.assert_allclose(heat.z, decode(codes[index]), rtol=1e-6)
        assert np.isfinite(heat.z).any()
    above, seen = counts.counts(narrow(), threshold=0.01)
    np.testing.assert_array_equal(seen, (codes != NOT_EVALUATED).sum(-1).T)
    np.testing.assert_array_equal(above, (decode(codes) > 0.01).sum(-1).T)


def test_similarity_of_a_narrowed_run_is_that_of_the_whole_one():
    found, whole = (similarity.figure(one, layer=4).data[0].z for one in (narrow(), dual()))
    np.testing.assert_array_equal(found, whole)


def test_dots_of_drift_are_the_steps_that_unmasked_a_token():
    dots = named(drift.figure(dual(), layer=0), "token unmasked")
    arrays = dual().arrays()
    pairs = zip(arrays["commit_position"] + 1, arrays["commit_step"] + 1, strict=True)
    assert sorted(zip(dots.x, dots.y, strict=True)) == sorted(pairs)


@pytest.mark.parametrize("rows", ["step", "layer"])
def test_axes_count_from_one_downwards(rows):
    figure = drift.figure(dual(), **({"layer": 0} if rows == "step" else {"step": 0}))
    count = len(figure.data[0].z)
    assert (figure.data[0].x0, figure.data[0].y0) == (1, 1)
    assert figure.layout.yaxis.title.text == rows
    assert figure.layout.yaxis.range == (count + 0.5, 0.5)
    assert figure.layout.xaxis.title.text == "position"


def test_titles_name_the_method_the_layer_and_the_quantity():
    text = drift.figure(dual(), layer=3, quantity="ffn").layout.title.text
    assert text.startswith("Drift of feed-forward output, layer 4: step by position")
    assert "tiny-llada, cache dual, unmasker threshold" in text


def test_names_of_an_imported_trace_are_escaped():
    trace = changed(dual())
    trace.meta["spec"]["cache"] = '<a href="x">dual</a>'
    assert "<a" not in drift.figure(trace, layer=0).layout.title.text


def test_a_heat_map_is_sent_as_a_typed_array_without_texts():
    heat = json.loads(drift.figure(plain(), layer=0).to_json())["data"][0]
    assert heat["z"]["dtype"] == "f4"
    assert not {"text", "customdata"} & set(heat)


def test_similarity_holds_the_code_of_every_pair():
    figure = similarity.figure(plain(), layer=3, group="block 1")
    heat, codes = figure.data[0], comparison(plain())["codes"]
    steps = plain().arrays()["similarity_step"]
    assert heat.x.tolist() == heat.y.tolist() == (steps + 1).tolist()
    for high, low in ((20, 3), (47, 46), (5, 5)):
        want = decode(codes[high * (high + 1) // 2 + low, V, 3, 1])
        assert heat.z[high, low] == heat.z[low, high] == pytest.approx(want, rel=1e-6)
    assert heat.z[20, 3] > 0


def test_the_linear_scale_of_similarity_is_the_cosine():
    log, linear = (
        similarity.figure(plain(), layer=1, quantity="k", scale=scale).data[0].z
        for scale in ("log", "linear")
    )
    np.testing.assert_allclose(linear, 1 - log, atol=1e-6)


def test_similarity_is_of_the_first_group_unless_one_is_named():
    assert similarity.groups(plain())[0] == "prompt"
    default, prompt, block = (
        similarity.figure(plain(), layer=1, group=group).data[0].z
        for group in (None, "prompt", "block 1")
    )
    np.testing.assert_array_equal(default, prompt)
    assert not np.array_equal(default, block)


def test_groups_are_named_as_on_the_page():
    trace = plain()
    assert similarity.groups(trace) == ["prompt", "block 1", "block 2", "block 3 (last)"]
    one = changed(trace)
    one.meta["spec"]["block_length"] = 48
    assert similarity.groups(one)[:2] == ["prompt", "block 1"]


def test_steps_that_were_not_compared_leave_a_gap_in_the_axes():
    trace = plain()
    arrays = trace.arrays()
    kept = arrays["similarity_step"][:3] * 2
    sparse = changed(trace, similarity=arrays["similarity"][:6], similarity_step=kept)
    assert similarity.figure(sparse, layer=0).data[0].x.tolist() == [1, 3, 5]


@pytest.mark.parametrize("threshold", [0, 0.05, 2])
def test_counts_are_those_of_the_decoded_drifts(threshold):
    above, seen = counts.counts(dual(), quantity="ffn", threshold=threshold)
    drifts = decode(dual().arrays()["drift"][:, :, FFN])
    np.testing.assert_array_equal(above, (drifts > threshold).sum(-1).T)
    np.testing.assert_array_equal(seen, (~np.isnan(drifts)).sum(-1).T)


def test_counts_may_be_of_the_answer_only():
    trace = changed(dual())
    prompt = int(trace.arrays()["prompt_mask"].sum())
    codes = trace.arrays()["drift"][7, 2, V]
    for shift in (0, 1):
        trace.meta["model"]["logit_shift"] = shift
        _, seen = counts.counts(trace, rows="answer")
        assert seen[2, 7] == (codes[prompt - shift :] != NOT_EVALUATED).sum()


def test_counts_are_drawn_as_shares_and_blank_where_no_row_was_evaluated():
    figure = counts.figure(dual(), threshold=0.01)
    above, seen = counts.counts(dual(), threshold=0.01)
    heat, bars = figure.data[0], named(figure, "drifted, of the evaluated rows")
    assert heat.z[2, 7] == pytest.approx(above[2, 7] / seen[2, 7])
    assert (np.isnan(heat.z) == (seen == 0)).all()
    assert np.isnan(heat.z[:, 0]).all()
    np.testing.assert_allclose(bars.x, 100 * above.sum(1) / seen.sum(1), rtol=1e-5)
    assert bars.y.tolist() == list(range(1, 9))


def test_counts_show_the_budget_of_a_method_that_has_one():
    trace = example("lessons/spa_cache")
    line = next(one for one in counts.figure(trace).data if (one.name or "").startswith("budget"))
    np.testing.assert_allclose(line.x, 100 * np.array(trace.meta["facts"]["budget"]))
    assert not [one for one in counts.figure(dual()).data if (one.name or "").startswith("budget")]


@pytest.mark.parametrize("budget", [[0.5] * 3, "0.5", ["x"] * 8])
def test_a_budget_that_does_not_fit_the_layers_is_left_out(budget):
    trace = changed(dual())
    trace.meta["facts"] = {"budget": budget}
    assert len(counts.figure(trace).data) == len(counts.figure(dual()).data)


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


ERRORS = {
    "layer: 8 ": lambda: drift.figure(dual(), layer=8),
    "layer: -1 ": lambda: drift.figure(dual(), layer=-1),
    "layer: True ": lambda: drift.figure(dual(), layer=True),
    r"layer: 1\.5 .* choose 0 to 7": lambda: similarity.figure(dual(), layer=1.5),
    "step: 20 .* choose 0 to 19": lambda: drift.figure(dual(), step=20),
    "layer, step: .* exactly one": lambda: drift.figure(dual()),
    "layer, step: .* exactly one of": lambda: drift.figure(dual(), layer=0, step=0),
    'quantity: "?\'x\' .* "attn"': lambda: drift.figure(dual(), layer=0, quantity="x"),
    "quantity: 'attn'": lambda: similarity.figure(dual(), layer=0, quantity="attn"),
    "quantity: 'q0'": lambda: schedule.figure(dual(), quantity="q0"),
    r"quantity: \['v'\]": lambda: counts.figure(dual(), quantity=["v"]),
    'group: .* "block 1"': lambda: similarity.figure(dual(), layer=0, group="answer"),
    'scale: .* "linear"': lambda: similarity.figure(dual(), layer=0, scale="sqrt"),
    "threshold: -0.1 .* from 0 to 2": lambda: counts.figure(dual(), threshold=-0.1),
    "threshold: nan ": lambda: counts.figure(dual(), threshold=float("nan")),
    "threshold: '0.1' ": lambda: counts.figure(dual(), threshold="0.1"),
    'rows: .* "answer"': lambda: counts.figure(dual(), rows="prompt"),
    '`steps`, which has no drift.* record="layers"': lambda: drift.figure(
        without_drift(), layer=0
    ),
    '`off`, which has no drift.* record="layers"': lambda: counts.figure(example("b")),
    "`off`, which has no drift; ": lambda: similarity.figure(example("b"), layer=0),
    '`off`, which has no plan.* record="steps"': lambda: schedule.figure(example("b")),
    "the run did not end": lambda: similarity.figure(
        changed(dual(), similarity=np.zeros((0, 2, 0, 4), np.uint8)), layer=0
    ),
    "layer: 3 was not recorded, .* is 2; .* record_layers": lambda: drift.figure(
        narrow(), layer=3
    ),
    "layer: 7 was not recorded, .* is 4; ": lambda: similarity.figure(narrow(), layer=7),
    "step: 5 was not recorded, .* record_every": lambda: drift.figure(narrow(), step=5),
    "quantity: 'q0' was not recorded, only k, v, ffn;": lambda: counts.figure(
        narrow(), quantity="q0"
    ),
    'trace: .* no guider.* unmasker="guided"': lambda: guider.figure(dual()),
    'traces: .* in the run,.* record="off"': lambda: time.figure(dual()),
    "traces: .* in Lane B,": lambda: time.figure({"a": example("a"), "b": dual()}),
    "traces: no trace is given": lambda: time.figure({}),
}  # fmt: skip


@pytest.mark.parametrize("message", ERRORS)
def test_an_error_names_the_parameter_and_the_remedy(message):
    with pytest.raises(ValueError, match=message):
        ERRORS[message]()


def page(name):
    return (STATIC.parent / "web" / "src" / name).read_text("utf-8")


def colour_at(scale, value):
    """The colour that plotly interpolates, as three numbers."""
    places = [place for place, _ in scale]
    parts = np.array([re.findall(r"[\d.]+", colour) for _, colour in scale], float)
    return [np.interp(value, places, channel) for channel in parts.T]


@pytest.mark.parametrize("value", [1e-6, 1e-4, 3e-4, 1e-2, 0.05, 0.7, 1])
def test_drift_has_the_colours_of_the_page(value):
    stops = json.loads(
        "[" + re.search(r"CIVIDIS.*? = \[(.*?),\s*\];", page("base/colours.ts"), re.S)[1] + "]"
    )
    place = np.clip((np.log10(value) + 4) / 4, 0, 1) * (len(stops) - 1)
    want = [np.interp(place, range(len(stops)), channel) for channel in np.transpose(stops)]
    heat = drift.figure(dual(), layer=0).data[0]
    assert (heat.zmin, heat.zmax) == (0, 1)
    assert colour_at(heat.colorscale, value) == pytest.approx(want, abs=2)


def test_quantities_have_the_names_of_the_page():
    text = re.search(r"QUANTITY_NAMES.*? = \{(.*?)\}", page("inspect/quantities.ts"), re.S)[1]
    assert dict(re.findall(r'(\w+): "(.*?)"', text)) == QUANTITY_NAMES


@pytest.mark.parametrize(
    ("looks", "script", "pattern"),
    [
        (schedule.LOOKS, "schedule", rf'\["(?P<name>\w+)", {COLOUR}, {GLYPH}\]'),
        (guider.LOOKS, "guider", rf'\[{COLOUR}, "(?P<name>.*?)", {GLYPH}\]'),
    ],
)
def test_categories_look_as_on_the_page(looks, script, pattern):
    found = [one.groupdict() for one in re.finditer(pattern, page(f"inspect/views/{script}.ts"))]
    known = {(f"rgb({one['colour']})", one["name"], one["glyph"]) for one in found}
    drawn = [look[:3] for code, look in looks.items() if code != verdicts.NOT_DRAFTED]
    assert len(drawn) > 3
    assert [look for look in drawn if look not in known] == []


def test_the_example_of_the_readme_runs(tmp_path, monkeypatch):
    text = (ROOT / "inspector" / "README.md").read_text("utf-8")
    (code,) = (one for one in re.findall(r"```python\n(.*?)```", text, re.S) if "figures" in one)
    (tmp_path / "assets").symlink_to(ROOT / "assets")
    (tmp_path / "example.py").write_text(code, "utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path("example.py")
    assert (tmp_path / "drift.html").stat().st_size > 10_000
