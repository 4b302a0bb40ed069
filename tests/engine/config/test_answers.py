"""Right answers and fitting lengths."""

import pytest

from engine.config.answers import final_number, fitting_length, is_right


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("So 3 + 4 = 7. The answer is 7.", "7", True),
        ("The answer is 7.<|endoftext|> 9", "7", True),
        ("The answer is 07.", "7", True),
        ("The answer is 17.", "7", False),
        ("none", "7", False),
        ("The answer is 7.", " 7 ", True),
        ("The answer is 1,234.", "1234", True),
        ("The answer is 1234.", "1,234", True),
        ("The numbers are 1, 234.", "1234", False),
        ("The answer is -5.", "-5", True),
        ("The answer is 5.", "-5", False),
        ("It is 8-5", "5", True),
        ("It is 8 - 5", "5", True),
        ("1" * 19, "1" * 19, True),
        ("It costs $18.00.", "18", True),
        ("It costs 1,234.50 dollars.", "1234", False),
        ("The average is 3.5", "5", False),
        ("Add 1 and 2.5. The average is 1.750.", "1.75", True),
        ("The average is 1,234.5", "1234.50", True),
        ("The average is 1.8.", "1.75", False),
        ("The average is 2.", "2.5", False),
        ("It falls by -0.5", "0.5", False),
        ("It costs $.50.", "50", False),
        ("It costs $.50.", "0.5", True),
        ("It falls by -.5", "-.50", True),
        ("So the sum is ...5", "5", True),
        ("See page.5", "5", True),
        ("The average is 3.5.", "3", False),
        ("The answer is \u22125.", "-5", True),
        ("The answer is 7", "7.", True),
        ("The numbers are 2, 4, 6.", "The numbers are 2, 4, 6.", True),
        ("The numbers are 2 4  6", "The numbers are 2, 4, 6.", True),
        ("The numbers are 2, 4.", "The numbers are 2, 4, 6.", False),
        ("The numbers are 2, 4, 6, 8.", "The numbers are 2, 4, 6.", False),
    ],
)
def test_a_number_must_be_last_and_a_list_complete(text, answer, right):
    assert is_right(text, answer) is right


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", None),
        ("a 12 b 3.", 3),
        ("a 3.0 b", 3),
        ("a 3.25", None),
        ("1" * 40, int("1" * 18)),
        ("x", None),
    ],
)
def test_the_final_number(text, number):
    assert final_number(text) == number


@pytest.mark.parametrize(
    ("tokens", "block", "length"), [(1, 16, 16), (16, 16, 16), (17, 16, 32), (57, 1, 57)]
)
def test_a_length_fits_in_whole_blocks(tokens, block, length):
    assert fitting_length(tokens, block) == length
