"""The engine as a model of the harness: answers, log-likelihoods and errors."""

import dataclasses
from itertools import combinations

import pytest
import torch

pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from engine.config.spec import MAX_PROMPT_CHARS
from engine.evaluate.exam import evaluate
from engine.generate.loop import Denoiser, denoise
from engine.lm_eval.likelihood import (
    continuation_logits,
    factors,
    forward_gflops,
    greedy_check,
    likelihood_gflops,
    log_likelihood,
)
from engine.lm_eval.model import DriftscopeLM
from engine.lm_eval.options import cut, prompted
from engine.lm_eval.responses import Response
from engine.models.loading.hub import Hub
from engine.serve.loaded_model import make_job, prompt_ids
from engine.tiny.corpus import exam_questions
from tests.support.hub_stub import online, serving  # noqa: F401
from tests.support.micro import (
    MASK,
    MicroAdapter,
    configure,
    fill,
    make_info,
    write_checkpoint,
)


@pytest.fixture(scope="module")
def model():
    return DriftscopeLM(
        "tiny-llada", batch_size=2, cache="dual", unmasker="threshold", threshold=0.9
    )


def asked(*args, doc=0, repeats=1):
    return Instance("generate_until", {}, args, 0, ("task", doc, repeats))


def test_a_model_of_the_hub_is_downloaded(tmp_path, monkeypatch, online):  # noqa: F811
    with serving({"own/micro": write_checkpoint(tmp_path / "origin")}) as stub:
        hub = Hub(tmp_path / "cache", stub.endpoint)
        monkeypatch.setattr("engine.lm_eval.model.Hub", lambda: hub)
        own = DriftscopeLM("own/micro", gen_length=8, block_length=8, steps=8)
    assert own.spec.model == "own/micro"
    assert len(own.generate_until([asked("Ann has 3 pens.", {"until": []})])) == 1


def test_answers_equal_those_of_the_exam(model):
    questions = exam_questions(4, 7, 0, "short_problems")
    wanted = [one.text for one in evaluate(model.model, model.spec, questions, 1, False)]
    prompts = [model.apply_chat_template([{"role": "user", "content": q}]) for _, q in questions]
    assert model.generate_until([asked(p, {"until": []}) for p in prompts]) == wanted


def test_a_stop_string_of_several_tokens_cuts_the_text(model):
    ((_, question),) = exam_questions(1, 7, 0, "short_problems")
    prompt = model.apply_chat_template([{"role": "user", "content": question}])
    (whole,) = model.generate_until([asked(prompt, {"until": []})])
    stop = " ".join(whole.split(" ")[3:6])
    assert len(model.tok_encode(stop)) > 1
    assert model.generate_until([asked(prompt, {"until": [stop]})]) == [whole[: whole.find(stop)]]
    assert cut("abc", [""]) == "abc"


@pytest.mark.parametrize("shift", [0, 1])
def test_the_estimate_approaches_the_mean_over_all_masks(shift):
    adapter = fill(MicroAdapter(make_info(shift)).double(), 3)
    context, target = [5, 6, 7], [8, 9, 10]
    exact = 0.0
    for count in (1, 2, 3):
        sets = list(combinations(range(3), count))
        for chosen in sets:
            shown = [MASK if i in chosen else token for i, token in enumerate(target)]
            canvas = torch.tensor([context + shown])
            logits = continuation_logits(adapter, canvas, 3)[0].log_softmax(-1)
            exact += sum(float(logits[i, target[i]]) for i in chosen) / count / len(sets)
    found = [log_likelihood(adapter, context, target, 64, seed=seed) for seed in range(40)]
    spread = torch.tensor(found).std().item() / 40**0.5
    assert sum(found) / 40 == pytest.approx(exact, abs=4 * spread)
    assert sum(found) / 40 != pytest.approx(exact / 3, abs=4 * spread)
    assert found[0] == log_likelihood(adapter, context, target, 64, seed=0)
    other_batch = log_likelihood(adapter, context, target, 64, batch=7, seed=0)
    assert other_batch == pytest.approx(found[0], abs=1e-9)
    assert found[0] != found[1]


