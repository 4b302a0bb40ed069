"""The commands of estimates: output, errors, and the comparison with runs."""

import json
import signal
from dataclasses import replace

import pytest
import torch

from engine.advise import __main__ as advise
from engine.bench.models import BenchModels
from engine.config.spec import RunSpec
from engine.core.files import ASSETS
from engine.estimate import assumptions
from engine.evaluate import estimate, estimate_error
from engine.evaluate.estimate_error import Compared, compare, summary, table
from engine.serve import drift_meter
from tests.support.micro import make_info

SHAPE = "llada:layers=2,d=64,heads=2,ffn=64,vocab=1024"
BLOCKS = "sdar:layers=2,d=32,heads=2,kv=1,head=16,ffn=32,vocab=1024,block=4"
SMALL = ["--model", SHAPE, "--gen-length", "16", "--block-length", "8", "--prompt-tokens", "20"]


def test_the_report_has_parts_times_and_assumptions(capsys):
    estimate.main([*SMALL, "--cache", "dllm_cache", "--device", "rtx4090"])
    text = capsys.readouterr().out
    for part in ("TFLOPs a step", "predicted run", "Nearest published figure", "Assumptions:"):
        assert part in text
    assert "NVIDIA Ada architecture white paper" in text


def test_the_json_is_one_document(capsys):
    estimate.main([*SMALL, "--cache", "dual", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["model"] == SHAPE
    assert found["flops"] == sum(found["flops_by_part"].values())


def test_the_help_of_a_flag_names_the_values_of_its_command(capsys):
    for command, said in (
        (estimate, "rtx4090, rtx3090 or this (default: h100)"),
        (advise, "methods to search, separated by commas, or all"),
    ):
        with pytest.raises(SystemExit):
            command.main(["--help"])
        assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--device", "h900"], "device: "),
        (["--device", ""], "device: "),
        (["--model", ""], "model: "),
        (["--tokens-per-forward", "0"], "tokens_per_forward: "),
        (["--tokens-per-forward", "2"], "--tokens-per-forward: these settings need no"),
        (["--cache", "dual", "--share", "0.5"], "--share: these settings need no"),
    ],
)
def test_errors_are_named(flags, message):
    with pytest.raises(SystemExit, match=f"error: .*{message}"):
        estimate.main([*SMALL, *flags])


def test_an_assumption_that_the_settings_need_is_taken(capsys):
    settings = ["--unmasker", "threshold", "--cache", "dare_kv"]
    estimate.main([*SMALL, *settings, "--tokens-per-forward", "2", "--share", "0.5", "--json"])
    found = json.loads(capsys.readouterr().out)["assumptions"]
    assert found == {"tokens_per_forward": 2.0, "share": 0.5}


@pytest.mark.parametrize(
    ("flags", "why"),
    [([], "these settings need none"),
     (["--unmasker", "threshold", "--tokens-per-forward", "2"], "all that these settings need")],
)  # fmt: skip
def test_a_recorded_run_of_which_nothing_is_taken_is_refused(flags, why):
    recorded = str(ASSETS / "examples" / "b.npz")  # decoded by the unmasker threshold
    with pytest.raises(SystemExit, match=rf"^error: --recorded: no assumption is .* since {why}"):
        estimate.main([*SMALL, *flags, "--recorded", recorded])


@pytest.mark.parametrize(
    ("flag", "value"), [("--record", "layers"), ("--probe-steps", "4"), ("--record-every", "2")]
)
def test_a_recorder_is_refused_since_an_estimate_counts_none(flag, value, capsys):
    with pytest.raises(SystemExit):
        estimate.main([*SMALL, flag, value])
    assert f"{flag}: an estimate counts no recorder; leave it out" in capsys.readouterr().err


def test_the_rates_of_this_machine_are_those_of_the_threads_of_the_flag(monkeypatch):
    threads, before = [], torch.get_num_threads()

    def measured(*given, **more):
        threads.append(torch.get_num_threads())
        return {"assumptions": {}}

    monkeypatch.setattr(estimate.Session, "estimate", measured)
    try:
        for flags in (["--threads", "2"], []):
            estimate.main([*SMALL, "--device", "this", "--json", *flags])
    finally:
        torch.set_num_threads(before)
    assert threads == [2, 1]


def test_threads_are_refused_for_a_device_that_is_not_measured(capsys):
    with pytest.raises(SystemExit):
        estimate.main([*SMALL, "--device", "h200", "--threads", "2"])
    assert "--threads: only --device this is measured; leave it out" in capsys.readouterr().err


def test_an_estimate_is_compared_with_its_run():
    spec = RunSpec(model=SHAPE, cache="dual", gen_length=16, block_length=8, steps=16)
    row = compare(BenchModels(), spec, "dual")
    assert row.exact
    assert row.flops == row.run_flops
    assert row.run_seconds > 0


def test_the_summary_counts_unequal_rows():
    rows = [Compared("m", "a", True, 5, 5, 2.0, 1.0), Compared("m", "b", True, 5, 6, 1.0, 1.0)]
    assert summary(rows) == {
        "median_time_error": 0.5, "worst_time_error": 1.0, "exact": 2, "equal": 1,
    }  # fmt: skip
    assert "-16.7 %" in table(rows)


