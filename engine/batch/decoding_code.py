"""Digests of the code that decodes a run, by which kept results are of one version of it."""

from __future__ import annotations

import ast
import hashlib
import inspect
from functools import cache
from pathlib import Path

from engine.catalog import decoding_rules, policies
from engine.distributed.keyed_lines import key_of
from engine.unmask.methods.autoregressive import Autoregressive
from engine.unmask.methods.guided import Guided

ENGINE = Path(__file__).parents[1]
# The code that decides which tokens are decoded and which answers are right. Of the methods only
# those that a spec uses are added.
PACKAGES = ("cache", "generate", "models", "tiny/families", "unmask")
# Of specs with an autoregressive model, as guider or as decoder, also these.
CAUSAL = ("guider/*.py", "generate/autoregressive.py")
MODULES = (
    "batch/statistics.py", "catalog.py", "core/rows.py", "core/regions.py", "config/answers.py",
    "config/blocks.py", "config/plan.py", "config/spec.py", "evaluate/comparison.py",
    "evaluate/exam.py", "serve/drift_meter.py", "serve/loaded_model.py", "tiny/corpus.py",
    "tiny/family.py", "tiny/phrases.py", "tiny/scenes.py",
)  # fmt: skip
# Code that decides only the time of a run, or what a batch keeps of it. Of the code of images only
# that which makes every prompt: neither a batch nor an exam takes an image.
OF_A_RUN = (
    "batch/outcome.py", "core/device.py", "serve/lane.py", "trace/metrics.py", "vision/prompt.py",
    "vision/run_images.py",
)  # fmt: skip
METHODS = "methods"  # subpackages of methods, of which a spec uses few
# Code that decides the time of a run and not its tokens: loading, which gives the weights of the
# digests; captured forwards, whose tokens the tests compare with those of eager ones; kernels of a
# GPU.
OF_TIMES = ("loading", "capture")
OF_A_GPU = ("fused.py", "fused_trials.py", "triton_kernels.py", "triton_rows.py")


@cache
def code_digest(path: Path) -> str:
    """A digest of the syntax tree of a module, without comments and docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            body[0] = ast.Expr(ast.Constant(""))
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _is_text(node: ast.AST) -> bool:
    constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return constant and isinstance(node.value.value, str)  # type: ignore[attr-defined]


def decoding_modules(policy: str, unmasker: str, timed: bool = False) -> set[Path]:
    """The modules that decode with a cache and an unmasker, by name, and mark the answers.

    `timed`: also those that decide only the time, or what a batch keeps.
    """
    left_out = (METHODS,) if timed else (METHODS, *OF_TIMES)
    found = {ENGINE / name for name in (*MODULES, *(OF_A_RUN if timed else ()))}
    for package in PACKAGES:
        paths = (ENGINE / package).rglob("*.py")
        found |= {p for p in paths if p.parent.name not in left_out}
    if not timed:  # accuracies are computed on a CPU
        found = {path for path in found if path.name not in OF_A_GPU}
    causal = {path for pattern in CAUSAL for path in ENGINE.glob(pattern)}
    rule = decoding_rules()[unmasker]
    found = found | causal if issubclass(rule, Guided | Autoregressive) else found - causal
    methods = [policies()[name] for name in policy.split("+")]
    return found | {Path(inspect.getfile(one)) for one in (*methods, rule)}


@cache
def code_version(policy: str, unmasker: str, *more: Path) -> str:
    """A digest of the code that decides the tokens and the time of a run, and of `more` modules."""
    paths = (*sorted(decoding_modules(policy, unmasker, timed=True)), *more)
    return key_of([code_digest(path) for path in paths])
