"""The guider's view: verdicts, rates and break-even by counts of one's own."""

import numpy as np
import pytest

from engine.config.spec import RunSpec
from engine.core.events import GUIDED, PARTS
from engine.trace.trace import Trace
from inspector.page_data.lane_card import guider_facts
from inspector.views import guider as view
from inspector.views import time, verdicts
from tests.inspector.unpacked import unpacked
from tests.support import handmade_guided_run as hand
from tests.support.handmade_guided_run import guided_trace
from tests.support.traces import trace_of


def named(found):
    return [
        ["" if c == 255 else found["names"][c] for c in row] for row in unpacked(found["cells"])
    ]


@pytest.mark.parametrize("shared", [True, False])
def test_cells_are_the_verdicts_of_the_steps(shared):
    found = view.guider(guided_trace(shared=shared))
    assert named(found) == list(map(list, hand.CODES))
    assert found["recorded"] is True
    assert found["about"]["shared"] is shared


def test_without_a_recording_only_the_first_mismatch_is_told():
    found = view.guider(guided_trace("off"))
    assert found["recorded"] is False
    want = [["untold" if c in ("agreed", "refused") else c for c in row] for row in hand.CODES]
    assert named(found) == want
    assert found["draft_step"]["shape"] == [0]


def test_rates_are_counts_of_the_steps():
    found = view.guider(guided_trace())
    taken = [k for _, _, k in hand.STEPS]
    assert unpacked(found["accepted"]).tolist() == taken
    assert unpacked(found["mean"]) == pytest.approx([2, 1, 5 / 3])
    assert unpacked(found["histogram"]).tolist() == [taken.count(k) for k in range(4)]
    want = [sum(k >= j for k in taken) / 3 for j in range(4)]
    assert unpacked(found["survival"]) == pytest.approx(want)
    told = found["numbers"]
    judged = sum(len(ids) for ids, _, _ in hand.STEPS)
    agreed = sum(sum(ok) for _, ok, _ in hand.STEPS)
    assert told["top1"] == pytest.approx(agreed / judged)
    assert told["top5"] == 1
    assert told["fallback_rate"] == pytest.approx(1 / 3)
    assert told["nll"] == pytest.approx((0.5 * 8 + 1.5 * 6 + 2.5 * 3) / judged)
    assert told["kl"] == pytest.approx(0.25)
    assert told["tokens"] == 2 + 1 + 3, "what is filled after the end is not counted"
    assert told["per_forward"] == told["per_guider_forward"] == 2
    assert told["prefilled"] == 4


def test_steps_that_draft_nothing_count_in_no_rate(session):
    spec = RunSpec(
        model="tiny-block", prompt="Tom has 3 apples. Tom buys 4. How many apples does Tom have?",
        gen_length=32, block_length=16, unmasker="guided", cache="frozen",
    )  # fmt: skip
    trace = trace_of(session.run(spec))
    found = view.guider(trace)
    drafted, taken = unpacked(found["drafted"]), unpacked(found["accepted"])
    asked = drafted > 0
    assert 0 < asked.sum() < trace.steps
    assert unpacked(found["histogram"]).sum() == asked.sum()
    assert unpacked(found["survival"])[0] == 1
    assert unpacked(found["mean"])[-1] == pytest.approx(taken[asked].mean())
    assert np.isnan(unpacked(found["mean"])[: asked.argmax()]).all()
    assert (unpacked(found["cells"])[~asked] == verdicts.NOT_DRAFTED).all()
    assert unpacked(found["reached"])[-1] == pytest.approx(found["numbers"]["tokens"] / asked.sum())
    assert np.isnan(unpacked(found["reached"])[: asked.argmax()]).all()
    arrays = trace.arrays()
    for name, guided, rest in (
        ("FLOPs", arrays["guided_flops"], arrays["flops"].sum(1) - arrays["guided_flops"][:, 0]),
        ("ms", arrays["guided_ms"], arrays["forward_ms"] + arrays["decide_ms"]
         - arrays["guided_ms"][:, 0]),
    ):  # fmt: skip
        needed = unpacked((found if name == "FLOPs" else time.time(trace))["needed"])[-1]
        assert needed == pytest.approx(1 + guided[:, 0].sum() / rest[asked].sum(), rel=1e-5), name


def test_a_draft_that_the_guiders_tokens_cannot_spell_counts_as_one(monkeypatch):
    trace = guided_trace("off")
    counts = trace.arrays()["guided_count"].copy()
    row = next(s for s, (_, _, k) in enumerate(hand.STEPS) if not k)
    counts[row, [GUIDED.index(name) for name in ("drafted", "judged", "top1", "top5")]] = 0
    arrays = {**trace.arrays(), "guided_count": counts}
    monkeypatch.setattr(trace, "arrays", lambda: arrays)
    found = view.guider(trace)
    assert unpacked(found["drafted"])[row] == 0
    assert unpacked(found["fell_back"]).tolist() == [int(s == row) for s in range(3)]
    assert found["numbers"]["fallback_rate"] == pytest.approx(1 / 3)
    assert unpacked(found["mean"]) == pytest.approx([2, 1, 5 / 3])
    assert unpacked(found["histogram"])[0] == 1


