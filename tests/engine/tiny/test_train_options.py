"""Options of `python -m engine train` that make no training, or of which one has no effect."""

import pytest

from engine.tiny.train import main


def train(*words):
    main(words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--families", "poems:2"), "--families: family: 'poems' is unknown; choose from balance"),
        (("--families", "lookup:0"), "--families: 'lookup:0': the weight must be above 0"),
        (("--steps", "0"), "--steps: '0' is not a whole number from 1"),
        (("--save-every", "0"), "--save-every: '0' is not a whole number from 1"),
        (("--check-every", "0"), "--check-every: '0' is not a whole number from 1"),
        (("--tokens", "0"), "--tokens: '0' is not a whole number from 1"),
        (("--few-shot", "nan"), "--few-shot: 'nan' is not a number from 0 to 1"),
        (("--copies", "2"), "--copies: '2' is not a number from 0 to 1"),
        (("--decay", "half"), "--decay: 'half' is not a number from 0 to 1"),
        (("--number-weight", "-1"), "--number-weight: '-1' is not a number above 0"),
        (("--lr", "inf"), "--lr: 'inf' is not a number above 0"),
    ],
)
def test_options_that_make_no_training_are_named(words, said, tmp_path, capsys):
    with pytest.raises(SystemExit):
        train("run", "--out", str(tmp_path), *words)
    assert said in capsys.readouterr().err


def test_the_sizes_are_given_from_small_to_large(tmp_path):
    with pytest.raises(SystemExit, match=r"^error: --sizes: 1 is above 0"):
        train("run", "--out", str(tmp_path), "--sizes", "1", "0")


@pytest.mark.parametrize(
    "words",
    ["--block 16", "--copies 0.8", "--shift 1", "--sums 0.1", "--extra 8", "--uniform 0.5"],
)
def test_options_of_masked_networks_say_nothing_of_a_causal_one(words, tmp_path):
    """No layout takes blocks: neither Qwen2's, which has none, nor Fast-dLLM v2's."""
    flag, value = words.split()
    with pytest.raises(SystemExit, match=rf"^error: {flag}: only masked networks take it; leave"):
        train("run", "--out", str(tmp_path), "--kind", "causal", flag, value)


def test_a_network_with_blocks_needs_a_shift(tmp_path):
    """Fast-dLLM v2's layout, the only one with blocks, predicts a position by the row before it."""
    with pytest.raises(SystemExit, match=r"^error: --block: .* add --shift 1"):
        train("run", "--out", str(tmp_path), "--block", "16")


@pytest.mark.parametrize("words", ["--copies 0.8", "--sums 0.1", "--extra 8", "--uniform 0.5"])
def test_options_of_canvas_states_say_nothing_of_a_network_with_blocks(words, tmp_path):
    """All of its states are copies."""
    flag, value = words.split()
    said = rf"^error: {flag}: only networks without blocks take it; leave out {flag} or --block$"
    with pytest.raises(SystemExit, match=said):
        train("run", "--out", str(tmp_path), "--block", "16", "--shift", "1", flag, value)
    assert list(tmp_path.iterdir()) == []


def test_turns_of_worked_examples_need_worked_examples(tmp_path):
    with pytest.raises(SystemExit, match=r"^error: --turns: no sample has worked examples; give"):
        train("run", "--out", str(tmp_path), "--turns", "4")


@pytest.mark.parametrize("words", [("--few-shot", "1"), ("--families", "lookup")])
def test_worked_examples_need_two_turns(words, tmp_path):
    with pytest.raises(SystemExit, match=r"^error: --turns: 1 leaves no problem"):
        train("run", "--out", str(tmp_path), "--turns", "1", *words)


@pytest.mark.parametrize(
    "words",
    [("run", "--out", "out", "--init", "none"), ("card", "--folder", "none"),
     ("export", "--run", "none", "--folder", "out", "--family", "llada")],
)  # fmt: skip
def test_a_folder_that_is_not_there_is_named(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"^error: .*none/.*No such file or directory"):
        train(*words)