def block_adapter(shift, size=3):
    blocks = {"attention": "block_causal", "block_size": size, "block_sizes": (size,)}
    return fill(MicroAdapter(make_info(shift, **blocks)).double(), 3)


@pytest.mark.parametrize(("shift", "start", "parts"), [
    (0, 4, [(4, 6), (6, 9), (9, 10)]), (1, 4, [(4, 6), (6, 7), (7, 9), (9, 10)]),
    (0, 6, [(6, 9), (9, 10)]), (1, 6, [(6, 7), (7, 9), (9, 10)]),
])  # fmt: skip
def test_a_block_model_predicts_block_after_block(shift, start, parts):
    assert factors(block_adapter(shift).info, start, 10) == parts
    assert factors(make_info(shift), start, 10) == [(start, 10)]


@pytest.mark.parametrize("shift", [0, 1])
def test_blocks_of_one_position_give_the_exact_likelihood(shift):
    """Each token follows from those before it: the product of causal predictions, no estimate."""
    adapter, context, target = block_adapter(shift, size=1), [5, 6, 7], [8, 9, 10]
    exact = 0.0
    for i, token in enumerate(target):
        canvas = torch.tensor([context + target[:i] + [MASK]])
        exact += float(continuation_logits(adapter, canvas, 3 + i)[0, 0].log_softmax(-1)[token])
    assert log_likelihood(adapter, context, target, 1) == pytest.approx(exact)
    whole = block_adapter(shift, size=8)
    assert log_likelihood(whole, context, target, 1) != pytest.approx(exact)


def test_later_blocks_do_not_change_the_likelihood_of_earlier_ones():
    adapter, context = block_adapter(0), [5, 6, 7]
    logits = [
        continuation_logits(adapter, torch.tensor([[*context, 8, 9, 10, last]]), 3)[0, :3]
        for last in (11, 12)
    ]
    assert torch.equal(*logits)
    full = fill(MicroAdapter(make_info(0)).double(), 3)
    texts = [torch.tensor([[*context, 8, 9, 10, last]]) for last in (11, 12)]
    one, other = (continuation_logits(full, text, 3)[0, :3] for text in texts)
    assert not torch.equal(one, other)


def test_sampled_answers_do_not_depend_on_the_batch():
    """The run card of an answer names a seed that gives it again alone."""
    prompts = [
        "Max has 3 keys. He finds 9 more.",
        "Ann has 3 apples.",
        "Plums cost 3 dollars each.",
    ]
    settings = {"gen_length": 32, "steps": 8, "temperature": 1.5}
    alone, together = (DriftscopeLM("tiny-llada", batch_size=size, **settings) for size in (1, 3))
    wanted = alone.generate_until([asked(p, {"until": []}) for p in prompts])
    assert together.generate_until([asked(p, {"until": []}) for p in prompts]) == wanted
    assert len(set(wanted)) > 1


@pytest.mark.parametrize(
    ("given", "temperature"),
    [({"temperature": 5.0}, 5.0), ({"temperature": 5.0, "do_sample": False}, 0.0),
     ({"temperature": 0.0, "do_sample": True}, 0.0), ({"do_sample": True}, 0.0), ({}, 0.0)],
)  # fmt: skip
def test_a_temperature_alone_samples_as_in_the_harness(model, given, temperature):
    assert model._generation(given)[0].temperature == temperature


@pytest.mark.parametrize("name", ["tiny-llada", "tiny-block"])
def test_an_answer_has_no_more_tokens_than_asked_for(name, tmp_path):
    """A run decodes whole blocks, those of a block model also around the end of the prompt."""
    prompt = "Plums cost 3 dollars each. Ben buys 2 plums. How much does he pay?"
    model = DriftscopeLM(name, batch_size=2, samples=tmp_path, cards=True)
    requests = [asked(prompt, {"until": [], "max_gen_toks": n}, doc=n) for n in (10, 11, 16)]
    texts = model.generate_until(requests)
    rows = [model.responses.find(model._asked(one, 0).key) for one in requests]
    assert [one.tokens for one in rows] == [10, 11, 16]
    assert texts[2].startswith(texts[1])
    cards = [path.name for path in tmp_path.rglob("*.json")]  # a repeat gives what was cut off
    assert cards == (["task-16-0-0.json"] if name == "tiny-llada" else [])


