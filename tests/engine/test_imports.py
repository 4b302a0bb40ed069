"""Layers: the import contracts of pyproject.toml hold, and what each module loads."""

import ast
import shutil
import subprocess
import sys
from collections import Counter

from tests.support.micro import ROOT

PAGE = {"gradio", "plotly", "inspector", "app"}


def loaded_by(modules):
    code = f"import sys, {modules}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.split())


def test_the_engine_has_three_modules_at_its_root():
    names = {path.name for path in (ROOT / "engine").glob("*.py")}
    assert names == {"__init__.py", "__main__.py", "catalog.py"}


def test_a_package_has_at_most_fourteen_modules():
    paths = (path for root in ("engine", "inspector") for path in (ROOT / root).rglob("*.py"))
    counts = Counter(path.parent for path in paths if path.name != "__init__.py")
    assert counts[ROOT / "engine" / "serve"] > 1
    assert {package for package, count in counts.items() if count > 14} == set()


def test_no_module_assigns_a_global():
    found = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "engine").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Global)
    ]
    assert found == []


def test_an_import_from_a_higher_layer_breaks_the_contract(tmp_path):
    for name in ("inspector", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "engine", tmp_path / "engine", ignore=ignored)
    stray = tmp_path / "engine" / "core" / "stray.py"
    stray.write_text("from engine.config.spec import RunSpec\n", "utf-8")
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "engine.core.stray -> engine.config.spec" in ran.stdout


def test_the_package_is_imported_without_torch_or_numpy():
    assert not loaded_by("engine") & {"torch", "numpy", "transformers", *PAGE}


def test_traces_are_read_without_torch():
    assert "torch" not in loaded_by("engine.trace.trace, engine.config.spec, engine.core.events")


def test_the_registered_models_are_known_without_torch():
    loaded = loaded_by("engine.models.loading.registry")
    assert not loaded & {"torch", "numpy", "transformers"}


def test_the_session_is_made_without_the_page():
    loaded = loaded_by("engine.serve.session")
    assert "torch" in loaded
    assert not loaded & PAGE
