"""The corpus: correct, reproducible, and split into training and exam by text."""

import random
import re

import pytest

from engine.tiny import corpus
from engine.tiny.corpus import exam_questions, worked_prompt

EQUATION = re.compile(r"(\d+) ([-+x/]) (\d+) = (\d+)")
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


def test_exam_and_training_never_share_a_problem():
    exam = {p.question for p in corpus.draw(7, 300)}
    training = {p.question for p in corpus.draw(8, 3000, exam=False)}
    assert not exam & training
    assert all(map(corpus.held_out, exam))
    assert not any(map(corpus.held_out, training))


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
