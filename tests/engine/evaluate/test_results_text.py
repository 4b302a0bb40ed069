"""The sentences and small tables of the results, from made-up rows."""

import pytest

from engine.evaluate import results_text
from engine.evaluate.results_text import check_one_environment
from engine.tiny.corpus import families


def row(name, accuracy, p, **others):
    """A row of one family, or of more by name: pairs of accuracy and p."""
    found = {"short_problems": (accuracy, p), **others}
    return {
        "name": name,
        "families": {
            family: {
                "label": families()[family].label,
                "accuracy": right,
                "standard_error": 0.01,
                "p": chance,
            }
            for family, (right, chance) in found.items()
        },
    }


def test_significant_differences_are_named_with_their_sign():
    rows = [row("plain", 0.9, 1), row("worse", 0.87, 0.011), row("same", 0.88, 0.06)]
    text = results_text._significance("m", "official", [*rows, row("better", 0.93, 0.02)])
    assert "less accurate (p < 0.05), by points: worse (-3.0)." in text
    assert "more accurate, by points: better (+3.0)." in text
    assert "The other row does not differ significantly." in text
    assert "same" not in text
    quiet = results_text._significance("m", "official", [rows[0], rows[2], rows[2]])
    assert "No significant difference" in quiet
    assert "less accurate" not in quiet


def test_a_difference_names_its_family():
    rows = [row("plain", 0.9, 1, balance=(0.8, 1)), row("fast", 0.91, 0.5, balance=(0.7, 0.01))]
    text = results_text._significance("m", "official", rows)
    assert "solves 90.0 ± 1.0 % of short word problems, 80.0 ± 1.0 % of running balance." in text
    assert "less accurate (p < 0.05), by points: fast in running balance (-10.0)." in text
    assert "do not differ" not in text


def test_recording_costs_are_those_of_the_rows():
    def timed(record, speed):
        return {"spec": {"record": record}, "speed_up": speed, "baseline": "plain", "group": "g"}

    text = results_text.recording([timed("off", 1), timed("layers", 0.8)])
    assert text == "Recording changes the time of a run by: plain at g: +25 % (`layers`)."


def test_the_gain_of_chosen_routines_is_that_of_the_rows():
    def timed(name, speed, baseline, chosen):
        found = {"name": name, "speed_up": speed, "baseline": baseline, "group": "g"}
        return found | {"measured_routines": chosen}

    rows = [timed("plain", 1, "", True), timed("eager", 0.9, "plain", True)]
    alone = timed("alone", 0.8, "plain", False)
    assert results_text.routines([*rows, alone]).endswith("chosen ones: plain at g: 1.25x.")
    assert results_text.routines(rows) == "No routine was chosen by measurement."


def test_pace_counts_text_alone():
    """12 of 32 positions are text, complete after 4 of 10 forwards: 3 text tokens a forward."""
    row = {"model": "m", "label": "Sums", "problems": 2, "positions": 32.0, "tokens": 12.0}
    (line,) = (
        one for one in results_text.pace([row | {"nfe": 10.0, "text_nfe": 4.0}]).splitlines()
        if one.startswith("| m ")
    )  # fmt: skip
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == ["m", "Sums", "2", "32", "12.0", "38 %", "4.0", "3.00"]


def document_of(*environments):
    """A document whose parts were measured in the environments given, in turn."""
    row = {"speed": {}}
    parts = [{"environment": one} for one in environments]
    block, speed, grown, sweep, beside = parts
    tables_ = [
        {"name": "t", "blocks": [{"eos": "official", "rows": [row | {"speed": {"x": 1}}]} | block]}
    ]
    return {
        "environment": environments[0], "tables": tables_, "speed": speed, "growth": grown,
        "sweep": sweep, "generate": beside,
    }  # fmt: skip


PARTS = [(1, "speed"), (2, "growth"), (3, "sweep"), (4, "generate")]
HERE = {"device_name": "A", "torch": "2", "commit": "c", "date": "2026-01-01"}


def test_parts_of_one_environment_are_accepted():
    check_one_environment(document_of(*[HERE] * 5))
    check_one_environment(document_of(HERE, HERE | {"date": "2026-01-02"}, HERE, HERE, HERE))


@pytest.mark.parametrize("key", ["device_name", "torch", "commit"])
@pytest.mark.parametrize(("place", "named"), PARTS)
def test_parts_of_two_environments_are_refused(key, place, named):
    found = [HERE] * 5
    found[place] = HERE | {key: "other"}
    with pytest.raises(ValueError, match=f"results: {named} was measured with another {key}"):
        check_one_environment(document_of(*found))
