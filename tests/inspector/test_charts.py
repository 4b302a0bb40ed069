"""The charts of the Learn tab hold the curves that they are given."""

from types import SimpleNamespace

import gradio as gr
import pytest

from inspector.page.embedded_suite import build_embedded_suite
from inspector.page_data.charts import loss_figure


def test_every_model_has_its_curve_and_looks_of_its_own():
    models = [
        {"name": "one", "curve": [[1, 5.0], [2, 3.0]]},
        {"name": "two", "curve": [[1, 4.0], [3, 2.0]]},
        {"name": "three", "curve": [[2, 1.0]]},
    ]
    one, two, three = loss_figure(models).data
    assert (one.name, list(one.x), list(one.y)) == ("one", [1, 2], [5.0, 3.0])
    assert (two.name, list(two.x), list(two.y)) == ("two", [1, 3], [4.0, 2.0])
    assert len({(line.line.color, line.line.dash) for line in (one, two, three)}) == 3


@pytest.mark.parametrize(("curves", "drawn"), [([[]], 0), ([[], [[1, 2.0]]], 1)])
def test_a_model_that_was_trained_for_a_few_steps_has_no_curve(curves, drawn):
    models = [
        {"name": f"m{i}", "tokens": 4e3, "minutes": (0, 0), "curve": curve}
        for i, curve in enumerate(curves)
    ]
    found = {"families": [], "models": models, "limits": ""}
    session = SimpleNamespace(embedded_suite=lambda: found)
    with gr.Blocks() as demo:
        build_embedded_suite(SimpleNamespace(session=session))
    assert sum(isinstance(one, gr.Plot) for one in demo.blocks.values()) == drawn
