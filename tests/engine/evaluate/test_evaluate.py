"""The evaluate command, the comparison of settings, and the files they read."""

import json
import os
import signal
import sys
from dataclasses import replace

import pytest
import torch

from engine.__main__ import main as engine_main
from engine.batch.settings import NamedSpec, check_rules, read_specs
from engine.config.answers import fitting_length
from engine.config.spec import RunSpec
from engine.core.files import ASSETS
from engine.evaluate import comparison
from engine.evaluate.__main__ import main
from engine.evaluate.comparison import _evaluate_one, prepare_worker, time_prompts
from engine.evaluate.exam import evaluate, fitted, summarise
from engine.models.loading.checkpoint import Checkpoint
from engine.models.loading.families import embedded_models
from engine.models.tokenizer import Tokenizer
from engine.serve.model_pool import ModelPool
from engine.tiny.corpus import exam_questions
from engine.tiny.suite import DEFAULT_FAMILY
from tests.support.launched import interrupted
from tests.support.micro import ROOT


@pytest.fixture(scope="module")
def model():
    return ModelPool(embedded_models(ROOT / "assets")).load(RunSpec())


def test_the_output_ends_with_one_json_line(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    main([
        "--model", "assets/models/tiny-llada", "--problems", "3", "--seed", "7",
        "--cache", "dual", "--unmasker", "threshold", "--threshold", "0.8", "--block", "16",
        "--json",
    ])  # fmt: skip
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    (row,) = document["rows"]
    assert {"accuracy", "nfe", "tokens_per_s", "spec"} <= set(row)
    assert row["spec"]["cache"] == "dual"
    assert row["spec"]["block_length"] == 16
    assert row["spec"]["knobs"] == {"threshold.threshold": 0.8}
    assert 4 <= row["nfe"] < 64
    assert document["environment"]["checkpoint"]


def test_a_flag_that_divides_rows_needs_rows():
    with pytest.raises(SystemExit, match=r"^error: --workers: only the rows of --specs"):
        main(["--problems", "1", "--workers", "2"])


@pytest.mark.parametrize(("flag", "value"), [("--timed", "2"), ("--timed-shots", "1")])
def test_a_flag_of_timed_rows_needs_rows(flag, value, capsys):
    with pytest.raises(SystemExit):
        main(["--problems", "1", flag, value])
    assert f"{flag}: only the rows of --specs are timed; leave it out" in capsys.readouterr().err


def test_what_to_record_is_not_asked_of_an_exam(capsys):
    with pytest.raises(SystemExit):
        main(["--problems", "1", "--record-layers", "1-4"])
    assert "--record-layers: an exam is not recorded; leave it out" in capsys.readouterr().err


def test_an_exam_is_not_recorded(tmp_path):
    """A recorder would slow the timed prompts of its row alone."""
    path = tmp_path / "specs.json"
    path.write_text('[{"name": "a"}, {"name": "b", "record": "layers"}]')
    for flags in (["--record", "layers"], ["--specs", str(path)]):
        with pytest.raises(SystemExit, match=r"^error: record: layers is not for an exam"):
            main(["--problems", "1", *flags])


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"messages": [["user", "2 + 3"]]}, "specs: an exam takes no start, fixed tokens"),
     ({"fixed": [[0, 9]]}, "specs: an exam takes no start, fixed tokens"),
     ({"prompt": "2 + 3"}, "prompt: it would change the problems of an exam; leave it out"),
     ({"suffix": "So:"}, "suffix: it would change the problems of an exam"),
     ({"stop": ["."], "unmasker": "autoregressive"}, "stop: an autoregressive model takes none")],
)  # fmt: skip
def test_an_exam_takes_no_row_that_changes_its_problems_or_is_not_honoured(fields, said, tmp_path):
    """With messages every problem would have the same prompt."""
    path = tmp_path / "specs.json"
    path.write_text(json.dumps([{"name": "a"}, {"name": "b"} | fields]))
    with pytest.raises(SystemExit, match=f"^error: {said}"):
        main(["--problems", "1", "--timed", "0", "--specs", str(path)])


@pytest.mark.parametrize("rows", [None, '[{"name": "a"}]'])
def test_problems_that_there_are_not_are_told_before_a_model_is_loaded(rows, tmp_path, monkeypatch):
    monkeypatch.setattr("engine.tiny.corpus.MOST_IN_VAIN", 0)
    monkeypatch.setattr(ModelPool, "load_to_run", lambda *given: pytest.fail("it is loaded"))
    flags = []
    if rows:
        (tmp_path / "specs.json").write_text(rows)
        flags = ["--specs", str(tmp_path / "specs.json")]
    with pytest.raises(SystemExit, match=r"^error: problems: .* ask for at most so many"):
        main(["--problems", "500", *flags])


