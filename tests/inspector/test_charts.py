"""The charts of the Learn tab hold the curves that they are given."""

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
