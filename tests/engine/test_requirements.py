"""requirements.txt declares what is imported, with both bounds, and nothing else."""

import ast
import re
import sys
from importlib.metadata import version

import pytest

from tests.support.micro import ROOT

# On a Space; for `python -m engine.lm_eval` alone; a part of torch for GPUs on Linux.
OPTIONAL = {"spaces", "lm_eval", "datasets", "triton"}
PYTHON = [
    ROOT / "app.py",
    *(p for part in ("engine", "inspector") for p in (ROOT / part).rglob("*.py")
      if "node_modules" not in p.parts),
]  # fmt: skip
DECLARED = (ROOT / "requirements.txt").read_text("utf-8").splitlines()


PACKAGES = {"PIL": "pillow"}  # where the module has another name than its package


def imported():
    """Packages of the third-party modules that the app imports."""
    names = set()
    for path in PYTHON:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module)
    top = {name.partition(".")[0] for name in names}
    top -= sys.stdlib_module_names | {"engine", "inspector"} | OPTIONAL
    return {PACKAGES.get(name, name) for name in top}


def test_what_is_imported_is_declared_and_nothing_else():
    assert imported() == {re.split(r"[^\w]", line)[0] for line in DECLARED}


@pytest.mark.parametrize("line", DECLARED)
def test_a_requirement_has_both_bounds_and_holds_here(line):
    name, low, high = re.fullmatch(r"(\w+)>=([\d.]+),<([\d.]+)", line).groups()
    found, low, high = (
        tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0]))
        for text in (version(name), low, high)
    )
    assert low <= found < high
