"""The corpus: correct, reproducible, and split into training and exam by text."""

import hashlib
import random
import re
from itertools import islice

import pytest

from engine.tiny import corpus, tokenizer
from engine.tiny.batches import BatchStream
from engine.tiny.corpus import exam_questions, worked_prompt
from engine.tiny.states import Recipe

EQUATION = re.compile(r"(\d+) ([-+x/]) (\d+) = (\d+)")
USER_TURN = re.compile(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", re.S)
QUESTION = re.compile(r"^Question: (.*)$", re.M)
SIGNS = {"+": int.__add__, "-": int.__sub__, "x": int.__mul__, "/": int.__floordiv__}


def test_every_equation_of_a_solution_holds_and_the_last_is_the_answer():
    for one in corpus.draw(1, 300, exam=False):
        equations = EQUATION.findall(one.solution)
        assert len(equations) == one.operations
        for left, sign, right, result in equations:
            assert SIGNS[sign](int(left), int(right)) == int(result)
        assert int(equations[-1][3]) == one.answer
        assert corpus.correct(one.solution, one)


def test_only_the_right_final_number_is_correct():
    one = corpus.draw(1, 1)[0]
    assert not corpus.correct(one.solution.replace(str(one.answer), str(one.answer + 1)), one)
    assert not corpus.correct("no number at all", one)
    assert corpus.correct(f"The answer is {one.answer}.<|endoftext|> 99", one)


class LeakingStream(BatchStream):
    """Training batches whose problems may be held out."""

    def _problem(self, rng):
        return corpus.problem(rng, self.recipe.operations, self.recipe.wordings, self.ranges)


def trained_questions(kind):
    """The questions in the token ids of training batches, those of worked examples included."""
    built, found = tokenizer.build("qwen2"), set()
    recipe = Recipe(kind="causal", operations=(1, 1), wordings=1, few_shot=0.2)
    for batch in islice(kind(built, recipe, "qwen2", 3).batches(), 50):
        for text in built.decode_batch(batch.ids.tolist(), skip_special_tokens=False):
            for turn in USER_TURN.findall(text):
                found.update(QUESTION.findall(turn) or [turn])
    return found


def test_exam_and_training_never_share_a_problem():
    """Problems of one calculation are so few that draws without the split share some."""
    exam = {one.question for seed in range(5) for one in corpus.draw(seed, 600, True, (1, 1), 1)}
    training, leaking = trained_questions(BatchStream), trained_questions(LeakingStream)
    assert len(training) > 3000
    assert not exam & training
    assert len(exam & leaking) > 5


def test_the_exam_is_drawn_from_a_tenth_of_all_problems():
    rng = random.Random(4)
    drawn = {corpus.problem(rng).question for _ in range(3000)}
    assert 0.08 < len({one for one in drawn if corpus.held_out(one)}) / len(drawn) < 0.13
    exam = [one.question for one, _ in exam_questions(300, 7)]
    assert len(set(exam)) == 300
    first_bytes = (hashlib.sha256(one.encode()).digest()[0] for one in exam)
    assert all(byte % 10 == 0 for byte in first_bytes)


def test_a_seed_reproduces_its_problems():
    assert corpus.draw(5, 20) == corpus.draw(5, 20)
    assert corpus.draw(5, 20) != corpus.draw(6, 20)


def test_worked_examples_precede_the_question_and_are_not_held_out():
    one = corpus.draw(3, 1)[0]
    prompt = worked_prompt(random.Random(0), one, 4)
    shots = re.findall(r"Question: (.*)\nAnswer: ", prompt)
    assert len(shots) == 4
    assert not any(map(corpus.held_out, shots))
    assert prompt.endswith(one.question)
    assert worked_prompt(random.Random(0), one, 0) == one.question


def test_exam_questions_are_held_out():
    assert all(corpus.held_out(problem.question) for problem, _ in exam_questions(20, 7, 2))


def test_an_unknown_form_is_rejected():
    with pytest.raises(ValueError, match="form"):
        corpus.few_shot(random.Random(0), corpus.draw(1, 1)[0], len, 10, form="poem")