def test_break_even_is_one_and_the_guider_for_all_else():
    found, clocks = view.guider(guided_trace("off")), time.time(guided_trace("off"))
    assert unpacked(found["reached"]) == pytest.approx([2, 3 / 2, 6 / 3])
    assert unpacked(found["needed"]) == pytest.approx([1.25] * 3)
    own = hand.FORWARD_MS + hand.DECIDE_MS - hand.GUIDER_MS
    assert unpacked(clocks["needed"]) == pytest.approx([1 + hand.GUIDER_MS / own] * 3)
    assert unpacked(clocks["guider_ms"])[:, 1].tolist() == [hand.PREFILL_MS, 0, 0]
    assert found["numbers"]["flops_share"] == pytest.approx(0.2)
    assert unpacked(clocks["gflops"])[:, PARTS.index("guider")] == pytest.approx([2.5e-4] * 3)
    assert np.isnan(view.break_even(np.ones(2), np.zeros(2))).all()
    free = view.break_even(np.array([4.0, 0]), np.array([4.0, 4]))
    assert free.tolist() == [2, 1.5], "so far: the second step pays for the first"


@pytest.mark.parametrize("shared", [True, False])
def test_each_drafted_token_finds_the_tokens_that_spell_it(shared):
    trace = guided_trace(shared=shared)
    arrays, found = trace.arrays(), view.guider(trace)
    for row, (first, last) in enumerate(unpacked(found["span"]).tolist()):
        token = int(arrays["draft_id"][row])
        spelt = arrays["guider_id"][first : last + 1].tolist()
        assert spelt == ([token] if shared or token == hand.EOS else [token - 1, token])
        assert arrays["guider_step"][first] == arrays["draft_step"][row]
    assert found["pieces"]["12"] == hand.ODD.decode()
    assert set(found["guider_pieces"]) >= {"11", "12"}


def test_two_tokens_of_a_draft_may_share_one_of_the_guider():
    found = verdicts._covering(np.array([3, 5, 9]), np.array([3, 2, 4]), np.array([2, 7, 9]))
    assert found.tolist() == [[0, 1], [1, 1], [1, 2]]
    given = verdicts._covering(np.array([3, 9]), np.array([3, 4]), np.array([3, 9]))
    assert given.tolist() == [[0, 0], [1, 1]], "bytes 3 to 5 are of a given token"
    ended = verdicts._covering(np.array([4, 4]), np.array([4, 0]), np.array([2, 4, 4]))
    assert ended.tolist() == [[0, 1], [2, 2]]


def test_a_token_that_was_not_judged_has_none():
    trace = guided_trace()
    arrays = dict(trace.arrays())
    arrays["draft_p_g"] = arrays["draft_p_g"].copy()
    arrays["draft_p_g"][4] = np.nan
    trace.arrays = lambda: arrays
    found = unpacked(view.guider(trace)["span"])
    assert found[4].tolist() == [-1, -1]
    assert (found[:4] >= 0).all()


def test_a_run_without_a_guider_says_only_that(traces):
    assert view.guider(traces["a"]) == {"asked": False}
    clocks = time.time(traces["a"])
    assert clocks["guider_ms"]["shape"] == [0, 2]
    assert clocks["needed"]["shape"] == [0]


def test_the_rule_is_that_of_the_spec_with_the_defaults_of_the_unmasker(session):
    trace = guided_trace()
    knobs = {row["name"]: row for row in session.catalog()["unmaskers"]}["guided"]["knobs"]
    assert view.rule(trace) == {k["name"]: k["default"] for k in knobs if k["name"] in view.RULE}
    trace.meta["spec"] |= {"knobs": {"guided.k": 5, "guided.tau": 1, "guided.rule": ["x"] * 9}}
    found = view.rule(trace)
    assert (found["k"], found["tau"], found["rule"]) == (5, 1, "rel")
    trace.meta["spec"] |= {"knobs": "odd"}
    assert view.rule(trace)["k"] == 2


def test_verdicts_that_do_not_fit_the_answer_are_refused():
    arrays = dict(guided_trace().arrays())
    for name, change in (("guided_count", (0, 0)), ("guided_count", (1, 1)), ("draft_position", 0)):
        wrong = arrays[name].copy()
        wrong[change] = 2 if name == "draft_position" else 99
        trace = guided_trace()
        trace.arrays = lambda wrong=wrong, name=name: arrays | {name: wrong}
        with pytest.raises(ValueError, match="do not fit the answer"):
            view.guider(trace)


def test_odd_metadata_is_cut_to_scalars():
    trace = guided_trace()
    trace.meta["guider"] = {"name": "x" * 999, "parameters": "9", "shared": "yes", "layers": [1]}
    found = guider_facts(trace)
    assert len(found["name"]) == 120
    assert (found["parameters"], found["layers"], found["shared"]) == (None, None, False)
    trace.meta["guider"] = 3
    assert guider_facts(trace)["name"] == ""


def test_a_trace_of_it_comes_back_from_a_file(tmp_path):
    trace = guided_trace(shared=False)
    trace.save(tmp_path / "guided.npz")
    loaded = Trace.load(tmp_path / "guided.npz")
    assert view.guider(loaded) == view.guider(trace)
