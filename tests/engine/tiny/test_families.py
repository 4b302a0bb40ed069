"""Every problem family: right answers, lengths, and a split by structure that can fail."""

import itertools
import random
import re
from collections import defaultdict
from dataclasses import replace

import pytest

from engine.tiny import corpus
from engine.tiny.family import EXAM, TRAINING, UNUSED, VALIDATION, count_pieces

FAMILIES = list(corpus.families())
SUITE = [name for name in FAMILIES if name != "short_problems"]
LISTS = ("sequences", "reversal")
EQUATION = re.compile(r"(\d+) ([-+x/]) (\d+) = (\d+)")
SIGNS = {"+": int.__add__, "-": int.__sub__, "x": int.__mul__, "/": int.__floordiv__}


def drawn(name, count=300, size=1.0, seed=1):
    rng = random.Random(seed)
    return [corpus.families()[name].draw(rng, size) for _ in range(count)]


@pytest.mark.parametrize("name", FAMILIES)
def test_worked_answers_are_right_and_others_are_not(name):
    for one in drawn(name):
        assert corpus.correct(one.solution, one)
        assert corpus.correct(f"{one.solution}<|eot_id|> 7 pears", one)
        assert not corpus.correct("", one)
        last = re.findall(r"\w+", one.solution)[-1]
        assert not corpus.correct(f"{one.solution[: one.solution.rindex(last)]}5{last}.", one)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in LISTS])
def test_every_equation_holds_and_the_last_is_the_answer(name):
    for one in drawn(name):
        equations = EQUATION.findall(one.solution)
        for left, sign, right, result in equations:
            assert SIGNS[sign](int(left), int(right)) == int(result) <= 199
        assert equations[-1][3] == one.answer


def test_lists_are_what_the_question_asks_for():
    for one in drawn("sequences"):
        numbers = [int(n) for n in re.findall(r"\d+", one.solution.partition(".")[0])]
        asked = {int(n) for n in re.findall(r"\d+", one.question)}
        steps = {b - a for a, b in itertools.pairwise(numbers)}
        assert len(steps) == 1
        assert asked == {numbers[0], len(numbers), abs(*steps)}
        assert max(numbers) <= 199
    for one in drawn("reversal"):
        words = one.question.partition(": ")[2].rstrip(".").split(", ")
        assert one.solution == f"Backwards: {', '.join(words[::-1])}."


def test_a_lookup_quotes_rows_of_its_table_and_adds_their_numbers():
    for one in drawn("lookup", 50):
        rows = dict(re.findall(r"- (\w+): (.*)", one.question))
        quoted = re.findall(r"(\w+): (\d+ \w+)\.", one.solution)
        asked = one.question.splitlines()[-1]
        assert len(quoted) == 5
        assert all(rows[who] == cell and who in asked for who, cell in quoted)
        assert str(sum(int(cell.split()[0]) for _, cell in quoted)) == one.answer
    first, second = corpus.families()["lookup"].conversation(random.Random(3), 2)
    assert "Table:" in first.question
    assert "Table:" not in second.question


@pytest.mark.parametrize("name", SUITE)
def test_answers_have_about_50_to_120_tokens(name):
    lengths = [count_pieces(one.solution) + 1 for one in drawn(name)]
    assert sum(lengths) / len(lengths) >= 50
    assert max(lengths) <= 120
    questions = [count_pieces(one.question) for one in drawn(name)]
    assert (max(questions) > 300) == (name == "lookup")
    assert max(questions) <= 700


@pytest.mark.parametrize("name", SUITE)
def test_smaller_sizes_give_shorter_problems(name):
    small, large = (
        sum(count_pieces(one.solution) for one in drawn(name, size=size)) for size in (0.0, 1.0)
    )
    assert small < large or name == "lookup"


def test_problems_that_differ_in_words_alone_are_in_one_part():
    by_structure = defaultdict(set)
    for one in drawn("word_problems", 4000, size=0.0):
        by_structure[one.structure].add(one)
    alike = [group for group in by_structure.values() if len({o.question for o in group}) > 1]
    assert len(alike) > 20
    assert all(len({corpus.part_of(one) for one in group}) == 1 for group in alike)


@pytest.mark.parametrize("name", SUITE)
def test_a_planted_leak_is_found(name):
    exam = corpus.draw(3, 20, EXAM, name)
    training = corpus.draw(4, 100, TRAINING, name)
    assert corpus.shared_structures(exam, training) == set()
    leak = replace(exam[7], question="other words", solution="and others")
    assert corpus.shared_structures(exam, [*training, leak]) == {exam[7].structure}
    other = replace(leak, structure=f"{leak.structure} 1")
    assert corpus.shared_structures(exam, [*training, other]) == set()


@pytest.mark.parametrize("name", SUITE)
def test_parts_are_a_tenth_a_tenth_and_the_rest(name):
    parts = [corpus.part_of(one) for one in drawn(name, 2000)]
    for part, low, high in ((EXAM, 0.04, 0.17), (VALIDATION, 0.04, 0.17), (TRAINING, 0.7, 0.9)):
        assert low < parts.count(part) / len(parts) < high


def test_no_sequence_of_the_exam_is_part_of_one_of_the_training_data():
    def terms(problems):
        return {
            tuple(numbers[i : i + 3])
            for one in problems
            for numbers in [re.findall(r"\d+", one.solution.partition(".")[0])]
            for i in range(len(numbers) - 2)
        }

    exam, training = (
        corpus.draw(1, 60, family="sequences"),
        corpus.draw(1, 400, TRAINING, "sequences"),
    )
    assert not terms(exam) & terms(training)
    assert terms(training[:200]) & terms(training[200:])


def test_short_problems_keep_their_exam_by_text_and_train_on_neither_split():
    problems = drawn("short_problems", 3000)
    parts = {part: [one for one in problems if corpus.part_of(one) == part] for part in
             (EXAM, TRAINING, VALIDATION, UNUSED)}  # fmt: skip
    assert all(parts.values())
    texts = {one.question for one in parts[EXAM]}
    assert not texts & {one.question for one in parts[TRAINING]}
    assert not corpus.shared_structures(parts[UNUSED], parts[TRAINING])


def test_an_unknown_family_is_named():
    with pytest.raises(ValueError, match=r"family: 'poems' is unknown; choose from balance, "):
        corpus.draw(1, 1, family="poems")
