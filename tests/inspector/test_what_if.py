"""The slice of a what-if: the engine's result, refusals with a field, and its size."""

import numpy as np
import pytest

from engine.generate.what_if import what_if
from inspector.run_store import RaceRecord
from inspector.slices.fields import SliceError
from tests.engine.serve.test_race import FAST
from tests.inspector.slices_of import service_of
from tests.inspector.unpacked import decoded
from tests.support.big_trace import make_synthetic_trace
from tests.support.branching import make, record


@pytest.fixture(scope="module")
def trace():
    return record(make(record="steps", unmasker=FAST.unmasker, knobs=FAST.knobs))


@pytest.fixture(scope="module")
def ask(trace):
    """The arrays and facts of the slice of a lane, with parameters."""
    kept = RaceRecord(state="done", traces={"a": trace, "b": record(make())})
    service = service_of(kept)

    def given(lane="a", **fields):
        base = {"run": kept.run_id, "version": kept.version, "lane": lane}
        base |= {"view": "what_if", "step": "1"}
        return decoded(service.slice(base | fields).data)

    return given


@pytest.mark.parametrize("settings", ["", "threshold.threshold=0.7", "unmasker=factor"])
def test_the_slice_is_what_the_engine_says(trace, ask, settings):
    arrays, facts = ask(settings=settings)
    expected = what_if(trace, 1, dict(pair.split("=") for pair in settings.split("&") if pair))
    for name in ("positions", "ids", "score", "chance", "would", "did", "did_ids"):
        assert np.array_equal(arrays[name], expected[name], equal_nan=True)
    for name in ("own", "query", "rule", "refusal"):
        assert facts[name] == expected[name]
    shown = {int(one) for one in arrays["ids"]} - {-1}
    assert {int(one) for one in facts["pieces"]} == shown | set(arrays["did_ids"].tolist()) - {-1}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"step": "99"}, "step: expected a whole number"),
        ({"settings": "seed=1"}, "seed: a what-if changes"),
        ({"settings": "threshold.threshold=-1"}, "threshold.threshold: -1.0 is outside"),
        ({"settings": "&".join(f"a{i}=1" for i in range(40))}, "settings: at most 32"),
        ({"lane": "b"}, "press Record"),
        ({"layer": "1"}, "layer: unknown"),
    ],
)
def test_a_request_that_cannot_be_answered_is_refused(ask, fields, said):
    with pytest.raises(SliceError) as caught:
        ask(**fields)
    assert said in str(caught.value)


def test_a_step_of_a_large_run_is_a_small_slice():
    kept = RaceRecord(state="done", traces={"a": make_synthetic_trace(2, 64, 1200)})
    base = {"run": kept.run_id, "version": kept.version, "lane": "a", "view": "what_if"}
    body = service_of(kept).slice(base | {"step": "40", "settings": "unmasker=threshold"})
    arrays, facts = decoded(body.data)
    assert facts["refusal"] == ""
    assert arrays["would"].any()
    assert len(body.data) < 100_000