def test_answers_are_kept_by_the_size_of_their_batch():
    """Their forwards and times are shares of it."""
    keys = {
        DriftscopeLM("tiny-llada", batch_size=size)._asked(asked("One", {"until": []}), 0).key
        for size in (1, 3)
    }
    assert len(keys) == 2


def test_a_kept_likelihood_is_not_one_with_guidance(model):
    request = asked("One", " two")
    model.loglikelihood([request])
    spec = model.spec
    model.spec = dataclasses.replace(spec, cfg_scale=1.5)
    try:
        with pytest.raises(ValueError, match=r"^cfg_scale"):
            model.loglikelihood([request])
    finally:
        model.spec = spec


def test_a_likelihood_is_kept_by_the_block_length_if_it_depends_on_it(model):
    block, keys = DriftscopeLM("tiny-block"), []
    for one in (block, model):
        spec = one.spec
        for length in (16, 32):
            one.spec = dataclasses.replace(spec, block_length=length, gen_length=32, steps=32)
            keys.append(one._likelihood_key([1, 2], [3]))
        one.spec = spec
    assert keys[0] != keys[1]
    assert keys[2] == keys[3]


def test_a_long_context_leaves_room_for_all_that_is_decoded(model):
    long = "one two three " * 400
    block = DriftscopeLM("tiny-block", greedy=True, mc_num=1)
    size = block.model.adapter.info.max_length  # that of both models
    context, target = block._pair(long, " four")
    assert size - len(context) == block.spec.block_length > len(target)
    assert block.loglikelihood([Instance("loglikelihood", {}, (long, " four"), 0)])[0][0] < 0
    spec = model.spec
    model.spec = dataclasses.replace(spec, suffix=" That is all.", gen_length=32, steps=8)
    ids = model._asked(asked(long, {"until": []}), 0).ids
    assert len(model.generate_until([asked(long, {"until": []})])) == 1
    model.spec = spec
    assert size - len(ids) > 32, "the text after the answer has room too"


def test_an_empty_context_has_the_token_that_a_likelihood_conditions_on():
    dream = DriftscopeLM("tiny-dream", gen_length=32, steps=8)
    assert dream._asked(asked("", {"until": []}), 0).ids == [dream.prefix_token_id]
    assert len(dream.generate_until([asked("", {"until": []})])) == 1


def test_what_has_no_meaning_is_refused_by_name(model):
    with pytest.raises(NotImplementedError, match="loglikelihood_rolling"):
        model.loglikelihood_rolling([asked("a")])
    with pytest.raises(ValueError, match=r"treshold: unknown.*threshold"):
        DriftscopeLM("tiny-llada", unmasker="threshold", treshold=0.9)
    with pytest.raises(ValueError, match="unmasker: autoregressive has no denoising steps"):
        DriftscopeLM("tiny-llada", unmasker="autoregressive")
    with pytest.raises(ValueError, match="batch_size"):
        DriftscopeLM("tiny-llada", batch_size="auto")
    assert model.loglikelihood([asked("a", "")]) == [(0.0, True)]


def test_repetitions_are_sampled_anew_and_padding_is_not_counted():
    model = DriftscopeLM("tiny-llada", gen_length=32, steps=8, temperature=1.5)
    one = asked(
        "Max has 3 keys. He finds 9 more. How many keys does Max have?", {"until": []}, repeats=2
    )
    first, second, padding, _ = model.generate_until([one] * 4)
    assert first != second
    assert padding == first
    assert model.responses.by_task()["task"]["requests"] == 2


