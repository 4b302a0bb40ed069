"""Random weights of a published size: every cache runs on them, and what was not run is said."""

import json
import sys

import pytest
import torch

from engine import fullsize
from engine.models.estimate import parameters
from engine.registry import DREAM_7B, LLADA_8B
from engine.spec import RunSpec
from tests.micro import ROOT

SMALL = {
    "llada": LLADA_8B | {
        "d_model": 32, "n_layers": 3, "n_heads": 4, "n_kv_heads": 4, "mlp_hidden_size": 48,
        "vocab_size": 900, "embedding_size": 900, "mask_token_id": 890, "eos_token_id": 880,
        "pad_token_id": 880,
    },
    "dream": DREAM_7B | {
        "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 900,
        "mask_token_id": 890, "bos_token_id": 880, "eos_token_id": 880, "pad_token_id": 880,
    },
}  # fmt: skip
SHORT = RunSpec(gen_length=8, block_length=4, steps=8)


@pytest.fixture(autouse=True)
def own_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize("kind", SMALL)
def test_every_cache_is_timed_on_random_weights(kind):
    found = list(fullsize.rows(fullsize.MODELS[0], SMALL[kind], SHORT, tokens=12))
    assert [row["cache"] for row in found] == fullsize.caches()
    assert {"dual", "spa_cache", "dual+dare_o"} <= set(fullsize.caches())
    for row in found:
        assert row["ms"]["full"] > 0
        assert row["peak"] > 0


def test_weights_are_drawn_alike_for_one_seed_and_fill_the_whole_model():
    make = fullsize.random_adapter
    one, same, other = (
        make(SMALL["dream"], torch.float32, torch.device("cpu"), seed) for seed in (1, 1, 2)
    )
    assert sum(p.numel() for p in one.parameters()) == parameters(one.info)
    pairs = list(zip(one.parameters(), same.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert not all(torch.equal(a, c) for a, _, c in pairs)


def test_rows_that_were_not_run_say_so():
    row = {"model": fullsize.MODELS[1], "cache": "dual", "ms": {"full": 9.0}, "peak": 2_000_000_000}
    lines = fullsize.table([row], "here").splitlines()
    assert "| Dream-v0-Instruct-7B | dual | 9.0 |  |  | 2.0 GB |" in lines
    assert "| LLaDA-8B-Instruct | dual | not run | not run | not run | not run |" in lines


def test_the_readme_has_a_row_for_every_cache_of_both_models(monkeypatch, tmp_path, capsys):
    readme = (ROOT / "README.md").read_text("utf-8")
    start, end = fullsize.MARKS
    for model in fullsize.MODELS:
        for cache in fullsize.caches():
            shown = f"| {model.rpartition('/')[2]} | {cache} |"
            assert shown in readme.partition(start)[2].partition(end)[0]
    if torch.cuda.is_available():
        return
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text(f"# x\n{start}old\n{end}\n", "utf-8")
    monkeypatch.setattr(sys, "argv", ["fullsize", "--write-readme"])
    fullsize.main()
    assert "No cuda device was at hand." in (tmp_path / "README.md").read_text("utf-8")
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["rows"] == []