def test_control_c_ends_a_command_without_a_traceback(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("engine.evaluate.__main__._run", interrupted)
    with pytest.raises(SystemExit) as ended:
        engine_main(["evaluate", "--problems", "1"])
    assert ended.value.code == 130
    assert capsys.readouterr().err == "stopped\n"


@pytest.mark.filterwarnings("ignore:'engine.evaluate.*__main__' found in sys.modules")
@pytest.mark.parametrize("module", ["engine.evaluate", "engine.evaluate.fronts"])
def test_control_c_ends_a_launched_process_without_a_traceback(module, monkeypatch, capsys):
    code = interrupted(monkeypatch, module, "engine.core.command_line.command_parser")
    assert code == 130
    assert capsys.readouterr().err == "stopped\n"


def test_a_search_of_all_caches_is_not_started_by_several_processes(monkeypatch, tmp_path):
    """Each would run the whole search, and all would write the same files."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit, match=r"^error: --further: only its problems are shared"):
        engine_main(["fronts", "--out", str(tmp_path), "--estimate"])


def test_a_reader_that_ends_first_ends_a_command_without_a_traceback(monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(SystemExit) as ended:
            engine_main(["catalog"])
    assert ended.value.code == 1


@pytest.mark.parametrize(
    ("flags", "named"),
    [(("--cache", "nope"), "cache"), (("--steps", "7"), "steps"), (("--block", "48"), "block")],
)
def test_an_invalid_flag_is_named_in_the_error(flags, named):
    with pytest.raises(SystemExit, match=f"^error: {named}"):
        main(["--problems", "1", *flags])


def test_a_batch_gives_the_answers_of_single_problems(model):
    questions = exam_questions(4, 3, family="short_problems")
    spec = RunSpec(gen_length=32, block_length=16, steps=16)
    single = [one.text for one in evaluate(model, spec, questions, batch=1)]
    assert [one.text for one in evaluate(model, spec, questions, batch=4)] == single


def test_an_answer_has_the_length_of_the_problems_own_text_in_the_order_of_the_problems(model):
    questions = exam_questions(4, 3)
    spec = RunSpec(gen_length=64, block_length=16, steps=16)
    results = evaluate(model, spec, questions, batch=3)
    texts = [model.tokenizer.encode(one.solution) for one, _ in questions]
    lengths = [fitting_length(len(ids) + 1, 16) for ids in texts]
    assert [one.positions for one in results] == lengths
    assert len(set(lengths)) > 1
    assert [one.nfe for one in results] == [length // 4 for length in lengths]
    alone = [one for pair in questions for one in evaluate(model, spec, [pair])]
    assert [one.text for one in alone] == [one.text for one in results]


def test_the_room_for_an_answer_is_counted_in_the_tokens_of_the_model_that_answers(model):
    """The vocabulary of digits writes a number in up to three tokens."""
    digits = Tokenizer(ASSETS / "models" / "tiny-qwen2-digits")
    spec = RunSpec(gen_length=64, block_length=16, steps=32)
    pairs = exam_questions(20, 7)
    for tokenizer in (model.tokenizer, digits):
        for one, prompt in pairs:
            room = fitted(spec, one, prompt, tokenizer).gen_length
            assert room == fitting_length(len(tokenizer.encode(one.solution)) + 1, 16)
    longer = [
        fitted(spec, *pair, digits).gen_length > fitted(spec, *pair, model.tokenizer).gen_length
        for pair in pairs
    ]
    assert any(longer)


def test_a_row_sums_up_the_results(model):
    spec = RunSpec(gen_length=32, block_length=16, steps=32)
    results = evaluate(model, spec, exam_questions(3, 3, family="short_problems"), fit=False)
    row = summarise(spec, results)
    assert row["correct"] == sum(one.correct for one in results)
    assert row["nfe"] == 32
    assert row["tokens_per_s"] == pytest.approx(
        1e3 * sum(len(one.ids) for one in results) / sum(one.ms for one in results)
    )


def test_both_branches_of_guidance_count_as_forwards(model):
    spec = RunSpec(gen_length=32, block_length=16, steps=8, cfg_scale=1.0)
    row = summarise(spec, evaluate(model, spec, exam_questions(2, 3, family="short_problems")))
    assert row["tokens_per_forward"] == pytest.approx(row["tokens"] / (2 * row["nfe"]))


def test_an_exam_with_nothing_to_decode_is_refused(model):
    spec = RunSpec(gen_length=32, block_length=16, steps=32, fixed=[(i, 5) for i in range(32)])
    questions = exam_questions(1, 3, family="short_problems")
    with pytest.raises(ValueError, match=r"^fixed: no position of an answer is left to decode"):
        evaluate(model, spec, questions, fit=False)


@pytest.mark.parametrize(
    ("family", "said"), [("reversal", "2 worked examples"), ("lookup", "no worked examples")]
)
def test_the_worked_examples_that_precede_a_problem_are_told(family, said, tmp_path, capsys):
    shown = ["--family", family, "--problems", "1", "--shots", "2"]
    main([*shown, "--unmasker", "threshold", "--threshold", "0"])
    assert capsys.readouterr().out.splitlines()[0].endswith(f", {said}")
    rows = [{"name": "all at once", "unmasker": "threshold", "threshold.threshold": 0.0}]
    (tmp_path / "specs.json").write_text(json.dumps(rows))
    main([*shown, "--specs", str(tmp_path / "specs.json"), "--timed", "0"])
    assert f"the same for every row, {said} before each;" in capsys.readouterr().out


def test_many_settings_are_compared_with_the_first(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(comparison, "TIMED_LENGTH", 64)
    specs = [
        {"name": "plain"},
        {"name": "again"},
        {"name": "all at once", "unmasker": "threshold", "threshold.threshold": 0.0},
    ]
    (tmp_path / "specs.json").write_text(json.dumps(specs))
    engine_main([
        "evaluate", "--specs", str(tmp_path / "specs.json"), "--problems", "3",
        "--gen", "32", "--steps", "16", "--timed", "2", "--timed-shots", "1",
        "--out", str(tmp_path), "--json", "--family", "word_problems",
    ])  # fmt: skip
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    plain, again, rash = document["rows"]
    assert (again["agreement"], again["p"], again["accuracy"]) == (1, 1, plain["accuracy"])
    assert rash["nfe"] == 2
    assert rash["agreement"] < 1
    assert rash["gflops_per_position"] < plain["gflops_per_position"]
    assert rash["speed"]["nfe"] == 4
    assert rash["speed"]["speed_up"] > 4
    assert document["command"].startswith("python -m engine evaluate --specs ")
    assert json.loads((tmp_path / "table.json").read_text())["rows"] == document["rows"]
    assert rash["text_nfe"] == 2
    assert rash["speed"]["text_nfe"] <= rash["speed"]["nfe"]
    assert rash["speed"]["text_speed_up"] > 1
    assert "| again " in (tmp_path / "table.md").read_text()
    main(["--problems", "1", "--out", str(tmp_path), "--unmasker", "threshold"])
    assert not (tmp_path / "table.md").exists()


def test_a_table_says_what_was_measured_and_its_rows_name_their_exam(tmp_path, capsys):
    rows = [{"name": "all at once", "unmasker": "threshold", "threshold.threshold": 0.0}]
    path = tmp_path / "specs.json"
    path.write_text(json.dumps(rows))
    main(["--specs", str(path), "--problems", "1", "--shots", "1", "--timed", "0", "--json"])
    *text, last = capsys.readouterr().out.splitlines()
    assert "longer task" not in "\n".join(text)
    assert "End of text: official. " in "\n".join(text)
    (row,) = json.loads(last)["rows"]
    assert (row["family"], row["shots"], row["batch"], row["speed"]) == (DEFAULT_FAMILY, 1, 1, None)


def test_a_table_names_the_checkpoint_of_its_first_row(tmp_path, capsys):
    at_once = {"model": "tiny-dream", "unmasker": "threshold", "threshold.threshold": 0.0}
    rows = [{"name": d, "dtype": d} | at_once for d in ("bfloat16", "float32")]
    path = tmp_path / "specs.json"
    path.write_text(json.dumps(rows))
    main(["--specs", str(path), "--problems", "1", "--timed", "0", "--json"])
    *text, last = capsys.readouterr().out.splitlines()
    where, digest = json.loads(last)["environment"], checkpoint_digest("tiny-dream")
    assert (where["checkpoint"], where["dtype"]) == (digest, "bfloat16")
    assert f"`{digest[:12]}` (format and checkpoint of the first row)." in "\n".join(text)


def checkpoint_digest(name):
    return Checkpoint(ASSETS / "models" / name).digest()


def test_rows_of_a_table_share_their_end_of_text_rule():
    plain, guided = RunSpec(), RunSpec(unmasker="guided")
    found = check_rules([NamedSpec("plain", plain), NamedSpec("guided", guided)])
    assert [one.spec.eos for one in found] == ["fill_safe", "fill_safe"]
    assert check_rules([NamedSpec("plain", plain)])[0].spec.eos == "official"
    eager = NamedSpec("eager", replace(plain, eos="fill_eager"))
    with pytest.raises(ValueError, match="specs: eos: the rows of a table need one"):
        check_rules([NamedSpec("plain", plain), eager])


@pytest.mark.parametrize(
    ("text", "named"),
    [("{", "JSON"), ('{"name": "x"}', "JSON list"), ("[1]", "JSON list"), ("[]", "not empty"),
     ('[{"name": "x"}, {"name": "x"}]', "two rows are named x"),
     ('[{"name": "x", "cache": "nope"}]', "x: cache"), ('[{"cache": "dual"}]', "name")],
)  # fmt: skip
def test_an_invalid_specs_file_is_named_in_the_error(tmp_path, text, named):
    (tmp_path / "specs.json").write_text(text)
    with pytest.raises(ValueError, match="specs: .*" + named):
        read_specs(tmp_path / "specs.json", RunSpec())


def test_the_command_names_an_invalid_specs_file_in_one_line(tmp_path):
    path = tmp_path / "specs.json"
    path.write_text('{"name": "x"}')
    with pytest.raises(SystemExit) as found:
        main(["--specs", str(path)])
    wanted = f'error: specs: {path} must be a JSON list of {{"name", fields}}, not empty'
    assert found.value.code == wanted


def test_every_spec_is_evaluated_and_timed_in_its_number_format(model):
    loaded = []

    def load(spec):
        loaded.append(spec.dtype)
        return model

    at_once = {"threshold.threshold": 0.0}
    base = RunSpec(gen_length=32, steps=32, unmasker="threshold", knobs=at_once)
    specs = [NamedSpec(d, replace(base, dtype=d)) for d in ("float32", "bfloat16")]
    questions = exam_questions(1, 7, 0, "short_problems")
    for one in specs:
        _evaluate_one(load, one.spec, questions, 1, True)
    time_prompts(load, specs, questions)
    assert loaded == ["float32", "bfloat16"] * 2


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--problems", "0"], "'0' is not a whole number from 1"),
     (["--threads", "0"], "'0' is not a whole number from 1"),
     (["--threads", "100000"], "100000 is more than"),
     (["--batch", "-2"], "'-2' is not a whole number from 1"),
     (["--shots", "-1"], "'-1' is not a whole number from 0"),
     (["--timed-shots", "-1"], "'-1' is not a whole number from 0")],
)  # fmt: skip
def test_numbers_that_make_no_exam_are_refused(options, said, capsys):
    with pytest.raises(SystemExit):
        main(options)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["advise", "batch", "calibrate", "examples", "repeat"])
def test_no_command_takes_zero_threads(command, capsys):
    with pytest.raises(SystemExit):
        engine_main([command, "--threads", "0"])
    assert "argument --threads: '0' is not a whole number from 1" in capsys.readouterr().err


def test_prompts_beyond_the_context_of_a_causal_model_are_refused():
    options = ["--unmasker", "autoregressive", "--autoregressive.model", "tiny-qwen2-digits"]
    with pytest.raises(SystemExit, match=r"prompt: .* exceed the context of 1024"):
        main(["--problems", "1", "--shots", "40", *options])
    folder = str(ASSETS / "models" / "tiny-qwen2-digits")
    with pytest.raises(SystemExit, match=r"prompt: .* exceed the context of 1024"):
        engine_main(["causal-exam", "--folder", folder, "--shots", "40", "--problems", "1"])


@pytest.mark.parametrize("rounds", ["0", "-1"])
def test_the_sweep_needs_a_round(rounds, capsys):
    with pytest.raises(SystemExit):
        engine_main(["sweep", "--rounds", rounds])
    assert f"argument --rounds: '{rounds}' is not a whole number from 1" in capsys.readouterr().err


def test_samples_of_workers_would_not_be_kept_so_they_are_refused(tmp_path):
    specs = tmp_path / "specs.json"
    specs.write_text('[{"name": "x"}]')
    options = ["--specs", str(specs), "--workers", "2", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit, match="--workers: the processes keep no samples"):
        main(options)


@pytest.mark.parametrize("command", ["evaluate", "batch", "advise"])
def test_a_file_is_refused_as_the_folder_of_results(command, tmp_path):
    (tmp_path / "taken").write_text("")
    options = ["--family", "short_problems", "--problems", "6", "--out", str(tmp_path / "taken")]
    with pytest.raises(SystemExit, match=r"^error: --out: .*taken cannot be used as a folder"):
        engine_main([command, *options])


def test_an_interrupt_ends_a_worker_without_a_traceback():
    before = signal.getsignal(signal.SIGINT)
    try:
        prepare_worker(torch.get_num_threads())
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)
