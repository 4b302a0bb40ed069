"""Chat templates like the published ones: headers, turns and answers in a history."""

import json

import pytest

from engine.config.spec import RunSpec
from engine.models.tokenizer import HEADERS, Tokenizer
from engine.serve.session import Session
from tests.support.micro import write_checkpoint

# As LLaDA's: the assistant's header is added with any value of add_generation_prompt.
LLADA = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    " + message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}"
    "{% endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
)
STRICT = "{{ raise_exception('only user and assistant') if messages[0].role == 'system' else 'x' }}"
TURNS = (
    ("user", " One? "), ("assistant", "1<|endoftext|><|endoftext|>"), ("user", "Two?"),
    ("assistant", "2 <|endoftext|>"), ("user", "Three?"),
)  # fmt: skip


def edit(path, change):
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def templated(folder, template):
    """A checkpoint with another template, in `chat_template.jinja` as in newer folders."""
    edit(folder / "tokenizer_config.json", lambda data: data.pop("chat_template"))
    (folder / "chat_template.jinja").write_text(template)
    return folder


def as_base(folder):
    """Replace the header and end-of-turn tokens, which a Base vocabulary lacks."""
    names = [f"<|spare_{i}|>" for i in range(len(HEADERS))]

    def rename(data):
        text = json.dumps(data)
        for old, new in zip(HEADERS, names, strict=True):
            text = text.replace(f'"{old}"', f'"{new}"')
        data.clear()
        data.update(json.loads(text))

    for name in ("tokenizer.json", "tokenizer_config.json"):
        edit(folder / name, rename)
    return folder


def rendered(folder, *prompt):
    tokenizer = Tokenizer(folder)
    return b"".join(map(tokenizer.piece, tokenizer.encode_prompt(*prompt))).decode()


def test_one_question(folder):
    text = rendered(templated(folder, LLADA), " Hello ")
    user, assistant = (
        f"<|start_header_id|>{r}<|end_header_id|>\n\n" for r in ("user", "assistant")
    )
    assert text == f"<|startoftext|>{user}Hello<|eot_id|>{assistant}"


def test_the_start_token_comes_once_and_answers_lose_their_end(folder):
    templated(folder, LLADA)
    text = rendered(folder, "", TURNS)
    assert text.count("<|startoftext|>") == 1
    assert text.startswith("<|startoftext|>")
    assert "<|endoftext|>" not in text
    assert text.count("<|eot_id|>") == len(TURNS)
    assert text.count("<|start_header_id|>assistant<|end_header_id|>") == 3
    tokenizer = Tokenizer(folder)
    assert tokenizer.encode("<|endoftext|>")[0] not in tokenizer.encode_prompt("", TURNS)


def test_an_end_token_in_a_question_is_kept(folder):
    assert "<|endoftext|>" in rendered(templated(folder, LLADA), "What is <|endoftext|>?")


def test_turns_that_a_template_refuses_are_an_error(folder):
    templated(folder, STRICT)
    assert rendered(folder, "Hello") == "x"
    with pytest.raises(ValueError, match=r"chat: the model's template .*only user and assistant"):
        rendered(folder, "", (("system", "Be brief."), ("user", "Hello")))


def test_a_base_vocabulary_gets_the_tokens_of_its_template(tmp_path):
    folder = templated(as_base(write_checkpoint(tmp_path / "base")), LLADA)
    tokenizer = Tokenizer(folder)
    assert [tokenizer.encode(name) for name in HEADERS] == [[816], [817], [818]]
    assert tokenizer.stop_ids == (1, 818)
    ids = tokenizer.encode_prompt("Hello")
    assert [i for i in ids if i >= 816] == [816, 817, 818, 816, 817]
    assert tokenizer.decode(ids) == "user\n\nHelloassistant\n\n"


def test_a_base_vocabulary_without_a_template_is_unchanged(tmp_path):
    folder = as_base(write_checkpoint(tmp_path / "base"))
    edit(folder / "tokenizer_config.json", lambda data: data.pop("chat_template"))
    assert len(Tokenizer(folder).encode(HEADERS[0])) > 1


def test_prompt_ids_beyond_the_vocabulary_are_an_error(tmp_path):
    small = write_checkpoint(tmp_path / "base", vocab_size=817, embedding_size=817)
    folder = templated(as_base(small), LLADA)
    session = Session({"base": folder})
    spec = {"model": "base", "prompt": "Hello", "gen_length": 8, "block_length": 8, "steps": 8}
    with pytest.raises(ValueError, match="chat: the prompt's token 818 is beyond the model's 817"):
        session.plan(RunSpec(**spec))
    assert list(session.run(RunSpec(**spec, chat=False)))[-1].reason == "done"


@pytest.mark.parametrize(
    "template",
    ["{{ 1 / 0 }}", "{{ messages + 1 }}", "{{ messages[0].content.join(7) }}",
     "{% for i in range(10 ** 9) %}x{% endfor %}"],
)  # fmt: skip
def test_a_template_that_fails_is_named(tmp_path, template):
    folder = templated(write_checkpoint(tmp_path / "wrong"), template)
    with pytest.raises(ValueError, match="chat: the model's template fails on these turns"):
        Tokenizer(folder).encode_prompt("One?")
    assert Tokenizer(folder).encode_prompt("One?", chat=False)
