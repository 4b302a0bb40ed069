"""The version of the code that decodes a run: which modules it depends on."""

import pytest

from engine.batch import decoding_code
from engine.batch.decoding_code import ENGINE, code_version


@pytest.fixture
def changed(monkeypatch):
    """A function that says whether a changed module changes the version of a cache and unmasker."""

    def has_other_version(module, *names):
        path = ENGINE / module
        assert path.is_file()
        versions = []
        for digest in ("old", "new"):
            monkeypatch.setattr(
                decoding_code, "code_digest", lambda one, d=digest: d if one == path else "same"
            )
            versions.append(code_version.__wrapped__(*names))  # these digests are not kept
        return versions[0] != versions[1]

    return has_other_version


@pytest.mark.parametrize(
    ("module", "changes"),
    [
        ("generate/loop.py", True),
        ("generate/capture/capturers.py", True),
        ("models/kernels/fused.py", True),
        ("models/loading/checkpoint.py", True),
        ("cache/methods/fast_dllm.py", True),
        ("cache/methods/spa_cache.py", False),
        ("guider/model.py", False),
        ("bench/trial.py", False),
        ("batch/outcome.py", True),
        ("core/device.py", True),
        ("serve/lane.py", True),
        ("trace/metrics.py", True),
        ("vision/run_images.py", True),
        ("vision/encoder.py", False),
    ],
)
def test_the_version_is_of_the_code_that_decides_tokens_and_time(changed, module, changes):
    assert changed(module, "dual", "quota") == changes


@pytest.mark.parametrize("unmasker", ["guided", "autoregressive"])
def test_the_code_of_a_causal_model_counts_where_one_is_used(changed, unmasker):
    assert changed("guider/model.py", "none", unmasker)


def test_both_methods_of_a_stack_count(changed):
    for module in ("cache/methods/fast_dllm.py", "cache/methods/dare.py"):
        assert changed(module, "dual+dare_o", "quota")


def test_further_modules_count(tmp_path):
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("A = 1\n")
    other.write_text("A = 2\n")
    versions = {code_version("none", "quota", *more) for more in ((), (one,), (other,))}
    assert len(versions) == 3
