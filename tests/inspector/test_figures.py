"""Figures for notebooks: every one is drawn, errors name the remedy, the looks are the page's."""

import json
import re
import runpy

import numpy as np
import pytest

from inspector.figures import counts, drift, guider, schedule, similarity, time
from inspector.figures.checks import QUANTITY_NAMES
from inspector.static_files import STATIC
from inspector.views import verdicts
from tests.inspector.figure_traces import (
    changed,
    dual,
    example,
    named,
    narrow,
    plain,
    without_drift,
)
from tests.support.micro import ROOT

COLOUR, GLYPH = r"\[(?P<colour>[\d, ]+)\]", '"(?P<glyph>.)"'
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


ERRORS = {
    "layer: 8 ": lambda: drift.figure(dual(), layer=8),
    "layer: -1 ": lambda: drift.figure(dual(), layer=-1),
    "layer: True ": lambda: drift.figure(dual(), layer=True),
    r"layer: 1\.5 .* choose 0 to 7": lambda: similarity.figure(dual(), layer=1.5),
    "step: 15 .* choose 0 to 14": lambda: drift.figure(dual(), step=15),
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


def branch(trace):
    """A copy that continues a run after its step 6."""
    copy = changed(trace)
    copy.meta["steps_before"] = 6
    return copy


FIRST_STEPS = {
    "drift": lambda: drift.figure(branch(dual()), layer=0).data[0].y0,
    "dots of drift": lambda: min(
        named(drift.figure(branch(dual()), layer=0), "token committed").y
    ),
    "similarity": lambda: similarity.figure(branch(plain()), layer=0).data[0].x[0],
    "counts": lambda: counts.figure(branch(dual())).data[0].x0,
    "kinds": lambda: schedule.figure(branch(dual())).data[0].x[0],
    "shares": lambda: named(schedule.figure(branch(dual())), "share").x0,
    "recomputed so far": lambda: named(
        schedule.figure(branch(dual())), "recomputed so far"
    ).x[0],
    "guider": lambda: guider.figure(branch(example("methods/guided"))).data[0].y[0],
    "time": lambda: time.figure(branch(example("a"))).data[0].x[0],
}  # fmt: skip


@pytest.mark.parametrize("first", FIRST_STEPS.values(), ids=FIRST_STEPS)
def test_the_steps_of_a_branch_are_numbered_on_from_those_of_its_parent(first):
    assert first() == 7


def test_axes_and_titles_of_a_branch_have_the_numbers_of_its_steps():
    steps = len(drift.figure(dual(), layer=0).data[0].z)
    assert drift.figure(branch(dual()), layer=0).layout.yaxis.range == (steps + 6.5, 6.5)
    assert counts.figure(branch(dual())).layout.xaxis.range == (6.5, steps + 6.5)
    assert ", step 14: " in drift.figure(branch(dual()), step=7).layout.title.text


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
    found = re.findall(r"```python\n(.*?)```", text, re.S)
    (code,) = (one for one in found if "inspector.figures" in one)
    (tmp_path / "assets").symlink_to(ROOT / "assets")
    (tmp_path / "example.py").write_text(code, "utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path("example.py")
    assert (tmp_path / "drift.html").stat().st_size > 10_000
