"""Kept accuracies: a row is found again only if nothing that can change it has changed."""

import inspect
import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.batch.decoding_code import ENGINE, code_digest
from engine.batch.settings import NamedSpec
from engine.catalog import policies
from engine.config.spec import RunSpec
from engine.evaluate import kept_accuracy, measured_results
from engine.evaluate.kept_accuracy import KEPT, KeptAccuracy, folder_digest, row_key

PLAIN = RunSpec()
DUAL = replace(PLAIN, cache="dual")
DIGESTS = {"tiny-llada": "d"}
EXAM = {"problems": 5, "seed": 7, "shots": 0}


def test_the_key_changes_with_specs_checkpoints_and_exam():
    key = row_key(DUAL, PLAIN, DIGESTS, EXAM)
    assert row_key(DUAL, PLAIN, dict(DIGESTS), dict(EXAM)) == key
    others = [
        row_key(replace(DUAL, seed=1), PLAIN, DIGESTS, EXAM),
        row_key(DUAL, replace(PLAIN, eos="fill_safe"), DIGESTS, EXAM),
        row_key(DUAL, PLAIN, {"tiny-llada": "e"}, EXAM),
        row_key(DUAL, PLAIN, DIGESTS | {"tiny-qwen2": "d"}, EXAM),
        row_key(DUAL, PLAIN, DIGESTS, EXAM | {"problems": 6}),
        row_key(DUAL, PLAIN, DIGESTS, EXAM | {"shots": 1}),
    ]
    assert len({key, *others}) == 1 + len(others)


@pytest.mark.parametrize(
    ("module", "changes"),
    [
        ("generate/loop.py", True),
        ("cache/forward.py", True),
        ("unmask/methods/quota.py", True),
        ("tiny/corpus.py", True),
        ("cache/methods/spa_cache.py", False),
        ("models/loading/hub.py", False),
        ("models/kernels/linear.py", True),
        ("models/kernels/fused.py", False),
        ("bench/trial.py", False),
    ],
)
def test_the_key_changes_with_the_code_that_decodes(monkeypatch, module, changes):
    before, real = row_key(DUAL, PLAIN, DIGESTS, EXAM), kept_accuracy.code_digest
    assert (ENGINE / module).is_file()

    def changed(path):
        return "changed" if path == ENGINE / module else real(path)

    monkeypatch.setattr(kept_accuracy, "code_digest", changed)
    assert (row_key(DUAL, PLAIN, DIGESTS, EXAM) != before) == changes


@pytest.mark.parametrize(
    ("name", "changes"),
    [("model.safetensors", True), ("tokenizer.json", True), ("calibration/drift.json", True),
     ("exam.json", False), ("README.md", False)],
)  # fmt: skip
def test_the_digest_of_a_model_changes_with_the_files_that_decide_its_answers(
    tmp_path, name, changes
):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("a")
    before = folder_digest(tmp_path)
    path.write_text("b")
    assert (folder_digest(tmp_path) != before) == changes


@pytest.mark.parametrize("module", ["guider/model.py", "generate/autoregressive.py"])
@pytest.mark.parametrize(
    ("unmasker", "changes"), [("guided", True), ("autoregressive", True), ("threshold", False)]
)
def test_only_specs_with_an_autoregressive_model_depend_on_its_code(
    monkeypatch, module, unmasker, changes
):
    real, plain = kept_accuracy.code_digest, replace(PLAIN, eos="fill_safe")
    spec = replace(plain, unmasker=unmasker)
    before = row_key(spec, plain, DIGESTS, EXAM)
    monkeypatch.setattr(
        kept_accuracy, "code_digest", lambda path: "x" if path == ENGINE / module else real(path)
    )
    assert (row_key(spec, plain, DIGESTS, EXAM) != before) == changes


def test_the_method_that_a_spec_uses_is_part_of_its_key(monkeypatch):
    path, real = Path(inspect.getfile(policies()["dual"])), kept_accuracy.code_digest
    keys = [row_key(one, PLAIN, DIGESTS, EXAM) for one in (DUAL, PLAIN)]
    monkeypatch.setattr(
        kept_accuracy, "code_digest", lambda found: "x" if found == path else real(found)
    )
    assert row_key(DUAL, PLAIN, DIGESTS, EXAM) != keys[0]
    assert row_key(PLAIN, PLAIN, DIGESTS, EXAM) == keys[1]


CODE = 'def f(x):\n    """Add."""\n    return x + 1\n'


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('# a comment\ndef f(x):\n    """Other words."""\n    return (x + 1)\n', True),
        (CODE.replace("+ 1", "+ 2"), False),
        (CODE.replace('"""Add."""', "x = 1"), False),
        (CODE + 'NAME = "text"\n', False),
    ],
)
def test_comments_and_docstrings_do_not_change_a_digest(tmp_path, text, same):
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text(CODE, "utf-8")
    other.write_text(text, "utf-8")
    assert (code_digest(one) == code_digest(other)) == same


ROW = dict.fromkeys(KEPT, 1)


def test_only_what_the_answers_give_is_kept(tmp_path):
    path = tmp_path / "accuracy.json"
    KeptAccuracy(path).put("k", ROW | {"tokens_per_s": 3.0, "nfe": 4, "gflops_per_token": 1})
    KeptAccuracy(path).put("l", ROW | {"accuracy": 0.25})
    kept = KeptAccuracy(path)
    assert kept.get("k") == ROW
    assert kept.get("unknown") is None
    kept.drop_unused()
    assert json.loads(path.read_text("utf-8")) == {"k": ROW}


@pytest.mark.parametrize("text", [None, "{broken", "[]"])
def test_a_missing_or_damaged_file_counts_as_empty(tmp_path, text):
    path = tmp_path / "accuracy.json"
    if text is not None:
        path.write_text(text, "utf-8")
    kept = KeptAccuracy(path)
    assert kept.get("k") is None
    kept.put("k", ROW)
    assert KeptAccuracy(path).get("k") == ROW


@pytest.mark.parametrize("same", [True, False])
def test_rows_are_paired_with_the_answers_of_the_baseline_beside_them(tmp_path, monkeypatch, same):
    """A machine that rounds in another way gives the baseline other answers than those kept."""
    specs = [NamedSpec(name, replace(PLAIN, seed=i)) for i, name in enumerate("abc")]
    kept, evaluated = KeptAccuracy(tmp_path / "accuracy.json"), []

    def compared(load, wanted, *given):
        evaluated.append([one.name for one in wanted])
        right = 1 if same else 2
        return [ROW | {"name": one.name, "spec": {}, "correct": right} for one in wanted]

    monkeypatch.setattr(measured_results, "row_key", lambda spec, *given: str(spec.seed))
    monkeypatch.setattr(measured_results, "_digests", lambda spec: {})
    monkeypatch.setattr(measured_results, "exam_questions", lambda **exam: [])
    monkeypatch.setattr(measured_results.comparison, "compare", compared)
    for key in "01":
        kept.put(key, ROW)
    table = measured_results.Table("t", "m", {"balance": 1}, 0, False, [])
    block = measured_results.Block("official", specs)
    rows = measured_results._evaluate_family(table, block, kept, 1, problems=1, family="balance")
    assert evaluated == ([["a", "c"]] if same else [["a", "c"], ["a", "b", "c"]])
    assert {row["correct"] for row in rows} == {1 if same else 2}
