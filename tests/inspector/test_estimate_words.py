"""Words of an estimate: every number of the table and the sentences is that of the estimate."""

import pytest

from inspector.page_data import estimate

BASE = {
    "time": {"step_ms": 21.44, "run_seconds": 4.2, "positions_per_s": 60.95},
    "memory": {
        "weights_bytes": 16_000_000_000, "cache_bytes": 500_000_000, "problem": "",
    },
    "flops": 1000, "flops_per_step": 2.271e12,
    "flops_by_part": {"projections": 600, "attention": 397, "ffn": 0, "head": 3},
    "forwards": 256, "recomputed": 0.125, "rows": 40.4, "bytes_per_step": 15e9,
    "device": {"title": "H100 SXM", "source": "published"},
    "assumed": ["both", "own of A"], "published": None,
}  # fmt: skip
NEAR = {
    "method": "dLLM-Cache", "table": "Table 1", "figure": "9.1x", "conditions": "GSM8K",
    "gpu": "RTX 4090", "lengths": "256", "shots": "4", "differs": [],
}  # fmt: skip


def lanes(**changes):
    other = {"time": {"step_ms": 10, "run_seconds": 0.5, "positions_per_s": 512},
             "assumed": ["both", "own of B"], "published": NEAR}  # fmt: skip
    return [BASE, BASE | other | changes]


def test_the_table_has_a_column_for_each_lane():
    rows = {name: values for name, *values in estimate.table(lanes())}
    assert rows["Step, predicted"] == ["21.4 ms", "10 ms"]
    assert rows["Run, predicted"] == ["4.2 s, 256 forwards", "500 ms, 256 forwards"]
    assert rows["FLOPs a step"][0] == "2.27 TFLOPs"
    assert rows["FLOPs by part"][0] == "projections 60 %, attention 40 %"
    assert rows["Rows recomputed"][0] == "12.5 %, 40 enter a step"
    assert rows["Memory"][0] == "weights 16.0 GB, caches 500 MB"


def test_a_single_forward_is_one():
    rows = {name: values for name, *values in estimate.table(lanes(forwards=1))}
    assert rows["Run, predicted"][1] == "500 ms, 1 forward"


def test_the_summary_divides_the_times_and_says_that_they_are_predicted():
    text = estimate.summary(lanes())
    assert "lane A would take 4.2 s and lane B 500 ms: 8.4 times as fast" in text
    assert "predicted, not measured" in text
    slow = BASE["time"] | {"run_seconds": 1000}
    assert ": 0.0042 times as fast" in estimate.summary(lanes(time=slow))


def test_an_assumption_of_one_lane_names_the_lane():
    problem = BASE["memory"] | {"problem": "too large"}
    assert estimate.notes(lanes(memory=problem)) == [
        "Lane B: too large.", "Rates of the device: published.", "both", "Lane A: own of A",
        "Lane B: own of B",
    ]  # fmt: skip


def test_a_published_figure_says_that_nothing_differs():
    (text,) = estimate.published(lanes())
    assert text.startswith("Lane B, dLLM-Cache, Table 1: 9.1x.")
    assert text.endswith("Differs, or not stated: nothing that is compared.")


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (5e5, "0.5 MFLOPs"), (1e9, "1 GFLOPs"), (1.6e13, "16 TFLOPs"), (999.7e9, "1 TFLOPs"),
        (999.4e9, "999 GFLOPs"), (1.2345e15, "1,234 TFLOPs"), (12.0, "0.000012 MFLOPs"),
    ],
)  # fmt: skip
def test_flops_have_the_largest_unit_below_them(count, words):
    assert estimate.flops(count) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.01, "10 ms"), (0.99971, "1 s"), (31.3, "31.3 s"), (59.99, "1 min"), (244.0, "4.07 min"),
        (31_300.0, "8.69 h"), (7.2e6, "2,000 h"), (2e-8, "0.00002 ms"),
    ],
)  # fmt: skip
def test_times_have_a_unit_that_is_read_and_no_exponent(seconds, words):
    slow = {"step_ms": seconds * 1e3, "run_seconds": seconds, "positions_per_s": 31_250.0}
    rows = {name: values for name, *values in estimate.table(lanes(time=slow))}
    assert rows["Step, predicted"][1] == words
    assert rows["Run, predicted"][1] == f"{words}, 256 forwards"
    assert rows["Positions a second"][1] == "31,250"
    assert f"lane B {words}:" in estimate.summary(lanes(time=slow))
