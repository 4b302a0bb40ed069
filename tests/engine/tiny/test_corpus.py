"""The corpus: reproducible, and training batches share no structure with exam or validation."""

import random
import re
from types import SimpleNamespace

import pytest

from engine.tiny import corpus, tokenizer
from engine.tiny.batches import BatchStream
from engine.tiny.corpus import exam_questions, worked_prompt
from engine.tiny.family import EXAM, TRAINING, VALIDATION, count_pieces
from engine.tiny.training_inputs import Recipe

SUITE = [name for name in corpus.families() if name != "short_problems"]  # its exam is by text
MIXED = tuple((name, 1.0) for name in corpus.families())


class Noting(BatchStream):
    """A stream that keeps the problems of its batches."""

    def _messages(self, rng, problems):
        self.__dict__.setdefault("used", []).extend(problems)
        return super()._messages(rng, problems)


class Leaking(Noting):
    """A stream that takes problems of every part."""

    def _conversation(self, rng):
        family = self.families[rng.choice(MIXED)[0]]
        return [family.draw(rng)]


def trained_problems(kind):
    recipe = Recipe(kind="causal", families=MIXED, few_shot=0.3)
    stream = kind(tokenizer.build("qwen2"), recipe, "qwen2", 3)
    next(stream.batches())
    return stream.used


@pytest.mark.parametrize("part", [EXAM, VALIDATION])
def test_training_batches_share_no_structure_with_another_part(part):
    others = [one for name in SUITE for one in corpus.draw(1, 60, part, name)]
    assert not corpus.shared_structures(others, trained_problems(Noting))
    assert corpus.shared_structures(others, trained_problems(Leaking))


def test_the_problems_of_a_stream_are_in_its_batches():
    built = tokenizer.build("qwen2")
    stream = Noting(built, Recipe(kind="causal", families=(("balance", 1.0),)), "qwen2", 3)
    batch = next(stream.batches())
    texts = " ".join(built.decode_batch(batch.ids.tolist()))
    assert sum(one.solution in texts for one in stream.used) >= len(batch.ids)


def test_the_validation_batches_are_of_their_own_part():
    recipe = Recipe(kind="causal", families=MIXED)
    stream = Noting(tokenizer.build("qwen2"), recipe, "qwen2", 3, VALIDATION)
    next(stream.batches())
    assert {corpus.part_of(one) for one in stream.used} == {VALIDATION}


def test_a_seed_reproduces_its_problems():
    assert corpus.draw(5, 20) == corpus.draw(5, 20)
    assert corpus.draw(5, 20) != corpus.draw(6, 20)


def test_more_problems_than_a_family_has_are_refused(monkeypatch):
    monkeypatch.setattr(corpus, "MOST_IN_VAIN", 500)
    source = SimpleNamespace(
        draw=lambda rng: SimpleNamespace(question=f"{rng.randrange(20)}?"), part=lambda one: EXAM
    )
    monkeypatch.setattr(corpus, "family_named", lambda name: source)
    assert len(corpus.draw(1, 20)) == 20
    with pytest.raises(ValueError, match=r"^problems: word_problems has about 20 different ones"):
        corpus.draw(1, 21)


@pytest.mark.parametrize("name", [name for name in corpus.families() if name != "lookup"])
def test_worked_examples_are_of_the_training_part_and_precede_the_question(name):
    one = corpus.draw(3, 1, family=name)[0]
    prompt = worked_prompt(random.Random(0), one, 4)
    shots = re.findall(r"Question: (.*)\nAnswer: ", prompt)
    assert len(shots) == 4
    training = {p.question for p in corpus.draw(9, 400, TRAINING, name)}
    exam = {p.question for p in corpus.draw(9, 400, EXAM, name)}
    assert not exam & set(shots)
    assert training
    assert prompt.endswith(one.question)
    assert worked_prompt(random.Random(0), one, 0) == one.question


def test_a_prompt_with_worked_examples_is_bounded():
    one = corpus.draw(3, 1, family="balance")[0]
    prompt = worked_prompt(random.Random(0), one, 50)
    assert count_pieces(prompt) <= corpus.LONGEST_PROMPT
    assert prompt.count("Answer: ") >= 5
    table = corpus.draw(3, 1, family="lookup")[0]
    assert worked_prompt(random.Random(0), table, 8) == table.question


@pytest.mark.parametrize(
    ("shots", "said"),
    [((), "no worked examples"), ((0, 0), "no worked examples"), ((1,), "1 worked example"),
     ((3, 3), "3 worked examples"), ((0, 2), "0 to 2 worked examples")],
)  # fmt: skip
def test_worked_examples_are_counted_in_the_prompts(shots, said):
    one = corpus.draw(3, 1, family="balance")[0]
    prompts = [(one, worked_prompt(random.Random(0), one, count)) for count in shots]
    assert corpus.example_counts(prompts) == said


def test_exam_questions_are_of_the_exam():
    for name in corpus.families():
        assert all(corpus.part_of(one) == EXAM for one, _ in exam_questions(20, 7, 2, name))


def test_an_unknown_form_is_rejected():
    with pytest.raises(ValueError, match="form"):
        corpus.arrange([], corpus.draw(1, 1)[0], "poem")


def test_no_chained_problem_of_the_training_has_the_text_of_a_short_one_of_the_exam():
    short = corpus.families()["short_problems"]
    recipe = Recipe(kind="causal", families=(("word_problems", 1.0),), sizes=(0.0, 0.2))
    stream = Noting(tokenizer.build("qwen2"), recipe, "qwen2", 3)
    next(stream.batches())
    assert len(stream.used) > 1000
    assert all(short.part(one) != EXAM for one in stream.used)
    drawn = corpus.draw(1, 400, TRAINING, "word_problems")
    assert 20 < sum(short.part(one) == EXAM for one in drawn) < 60  # one text in ten
