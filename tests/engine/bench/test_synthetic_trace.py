"""The costs of a recording: what is allocated is seen, and the command prints them."""

import numpy as np
import pytest

from engine import __main__ as command_line
from engine.bench.synthetic_trace import Cost, measure, measured, table
from engine.trace.synthetic import synthetic_events, synthetic_spec


def test_the_peak_is_what_was_allocated_at_a_time():
    (found, one), (_, two) = (
        measured("x", lambda n=n: [np.ones(1_000_000, np.uint8) for _ in range(n)].pop())
        for n in (1, 2)
    )
    assert len(found) == 1_000_000
    assert 1_000_000 <= one.peak < 1_100_000
    assert 2_000_000 <= two.peak < 2_200_000


def test_recording_saving_and_loading_are_measured(tmp_path):
    events = synthetic_events(synthetic_spec(64), 8, 2_800)
    held, costs = measure(events, tmp_path / "run.npz")
    assert [cost.action for cost in costs] == ["record", "save", "load"]
    recording, saving, loading = (cost.peak / held for cost in costs)
    assert recording < 1.6  # with the state of the generator, large beside 64 steps
    assert saving < 0.3
    assert 1 <= loading < 1.3


def test_the_table_gives_seconds_megabytes_and_shares():
    text = table(2_000_000, [Cost("save", 1.25, 3_000_000)])
    assert text.splitlines()[2].replace(" ", "") == "|save|1.2|3MB|1.50x|"


def test_the_command_prints_the_costs(tmp_path, capsys):
    sizes = ["--layers", "2", "--steps", "8", "--positions", "20"]
    out = ["--out", str(tmp_path / "run.npz")]
    command_line.main(["synthetic", *sizes, *out, "--measure"])
    assert "| record " in capsys.readouterr().out
    command_line.main(["synthetic", *sizes, *out])
    assert "| record " not in capsys.readouterr().out


@pytest.fixture
def no_work(monkeypatch):
    """Fails the test if the command makes a run."""
    began = "engine.bench.synthetic_trace.record"
    monkeypatch.setattr(began, lambda events: pytest.fail("the work began"))


@pytest.mark.parametrize("place", ["", "file/run.npz"])
def test_a_file_that_cannot_be_written_is_refused_before_the_work(place, no_work, tmp_path):
    (tmp_path / "file").write_text("x")
    out = ["--steps", "8", "--positions", "20", "--out", str(tmp_path / place)]
    for more in ([], ["--measure"]):
        with pytest.raises(SystemExit, match=r"error: out: .* cannot be used .*; name another"):
            command_line.main(["synthetic", *out, *more])


@pytest.mark.parametrize(
    ("layers", "name", "held"), [(512, "run.npz", "8053 MB, and a file holds 1600 MB"),
                                 (1, "run.json", "15 MB, and a file holds 2 MB")],
)  # fmt: skip
def test_a_size_that_no_file_holds_is_refused_before_the_work(
    layers, name, held, no_work, tmp_path
):
    sizes = ["--layers", str(layers), "--steps", "1024", "--positions", "3072"]
    with pytest.raises(SystemExit, match=rf"error: layers: .* {held}; "):
        command_line.main(["synthetic", *sizes, "--out", str(tmp_path / name)])
