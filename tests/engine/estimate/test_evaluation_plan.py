"""The predicted time of an evaluation on several GPUs."""

import pytest

from engine.estimate.estimate import Target, estimate, known_model
from engine.estimate.evaluation_plan import (
    BENCHMARKS,
    LENGTHS,
    METHODS,
    MODEL,
    PAGE,
    PLAIN,
    Benchmark,
    Planned,
    main,
    specs,
    table,
)

MOE = "inclusionAI/LLaDA-MoE-7B-A1B-Instruct"


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda one: one.slug)
def test_all_methods_of_a_task_have_the_same_lengths(benchmark):
    found = specs(benchmark)
    assert list(found) == [PLAIN, *METHODS]
    assert len({tuple(getattr(spec, name) for name in LENGTHS) for spec in found.values()}) == 1
    assert len({(spec.cache, spec.unmasker) for spec in found.values()}) == len(found)


def test_gpus_decode_whole_problems_and_the_last_row_is_the_sum():
    """Two of the eight GPUs decode two of the ten problems, the others one."""
    benchmark = Benchmark("Ten", "ten", 10, 3)
    planned = [
        Planned(benchmark, method, seconds, 5.0, 0.5, ("One prompt of 3.", "Assumed."))
        for method, seconds in (("x", 720.0), ("y", 1_440.0))
    ]
    text = table(planned, (1, 8))
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    assert [row[-3:-1] for row in rows[2:5]] == [
        ["2.0 h", "24 min"], ["4.0 h", "48 min"], ["6.0 h", "72 min"],
    ]  # fmt: skip
    assert "Assumed." in text
    assert "One prompt of" not in text


def test_the_page_has_the_predicted_time_of_plain_decoding():
    benchmark = BENCHMARKS[0]
    spec = specs(benchmark)[PLAIN]
    found = estimate(spec, Target(MODEL, known_model(MODEL), benchmark.prompt_tokens), "h100")
    hours = found["time"]["run_seconds"] * benchmark.problems / 3600
    (row,) = [
        x for x in PAGE.read_text("utf-8").splitlines() if x.startswith("| GSM8K     | plain")
    ]
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[3] == f"{found['flops'] / 1e12:.0f}"
    assert cells[5] == f"{hours:.1f} h"


def test_another_model_has_its_own_work_with_the_same_settings():
    spec = specs(BENCHMARKS[3])[PLAIN]
    tokens = BENCHMARKS[3].prompt_tokens
    moe, dense = (
        estimate(spec, Target(name, known_model(name), tokens), "h100") for name in (MOE, MODEL)
    )
    assert 0 < moe["flops"] < dense["flops"] / 3
    with pytest.raises(SystemExit, match="error: "):
        main(["--model", "unknown"])


@pytest.mark.parametrize("words", [("--model", MOE), ("--device", "h200"), ("--gpus", "8")])
def test_the_page_is_renewed_with_the_defaults_alone(words, capsys):
    with pytest.raises(SystemExit):
        main(["--write-page", *words])
    assert f"{words[0]}: leave it out with --write-page" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("engine.estimate.evaluation_plan.PAGE", tmp_path / "page.md")
    monkeypatch.setattr("engine.estimate.evaluation_plan.plan", lambda *_: iter(()))
    with pytest.raises(SystemExit, match=r"^error: .*page\.md"):
        main(["--write-page"])
