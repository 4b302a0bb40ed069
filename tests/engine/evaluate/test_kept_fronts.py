"""The kept results of the fronts: figures that follow from others are those that the code gives."""

import json

import pytest

from engine.advise.prediction import rank_correlation
from engine.core.files import ASSETS

FILES = sorted((ASSETS / "results").glob("fronts-*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_rank_correlations_are_those_of_the_settings_that_were_run(path):
    for row in json.loads(path.read_text("utf-8"))["methods"]:
        rows = [one for one in row["searched"] if one["predicted"] and one["kept"]]
        predicted, found = [one["predicted"] for one in rows], row["correlations"]
        errors = [-one["error"] for one in predicted]
        times = [one["time"] or 0.0 for one in predicted]
        wanted = {
            "kept": rank_correlation(errors, [one["kept"]["share"] for one in rows]),
            "time": rank_correlation(times, [1 / one["speed_up"] for one in rows]),
            "settings": len(rows),
        }
        assert found == pytest.approx(wanted), row["cache"]
