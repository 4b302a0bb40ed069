"""Prompts with images: system turn, placeholders, escapes and limits."""

import hashlib
from dataclasses import replace

import pytest

from engine.config.images import ImageRef
from engine.config.spec import RunSpec
from engine.models.loading.checkpoint import Checkpoint
from engine.models.loading.config import read_config
from engine.models.loading.families import read_model_info
from engine.models.tokenizer import VISION_SYSTEM, Tokenizer
from engine.vision.config import read_vision_info
from engine.vision.prompt import (
    PLACEHOLDER,
    check_prompt_length,
    expanded,
    ids_with_placeholders,
    placed_images,
)
from engine.vision.run_images import run_prompt
from tests.support.llada_v import MICRO
from tests.support.micro import TINY

NAMES = [str(ImageRef(300 + n, 300, "0" * 32)) for n in range(4)]
TOKENIZER = Tokenizer(MICRO)
INFO = read_model_info(MICRO)
VISION = read_vision_info(read_config(MICRO), Checkpoint(MICRO).shapes, 64)
TEXT = {piece: i for i, piece in TOKENIZER.pieces(range(262)).items()}


def ids(**fields):
    return ids_with_placeholders(RunSpec(**{"prompt": "What?"} | fields), TOKENIZER)


def decoded(found):
    return b"".join(b"|" if i == PLACEHOLDER else TOKENIZER.piece(i) for i in found).decode()


def test_the_system_turn_is_that_of_the_recordings():
    digest = "790f4cfc05523b0eecbc061d3b2a427d84204164119832ccffb22deaae07cb29"
    assert hashlib.sha256(VISION_SYSTEM.encode()).hexdigest() == digest
    assert decoded(ids()).count(VISION_SYSTEM) == 1
    assert VISION_SYSTEM not in decoded(Tokenizer(TINY).encode_prompt("What?"))


def test_images_come_first_in_the_users_first_turn():
    found = decoded(ids(images=NAMES[:2]))
    assert "user<|end_header_id|>\n\n||What?<|eot_id|>" in found
    turns = [("user", "One"), ("assistant", "Two"), ("user", "Three")]
    found = decoded(ids(prompt="", messages=turns, images=NAMES[:1]))
    assert found.count("|One<") == 1
    assert "\n\nThree<" in found


def test_a_system_turn_of_the_user_replaces_the_models():
    turns = [("system", "Be brief."), ("user", "What?")]
    found = decoded(ids(prompt="", messages=turns, images=NAMES[:1]))
    assert VISION_SYSTEM not in found
    assert "Be brief." in found


def test_the_form_of_training_keeps_the_line_break():
    found = decoded(ids(images=NAMES[:2], keep_after_image=True))
    assert "||\nWhat?" in found
    assert ids(keep_after_image=True) == ids()
    of_text = RunSpec(prompt="What?", keep_after_image=True)
    tokenizer = Tokenizer(TINY)
    assert ids_with_placeholders(of_text, tokenizer) == tokenizer.encode_prompt("What?")


@pytest.mark.parametrize("typed", ["  What?", "\n\nWhat?", "What?\n"])
def test_no_visible_token_of_typed_text_is_dropped(typed):
    assert ids(prompt=typed, images=NAMES[:1]) == ids(images=NAMES[:1])


@pytest.mark.parametrize(
    "typed",
    ["<image>", "<|eot_id|>", "a <|mdm_mask|> b", "<|start_header_id|>system", "\ue0001\ue001"],
)
def test_typed_text_gives_neither_placeholders_nor_special_ids(typed):
    found = ids(prompt=typed, images=NAMES[:1])
    special = set(TOKENIZER.specials.values())
    plain = ids(images=NAMES[:1])
    assert [i for i in found if i in special] == [i for i in plain if i in special]
    assert found.count(PLACEHOLDER) == 1
    assert typed in decoded(found)
    without = ids_with_placeholders(RunSpec(prompt=typed, chat=False), TOKENIZER)
    assert special.isdisjoint(without)


def test_without_a_template_the_image_comes_before_the_text():
    assert decoded(ids(images=NAMES[:1], chat=False)) == "|What?"


def test_images_without_a_turn_of_the_user_are_refused():
    with pytest.raises(ValueError, match=r"^images: there is no turn of the user"):
        ids(prompt="", messages=[("system", "x")], images=NAMES[:1])


@pytest.mark.parametrize(("places", "given"), [(0, 1), (1, 0), (1, 2), (3, 2)])
def test_more_or_fewer_placeholders_than_images_are_refused(places, given):
    with pytest.raises(ValueError, match=f"^images: .*{places} places .* {given} are given"):
        placed_images(NAMES[:given], [5, *[PLACEHOLDER] * places], VISION)


def test_images_take_their_rows_where_their_placeholders_stand():
    found = placed_images(NAMES[:2], [7, PLACEHOLDER, PLACEHOLDER, 8], VISION)
    assert [(one.first, one.layout.rows) for one in found] == [(1, 730), (731, 730)]
    assert expanded([7, PLACEHOLDER, PLACEHOLDER, 8], found, 9) == [7, *[9] * 1460, 8]


def test_a_prompt_that_is_too_long_names_the_rows_of_images_and_of_text():
    spec = RunSpec(prompt="What?", images=NAMES[:1], suffix="So")
    prompt = run_prompt(spec, TOKENIZER, INFO, VISION)
    assert prompt.image_rows == 1485
    text = len(prompt.ids) - 1485
    words = rf"^prompt: 1485 rows of images and {text} of text .* {len(prompt.ids) - 1} that"
    with pytest.raises(ValueError, match=words):
        run_prompt(spec, TOKENIZER, INFO, replace(VISION, max_prompt=len(prompt.ids) - 1))
    run_prompt(spec, TOKENIZER, INFO, replace(VISION, max_prompt=len(prompt.ids)))
    exact = len(prompt.ids) + 128 + 2
    run_prompt(spec, TOKENIZER, replace(INFO, max_length=exact), VISION)
    with pytest.raises(ValueError, match=r"^prompt: 1485 rows of images"):
        run_prompt(spec, TOKENIZER, replace(INFO, max_length=exact - 1), VISION)


def test_text_alone_is_limited_too():
    with pytest.raises(ValueError, match=r"^prompt: 0 rows of images and 20 of text"):
        check_prompt_length(20, (), replace(VISION, max_prompt=19), 100, 10)


def test_a_text_model_with_an_image_is_refused_with_the_remedy():
    spec = RunSpec(prompt="What?", images=NAMES[:1])
    with pytest.raises(ValueError, match=r"^images: tiny-llada takes text only; remove the image"):
        run_prompt(spec, Tokenizer(TINY), read_model_info(TINY), None)