def test_a_prompt_longer_than_a_spec_holds_is_decoded(model, caplog):
    prompt = "a " * 5_000
    assert len(prompt) > MAX_PROMPT_CHARS
    assert model.generate_until([asked(prompt, {"until": [], "top_p": 0.9})])
    assert "context are left out" in caplog.text
    assert "top_p has no effect" in caplog.text
    guided = DriftscopeLM("tiny-llada", unmasker="guided", eos="fill_safe")
    with pytest.raises(ValueError, match="unmasker: guided decoding takes prompts of at most"):
        guided.generate_until([asked(prompt, {"until": []})])


def test_tokens_without_a_context_follow_the_start_of_a_text():
    model = DriftscopeLM("tiny-llada", mc_num=2)
    target, start = model.tok_encode("So 4."), [model.prefix_token_id]
    alone, started = model._loglikelihood_tokens(
        [
            (("", "So 4."), [], target),
            (("", "So 4."), start, target),
        ]
    )
    assert alone == started
    long = "a " * 2_000
    with pytest.raises(ValueError, match=r"^context: an answer of .* leaves no room"):
        model._loglikelihood_tokens([(("", long), [], model.tok_encode(long))])
    with pytest.raises(ValueError, match=r"^context: an answer of .* leaves no room"):
        model.loglikelihood([asked("", long)])


def test_only_whole_prompts_have_run_cards(tmp_path):
    model = DriftscopeLM("tiny-llada", gen_length=32, steps=8, samples=tmp_path, cards=True)
    for context in ("", " \n", "a " * 900, "What is 4 + 5?"):
        model.generate_until([asked(context, {"until": []})])
    (card,) = tmp_path.rglob("*.json")
    assert "What is 4 + 5?" in card.read_text("utf-8")


def test_the_greedy_check_of_a_block_model_counts_its_forwards_of_whole_blocks():
    model = DriftscopeLM("tiny-block", greedy=True, mc_num=1)
    context, target = (model.tok_encode(text) for text in ("Ann has 3 apples.", " four"))
    _, forwards, _ = greedy_check(model.model, model.spec, context, target)
    response = model._scored(context, target)
    assert forwards > len(target)
    text = len(context), len(context) + len(target)
    assert response.forwards == len(factors(model.model.adapter.info, *text)) + forwards


def test_a_guider_reads_the_turns_of_a_templated_context_in_its_own_template():
    knobs = {"guided.prompt": "own_template"}
    model = DriftscopeLM("tiny-llada", unmasker="guided", eos="fill_safe", batch_size=2, **knobs)
    questions = [prompt for _, prompt in exam_questions(2, 7, family="short_problems")]
    contexts = [model.apply_chat_template([{"role": "user", "content": q}]) for q in questions]
    until = {"until": []}
    model.generate_until([asked(text, until) for text in contexts])
    found = [model.responses.find(model._asked(asked(text, until), 0).key) for text in contexts]
    for question, response in zip(questions, found, strict=True):
        spec = dataclasses.replace(model.spec, prompt=question, chat=True)
        alone = Denoiser(make_job(model.model, spec, [prompt_ids(spec, model.model.tokenizer)]))
        assert sum(event.forwards for event in denoise(alone)) >= response.forwards
        assert model.model.tokenizer.decode(list(alone.answer(0).ids)) == response.text
    raw = prompted(model.spec, contexts[0], ())
    assert (raw.prompt, raw.messages, raw.chat) == (contexts[0], (), False)
    own = prompted(model.spec, contexts[0], [("user", questions[0])])
    assert (own.prompt, own.messages, own.chat) == ("", (("user", questions[0]),), True)


