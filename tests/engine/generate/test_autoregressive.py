"""Autoregressive decoding: equal to transformers, one token a forward, and what it refuses."""

import shutil
from copy import deepcopy
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from engine.config.answers import is_right
from engine.config.spec import RaceSpec, RunSpec
from engine.core.events import PARTS, RunFinished, RunStarted, StepEvent
from engine.evaluate.causal_exam import exam_spec
from engine.evaluate.exam import evaluate
from engine.generate.autoregressive import AutoregressiveDecoder
from engine.guider.model import load_guider
from engine.serve.lane import AutoregressiveLane
from engine.serve.loaded_model import prompt_ids
from engine.serve.session import Session
from engine.tiny.corpus import exam_questions
from engine.trace.trace import Trace
from tests.support.micro import ROOT
from tests.support.traces import trace_of

MODELS = ROOT / "assets" / "models"
EMBEDDED = ("tiny-qwen2", "tiny-qwen2-digits")
PROMPT = "Nuts cost 9 dollars each. Lily buys 5 nuts. How much does Lily pay?"
SPEC = RunSpec(prompt=PROMPT, unmasker="autoregressive", gen_length=64, eos="fill_safe")


@pytest.fixture(scope="module")
def models():
    cpu = torch.device("cpu")
    return {name: load_guider(name, MODELS / name, torch.float32, cpu) for name in EMBEDDED}


def decode(model, spec):
    """The decoder after its last step, and its events."""
    decoder = AutoregressiveDecoder(model, spec, prompt_ids(spec, model.tokenizer))
    return decoder, list(decoder.steps())


def answer(model, spec):
    decoder, _ = decode(model, spec)
    return decoder.ids[0, decoder.prompt_length :].tolist()


