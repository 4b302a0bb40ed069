"""Aggregates of recorded runs, against figures computed from all runs at once."""

from dataclasses import replace

import numpy as np
import pytest

from engine.batch.aggregates import THRESHOLDS, Aggregates, Moments
from engine.config.spec import RunSpec
from engine.core.drift_codes import decode
from engine.core.events import GUIDED, QUANTITIES, SITES
from engine.core.files import ASSETS
from engine.serve.session import Session
from engine.trace.trace import Trace
from tests.support.micro import write_checkpoint
from tests.support.traces import trace_of

PROMPTS = ("one two", "three", "four five six")
SHAPE = {"gen_length": 16, "block_length": 8, "steps": 16, "record": "probe", "probe_steps": 3}
SPEC = RunSpec(model="micro", prompt="x", cache="dllm_cache", **SHAPE)


def recorded(session, spec):
    trace = trace_of(session.run(spec))
    assert trace.meta["reason"] == "done", trace.meta["message"]
    return trace


@pytest.fixture(scope="module")
def traces(checkpoint):
    session = Session({"micro": checkpoint})
    return [recorded(session, replace(SPEC, prompt=prompt)) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def found(traces):
    made = Aggregates()
    for name, trace in zip(PROMPTS, traces, strict=True):
        made.add(name, trace)
    return made


def same(described, values):
    """Whether means, standard deviations and numbers of runs are those of `values` [runs, ...]."""
    values = np.array(values, float)
    count = (~np.isnan(values)).sum(0)
    with np.errstate(all="ignore"):
        mean = np.where(count > 0, np.nansum(values, 0) / count, np.nan)
        spread = np.sqrt(np.nansum((values - mean) ** 2, 0) / (count - 1))
    spread = np.where(count > 1, spread, np.nan)
    assert np.array_equal(described["runs"], count)
    for name, wanted in (("mean", mean), ("sd", spread)):
        given = np.array(described[name], float)
        assert np.allclose(given, wanted, rtol=1e-5, atol=1e-9, equal_nan=True), name


def test_drift_by_layer_and_its_counts(found, traces):
    shown = found.to_dict()
    cells = [decode(trace.cells("drift")) for trace in traces]  # [S, L, Q, T]
    same(shown["drift"], [np.nanmean(one, (0, 3)).T for one in cells])
    above = []
    for one in cells:
        known = ~np.isnan(one)
        shares = [((one > t) & known).sum((0, 3)) / known.sum((0, 3)) for t in THRESHOLDS]
        above.append(np.moveaxis(shares, 0, -1).swapaxes(0, 1))
    same(shown["above"], above)
    layer, quantity = 1, QUANTITIES.index("v")
    every = np.concatenate([one[:, layer, quantity].ravel() for one in cells])
    every = np.sort(every[~np.isnan(every)])
    wanted = [every[int(np.ceil(share * len(every))) - 1] for share in (0.25, 0.5, 0.75)]
    assert shown["quantiles"][quantity][layer] == pytest.approx(wanted, rel=1e-5)


def test_a_block_that_the_prompt_shares_is_part_of_the_answer():
    trace = Trace.load(ASSETS / "examples" / "lessons" / "block_frozen.npz")
    aggregates = Aggregates()
    aggregates.add("run", trace)
    means = aggregates.to_dict()["similarity"]["mean"]
    decoded, steps = decode(trace.cells("similarity")), trace.arrays()["similarity_step"]
    assert trace.arrays()["similarity_group"][1, 0] < trace.prompt_length
    later, earlier = np.tril_indices(len(steps), -1)
    next_to = later * (later + 1) // 2 + earlier
    codes = decoded[next_to[steps[later] - steps[earlier] == 1]]  # [pairs, 2, L, groups]
    for part, groups in enumerate((slice(1), slice(1, None))):
        wanted = np.nanmean(codes[..., groups], (0, 3))
        given = np.array(means, float)[:, :, part, 0]
        assert np.allclose(given, wanted, rtol=1e-5, atol=1e-9)


def test_similarity_by_distance(found, traces):
    shown = found.to_dict()["similarity"]
    reach = len(shown["mean"][0][0][0])
    values = []
    for trace in traces:
        arrays, codes = trace.arrays(), decode(trace.cells("similarity"))
        steps, prompt = arrays["similarity_step"], int(arrays["prompt_mask"].sum())
        out = np.full((2, trace.layers, 2, reach), np.nan)
        for distance in range(1, reach + 1):
            pairs = [
                i * (i + 1) // 2 + j
                for i in range(len(steps))
                for j in range(i)
                if steps[i] - steps[j] == distance
            ]
            for part in (0, 1):
                groups = [
                    g for g, (low, _) in enumerate(arrays["similarity_group"])
                    if (low >= prompt) == bool(part)
                ]  # fmt: skip
                if pairs and groups:
                    out[:, :, part, distance - 1] = codes[pairs][..., groups].mean((0, 3))
        values.append(out)
    assert reach == max(len(trace.arrays()["similarity_step"]) for trace in traces) - 1
    same(shown, values)


def test_error_against_exact_and_tokens(found, traces):
    shown = found.to_dict()
    errors = [decode(trace.cells("probe_error")) for trace in traces]
    same(shown["error"], [np.nanmean(one, (0, 3)).T for one in errors])
    assert np.array(shown["error"]["mean"]).shape == (len(SITES), traces[0].layers)
    assert np.nanmax(np.array(shown["error"]["mean"], float)) > 0
    arrays = [trace.arrays() for trace in traces]
    same(shown["tv"], [one["probe_tv"].mean() for one in arrays])
    tops = [one["probe_top"] for one in arrays]
    same(shown["flips"], [(top[:, 0] != top[:, 1]).mean() for top in tops])
    same(shown["tokens"], [len(one["commit_step"]) / len(one["rows"]) for one in arrays])
    assert shown["committed"] == [0, sum(len(one["rows"]) for one in arrays)]
    assert shown["accepted"] == []


def test_accepted_lengths_of_guided_runs(traces):
    trace = traces[0].snapshot()
    guided = np.zeros((trace.steps, len(GUIDED)), np.int32)
    guided[:, GUIDED.index("accepted")] = np.arange(trace.steps) % 3
    guided[1:, GUIDED.index("drafted")] = 4  # the first step drafts nothing
    trace._arrays["guided_count"] = guided
    made = Aggregates()
    made.add("a", trace)
    assert made.to_dict()["accepted"] == [5, 5, 5]


def test_a_run_counts_once_and_memory_does_not_grow(traces):
    made = Aggregates()
    for i in range(3):
        made.add("same", traces[i])
    assert made.runs == 1
    size = len(made.to_bytes())
    for i in range(30):
        made.add(f"another {i}", traces[i % 3])
    assert made.runs == 31
    assert len(made.to_bytes()) < 2 * size


def test_a_kept_state_goes_on_as_if_it_had_not_been_interrupted(found, traces):
    made = Aggregates()
    made.add(PROMPTS[0], traces[0])
    made = Aggregates.from_bytes(made.to_bytes())
    for name, trace in zip(PROMPTS, traces, strict=True):
        made.add(name, trace)
    assert made.to_dict() == found.to_dict()


@pytest.mark.parametrize("cut", [0, 10, 500])
def test_a_damaged_state_is_refused(found, cut):
    with pytest.raises(ValueError, match=r"^aggregates: the file is damaged"):
        Aggregates.from_bytes(found.to_bytes()[:cut])


def test_a_model_of_other_layers_is_refused(traces):
    made = Aggregates()
    made.add("a", traces[0])
    other = traces[1].snapshot()
    for name in ("plan", "recorded_layer", "drift"):
        other._arrays[name] = other._arrays[name][:, :1] if name != "recorded_layer" else [0]
    other._arrays["recorded_layer"] = np.array([0], np.int32)
    with pytest.raises(ValueError, match=r"^aggregates: the run has 1 layers and the others"):
        made.add("b", other)


def test_commit_calls_are_no_steps_that_commit_nothing(tmp_path):
    session = Session({"sdar": write_checkpoint(tmp_path / "sdar", kind="sdar")})
    size = {"gen_length": 8, "block_length": 4, "steps": 8, "record": "steps"}
    trace = recorded(session, RunSpec(model="sdar", prompt="one two", cache="frozen", **size))
    made = Aggregates()
    made.add("run", trace)
    shown, proposing = made.to_dict(), int((~trace.commit_calls).sum())
    assert proposing < trace.steps
    assert (shown["committed"][0], sum(shown["committed"])) == (0, proposing)
    tokens = int(np.isfinite(trace.arrays()["commit_confidence"]).sum())
    assert shown["tokens"]["mean"] == pytest.approx(tokens / proposing, rel=1e-5)


def test_nothing_recorded_has_no_figures():
    shown = Aggregates().to_dict()
    assert (shown["runs"], shown["layers"], shown["committed"]) == (0, 0, [])


def test_moments_leave_out_what_is_not_known():
    moments = Moments((2,))
    for row in ([1.0, np.nan], [3.0, 5.0], [8.0, np.nan]):
        moments.add(np.array(row))
    assert moments.means().tolist() == [4, 5]
    assert moments.deviations()[0] == pytest.approx(np.std([1, 3, 8], ddof=1))
    assert np.isnan(moments.deviations()[1])