def test_the_greedy_text_is_told_from_another():
    model = DriftscopeLM("tiny-llada", greedy=True, mc_num=1, gen_length=16, steps=16)
    spec = dataclasses.replace(model.spec, block_length=16)
    context = model.tok_encode("Ann has 3 apples.")
    state = Denoiser(make_job(model.model, spec, [context]))
    for _ in denoise(state):
        pass
    target = state.ids[0, len(context) :].tolist()
    greedy, forwards, gflops = greedy_check(model.model, spec, context, target)
    assert greedy
    assert forwards == len(target)  # one token a forward
    assert gflops > 0
    other = [*target[:-1], target[-1] - 1]
    assert not greedy_check(model.model, spec, context, other)[0]
    with pytest.raises(ValueError, match="greedy: 'maybe' is neither"):
        DriftscopeLM("tiny-llada", greedy="maybe")


def test_a_continuation_longer_than_a_run_has_no_greedy_check(tmp_path):
    folder = write_checkpoint(tmp_path / "long")
    configure(folder, max_sequence_length=4096)
    model = DriftscopeLM(str(folder), greedy=True, mc_num=1)
    with pytest.raises(ValueError, match=r"^greedy: a continuation of .* leave greedy out"):
        model.loglikelihood([Instance("loglikelihood", {}, ("a", " b" * 1_100), 0)])


def test_flops_are_those_that_torch_counts():
    adapter, canvas = fill(MicroAdapter(make_info(0)).double(), 3), torch.arange(24)[None] % 8
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counted:
        continuation_logits(adapter, canvas, 20)
    found = forward_gflops(adapter.info, 24, 4)
    assert found == pytest.approx(counted.get_total_flops() / 1e9)
    assert found != forward_gflops(adapter.info, 24, 5)
    assert likelihood_gflops(adapter.info, 20, 24) == found
    parts = sum(forward_gflops(adapter.info, *sizes) for sizes in ((21, 1), (24, 3)))
    assert likelihood_gflops(block_adapter(0).info, 20, 24) == pytest.approx(parts)


def test_fewer_documents_than_processes_are_named(model):
    assert model.all_gather(torch.tensor(3)).tolist() == [3]
    with pytest.raises(ValueError, match="limit: a task has fewer documents"):
        model.all_gather(torch.tensor(0))


def test_damaged_responses_are_refused():
    row = dataclasses.asdict(Response(3, 4, 5.0, {"threads": 1}, "abc", (-1.5, True), 2.0, 0.5, 7))
    assert Response.from_dict(row) == dataclasses.replace(
        Response(3, 4, 5.0, {"threads": 1}, "abc", (-1.5, True), 2.0, 0.5, 7), resumed=True
    )
    for wrong in ({"tokens": "x"}, {"value": []}, {"machine": 3}, {"ms": None}):
        with pytest.raises(ValueError, match="field of a response"):
            Response.from_dict(row | wrong)


def test_other_weights_of_a_guider_ask_anew():
    guided = DriftscopeLM("tiny-llada", unmasker="guided", eos="fill_safe")
    request = asked("How many?", {"until": []})
    key = guided._asked(request, 0).key
    assert guided._asked(request, 0).key == key
    guided.model = dataclasses.replace(guided.model, guider_digest=lambda spec: "other weights")
    assert guided._asked(request, 0).key != key


@pytest.mark.parametrize(
    ("given", "said"),
    [({"max_gen_toks": "many"}, "max_gen_toks: 'many' is not a number"),
     ({"max_gen_toks": float("inf")}, "max_gen_toks: inf is not a number"),
     ({"max_gen_toks": 2048}, "max_gen_toks: 2048 is outside 1 to 1024; .* --gen_kwargs"),
     ({"max_gen_toks": -3}, "max_gen_toks: -3 is outside 1 to 1024"),
     ({"temperature": "hot"}, "temperature: 'hot' is not a number")],
)  # fmt: skip
def test_a_wrong_generation_argument_is_named(model, given, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        model._generation(given)


def test_a_stop_text_that_the_harness_reads_as_a_number_cuts_the_answer(model):
    assert cut("He has 3 pens and 5 cups.", [7, 5]) == "He has 3 pens and "
    given = [asked("Ann has 3 apples.", {"until": until}) for until in (5, [5], "5")]
    assert len(set(model.generate_until(given))) == 1