@cache
def by_transformers(folder):
    """A model that transformers loads by itself."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def generated(folder, prompt, stops, length):
    """The answer of transformers, with what follows the first stop filled."""
    model, ids = by_transformers(folder), torch.tensor([prompt])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=length, do_sample=False,
        eos_token_id=list(stops), pad_token_id=stops[0],
    )  # fmt: skip
    found = out[0, len(prompt) :].tolist()
    return found + [stops[0]] * (length - len(found))


@pytest.mark.parametrize("name", EMBEDDED)
@pytest.mark.parametrize("family", ["short_problems", "reversal"])
def test_greedy_answers_equal_those_of_transformers(models, name, family):
    model = models[name]
    for _, text in exam_questions(1, 3, 1, family):
        spec = replace(SPEC, prompt=text)
        prompt = prompt_ids(spec, model.tokenizer)
        expected = generated(MODELS / name, prompt, model.stop_ids, spec.gen_length)
        assert answer(model, spec) == expected
        drawn = replace(spec, temperature=3.0, gen_length=8, block_length=8, steps=8)
        assert answer(model, drawn) != expected[:8]


def test_a_seed_fixes_what_is_drawn(models):
    short = replace(SPEC, temperature=3.0, gen_length=16, block_length=16, steps=16)
    drawn = [answer(models["tiny-qwen2"], replace(short, seed=s)) for s in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_tokens_are_drawn_with_their_probabilities(models, monkeypatch):
    """The first token of many seeds, against the model's own distribution at the temperature.

    The forward is the same for each and is run once.
    """
    model, temperature = models["tiny-qwen2"], 2.0
    spec = replace(SPEC, temperature=temperature, gen_length=1, block_length=1, steps=1)
    prompt = prompt_ids(spec, model.tokenizer)
    with torch.inference_mode():
        logits = model.model(input_ids=torch.tensor([prompt])).logits[:, -1:]

    def forward(input_ids, **others):
        assert input_ids.tolist() == [prompt]
        return SimpleNamespace(logits=logits.clone())

    monkeypatch.setattr(model.model, "forward", forward)
    p = (logits[0, 0].double() / temperature).softmax(-1)
    best = int(p.argmax())
    hits = [answer(model, replace(spec, seed=seed)) == [best] for seed in range(400)]
    share, expected = np.mean(hits), float(p[best])
    assert abs(share - expected) < 4 * (expected * (1 - expected) / len(hits)) ** 0.5
    assert 0.02 < expected < 0.98


def test_each_forward_reads_what_is_new_and_writes_one_token(models):
    model = models["tiny-qwen2"]
    decoder, events = decode(model, SPEC)
    prompt = decoder.prompt_length
    assert [event.rows for event in events] == [prompt, *[1] * (len(events) - 1)]
    places = [*range(prompt, prompt + len(events))]
    assert [int(event.positions[0]) for event in events] == places
    assert [event.rows_plain for event in events] == places
    assert [len(event.positions) for event in events[:-1]] == [1] * (len(events) - 1)
    for event in events[:-1]:
        assert 0 < event.confidence[0] <= 1
        assert event.recomputed == event.rows / decoder.ids.shape[1]
    assert decoder.cached_bytes() == model.cache_bytes(prompt + len(events) - 1)


def test_after_the_end_of_the_text_the_answer_is_filled_and_not_counted(models):
    model = models["tiny-qwen2"]
    decoder, events = decode(model, SPEC)
    last = events[-1]
    assert int(last.ids[0]) in model.stop_ids
    assert len(last.positions) == SPEC.gen_length - len(events) + 1 > 1
    assert np.isnan(last.confidence[1:]).all()
    assert set(last.ids[1:].tolist()) == {model.stop_ids[0]}
    assert last.masks_left == 0
    assert not decoder.masked.any()
    lane = AutoregressiveLane(model, SPEC)
    lane.start()
    while not isinstance(end := lane.advance(), RunFinished):
        pass
    assert end.metrics["tokens"] == end.metrics["text_nfe"] == len(events) - 1
    assert end.metrics["nfe"] == len(events)
    assert end.texts[0] == model.tokenizer.decode(decoder.ids[0, decoder.prompt_length :].tolist())


def test_logits_that_are_no_numbers_end_the_run(models):
    model = models["tiny-qwen2"]
    broken = deepcopy(model.model)
    broken.get_output_embeddings().weight.data[7] = torch.nan
    with pytest.raises(RuntimeError, match="logits of the causal model are not finite numbers"):
        decode(replace(model, model=broken), SPEC)


def test_flops_are_those_of_the_matrices(models):
    model = models["tiny-qwen2"]
    info = AutoregressiveDecoder(model, SPEC, [1]).info
    d, kv = info.d_model, info.d_kv
    parts = dict(zip(PARTS, model.flop_parts(3, 10, 1), strict=True))
    assert parts["projections"] == 2 * 3 * info.layers * (2 * d * d + 2 * d * kv)
    assert parts["ffn"] == 2 * 3 * info.layers * 3 * d * info.ffn
    assert parts["attention"] == 4 * 3 * 10 * d * info.layers
    assert parts["head"] == 2 * d * (info.vocab_size - 1)
    assert sum(parts.values()) == model.flops(3, 10, 1)


def test_a_run_needs_no_diffusion_model_and_its_trace_can_be_read():
    trace = trace_of(Session({}).run(replace(SPEC, model="none-here", record="steps")))
    read = Trace.from_bytes(trace.to_bytes())
    assert read.meta["reason"] == "done"
    assert read.meta["model"]["name"] == "tiny-qwen2"
    assert read.meta["model"]["mask_id"] == 1024
    rows = read.recompute_map()[:, 0, 0]
    prompt = int(read.arrays()["prompt_mask"].sum())
    assert rows[0].nonzero()[0].tolist() == [*range(prompt)]
    assert rows[1].nonzero()[0].tolist() == [prompt]
    assert len(read.arrays()["drift"]) == 0


def test_an_unwritten_answer_token_has_no_text(shipped):
    (started,) = (e for e in shipped.run(SPEC) if isinstance(e, RunStarted))
    assert started.pieces[started.model["mask_id"]] == b""
    assert started.model["stop_ids"][0] == started.model["eos_id"]


def test_both_lanes_of_a_race_end_by_one_rule(shipped):
    race = shipped.resolve(
        RaceSpec(RunSpec(prompt=PROMPT), RunSpec(prompt=PROMPT, unmasker="autoregressive"))
    )
    assert {race.a.eos, race.b.eos} == {"fill_safe"}


def test_lanes_take_turns_by_the_time_they_used(shipped):
    spec = RunSpec(prompt=PROMPT, gen_length=32, block_length=32, steps=32)
    clock = {"a": 0.0, "b": 0.0}
    done = set()
    for lane, event in shipped.race(RaceSpec(spec, replace(SPEC, gen_length=32))):
        if isinstance(event, StepEvent):
            assert done or clock[lane] <= min(clock.values())
            clock[lane] += event.step_ms
        elif isinstance(event, RunFinished):
            assert event.reason == "done"
            done.add(lane)
    assert done == {"a", "b"}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"cache": "dual"}, "cache: "),
        ({"cfg_scale": 1.0}, "cfg_scale: "),
        ({"eos_suppress": "logits"}, "eos_suppress: "),
        ({"fixed": ((3, 7),)}, "fixed: "),
        ({"knobs": {"autoregressive.model": "no-such-model"}}, "autoregressive.model: 'no-such"),
        ({"knobs": {"autoregressive.model": str(MODELS / "tiny-llada")}}, "autoregressive.model: "),
        ({"prompt": "word " * 1000}, "prompt: "),
        ({"prompt": " "}, "prompt: "),
        ({"knobs": {"autoregressive.modle": "x"}}, "autoregressive.modle: unknown setting"),
    ],
)
def test_what_cannot_be_run_is_named(shipped, changes, named):
    with pytest.raises(ValueError, match=f"^{named}"):
        shipped.plan(replace(SPEC, **changes))


def test_a_what_if_of_such_a_run_is_refused(shipped):
    trace = trace_of(shipped.run(replace(SPEC, record="steps")))
    with pytest.raises(ValueError, match="autoregressive has no denoising steps"):
        shipped.what_if(trace, 0, {"unmasker": "threshold"})


def test_the_exam_marks_its_answers(models):
    questions = exam_questions(3, 7, 0, "short_problems")
    spec = exam_spec(MODELS / "tiny-qwen2")
    found = evaluate(models["tiny-qwen2"], spec, questions, fit=False)
    for one, (problem, _) in zip(found, questions, strict=True):
        assert one.correct == is_right(one.text, problem.answer)
        assert one.nfe == len(one.ids) + 1 == one.text_nfe + 1
        assert one.positions == spec.gen_length


@pytest.mark.parametrize(("length", "block"), [(32, 32), (24, 8)])
def test_what_a_step_plans_is_what_it_does(shipped, length, block):
    spec = replace(SPEC, gen_length=length, block_length=block, record="steps", steps=length)
    trace = trace_of(shipped.run(replace(spec, eos="fill_safe")))
    assert trace.recomputed_kinds().tolist() == trace.arrays()["planned"].tolist()


def test_recording_such_a_run_adds_no_exact_forwards_and_no_drifts(shipped):
    plan = shipped.plan(replace(SPEC, record="probe"))
    assert plan["probe_forwards"] == 0
    assert plan["recording"]["level"] == "steps"
    steps = shipped.plan(replace(SPEC, record="steps"))["recording"]["bytes"]
    assert plan["recording"]["bytes"] == shipped.plan(SPEC)["recording"]["bytes"] == steps > 0


def test_a_model_in_llamas_layout_decodes_as_in_transformers(models, tmp_path):
    """Random weights with the tokenizer of an embedded guider."""
    for path in (MODELS / EMBEDDED[0]).glob("tokenizer*"):
        shutil.copy(path, tmp_path)
    known = models[EMBEDDED[0]]
    config = LlamaConfig(
        vocab_size=known.model.config.vocab_size, hidden_size=64, intermediate_size=96,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        eos_token_id=known.stop_ids[0], pad_token_id=known.stop_ids[0],
    )  # fmt: skip
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(3)
        LlamaForCausalLM(config).save_pretrained(tmp_path)
    model = load_guider("llama", tmp_path, torch.float32, torch.device("cpu"))
    spec = replace(SPEC, gen_length=32)
    prompt = prompt_ids(spec, model.tokenizer)
    found = answer(model, spec)
    assert found == generated(tmp_path, prompt, model.stop_ids, 32)
    assert len(set(found)) > 2