def test_the_command_compares_every_cache_that_a_model_takes(tmp_path, monkeypatch, capsys):
    written = tmp_path / "estimate.json"
    monkeypatch.setattr(estimate_error, "MEASURED", written)
    monkeypatch.setattr(drift_meter, "PROBLEMS", 1)
    for name, value in {"PROMPT": 10, "LENGTH": 8, "BLOCK": 4, "PROBLEMS": 1}.items():
        monkeypatch.setattr(estimate_error, name, value)
    monkeypatch.setattr(estimate_error, "tokens_per_forward", lambda models: {"threshold": 2.0})
    full = "llada:layers=2,d=32,heads=2,ffn=32,vocab=1024"
    monkeypatch.setattr(estimate_error, "MODELS", (full, BLOCKS))
    estimate_error.main([])
    assert "FLOPs are equal in" in capsys.readouterr().out
    rows = json.loads(written.read_text())["rows"]
    caches = {model: [row["name"] for row in rows if row["model"] == model]
              for model in (full, BLOCKS)}  # fmt: skip
    assert {"none", "dual", "spa_cache", "dual, threshold"} <= set(caches[full])
    assert caches[BLOCKS][:3] == ["none", "frozen", "sub_block"]
    assert all(row["flops"] == row["run_flops"] for row in rows if row["exact"])


def test_a_file_of_figures_that_cannot_be_written_is_told_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate_error, "MEASURED", tmp_path)
    monkeypatch.setattr(estimate_error, "BenchModels", lambda: pytest.fail("the work began"))
    with pytest.raises(SystemExit, match=r"^error: .*Is a directory"):
        estimate_error.main([])


def test_all_models_are_known_before_any_is_measured(monkeypatch):
    monkeypatch.setattr(estimate_error, "compare", lambda *given: pytest.fail("measured"))
    with pytest.raises(SystemExit, match=r"^error: model: 'zzz' is unknown"):
        estimate_error.main(["--models", BLOCKS, "zzz"])


@pytest.fixture
def one_row(monkeypatch):
    """The command without its measurements."""
    monkeypatch.setattr(estimate_error, "MODELS", (BLOCKS,))
    monkeypatch.setattr(estimate_error, "settings", lambda model, info: [("a", None)])
    row = Compared("m", "a", True, 5, 5, 2.0, 1.0)
    monkeypatch.setattr(estimate_error, "compare", lambda models, spec, name: row)
    monkeypatch.setattr(estimate_error, "tokens_per_forward", lambda models: {})


def test_a_file_that_cannot_be_written_is_named(one_row, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(estimate_error, "MEASURED", tmp_path / "file" / "estimate.json")
    with pytest.raises(SystemExit, match=r"^error: .*/file"):
        estimate_error.main([])


def test_a_missing_section_is_told_before_the_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(estimate_error, "_measure", lambda *given: pytest.fail("measured"))
    with pytest.raises(SystemExit, match=r"^error: assets/results/README.md: .*No such file"):
        estimate_error.main(["--write-readme"])


def test_an_interrupt_leaves_no_earlier_table_beside_new_figures(one_row, tmp_path, monkeypatch):
    def write(path, data):
        signal.raise_signal(signal.SIGINT)

    written = []
    monkeypatch.setattr(estimate_error, "MEASURED", tmp_path / "estimate.json")
    monkeypatch.setattr(estimate_error, "check_section", lambda *given: None)
    monkeypatch.setattr(estimate_error, "write_atomically", write)
    monkeypatch.setattr(estimate_error, "update_section", lambda *given: written.append(given))
    with pytest.raises(KeyboardInterrupt):
        estimate_error.main(["--write-readme"])
    assert len(written) == 1


def test_rows_of_other_models_leave_the_kept_ones(one_row, tmp_path, monkeypatch, capsys):
    kept = tmp_path / "estimate.json"
    kept.write_text("kept")
    monkeypatch.setattr(estimate_error, "MEASURED", kept)
    estimate_error.main(["--models", BLOCKS])
    assert "FLOPs are equal in 1 of the 1 rows" in capsys.readouterr().out
    assert kept.read_text() == "kept"
    with pytest.raises(SystemExit):
        estimate_error.main(["--models", BLOCKS, "--write-readme"])
    assert "leave out --models" in capsys.readouterr().err


def test_an_estimate_says_that_rows_follow_the_order_of_the_tokens():
    spec = RunSpec(model=BLOCKS, gen_length=8, block_length=4, steps=8)
    info = make_info(attention="block_causal")
    shifted = replace(info, logit_shift=1)
    for cache, of, assumed in (("sub_block", info, 1), ("frozen", info, 0), ("frozen", shifted, 1)):
        given = assumptions.Assumptions()
        _, words = assumptions.complete(replace(spec, cache=cache), given, of)
        assert sum("from left to right" in one for one in words) == assumed
