"""Who may import whom, read from the source; and what is loaded with what."""

import ast
import subprocess
import sys

import pytest

from tests.support.micro import ROOT

PAGE = {"gradio", "plotly", "inspector", "app"}
PLAIN = {f"engine.{name}" for name in ("spec", "events", "trace", "fields", "plan", "schema")} | {
    "engine.core.drift_codes",
    "engine.core.device",
    "engine.core.regions",
}
LEVELS = [
    {"fields", "events", "control", "logcode", "accounts", "presets", "clock", "files", "line"},
    {"spec", "rows", "regions", "registry", "progress", "memory", "readme", "zero"},
    {"schema"},
    {"document", "columns"},
    {"plan", "trace", "models"},
    {"flops", "download", "limits"},
    {"cache", "hub"},
    {"decode", "stock", "families"},
    {"catalog", "forward", "guidance", "recorder", "eos", "metrics", "text", "tap"},
    {"latest", "sketch", "room", "shape", "floor", "threads", "chart"},
    {"layers"},
    {"shadow"},
    {"job", "environment"},
    {"pace"},
    {"loop"},
    {"calibration"},
    {"levels"},
    {"lane"},
    {"library", "race", "sitting", "trial"},
    {"shelf", "shortage", "calibrate", "figures", "comparison"},
    {"suite"},
    {"growth", "targets"},
    {"evaluate", "bench"},
    {"session"},
]


def sources(*folders):
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imported(text):
    """Every module that a source names in an import, from-imports with what they take."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def strays(text, roots, allowed):
    """Imports under `roots` that are neither an allowed module nor something out of one."""
    return {
        name
        for name in imported(text)
        if name.split(".")[0] in roots
        and not any(name == good or name.startswith(f"{good}.") for good in allowed)
    }


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", sources("engine"), ids=name_of)
def test_the_engine_knows_nothing_of_the_page(path):
    assert strays(path.read_text(), PAGE, set()) == set()


@pytest.mark.parametrize("path", sources("inspector"), ids=name_of)
def test_the_inspector_knows_only_plain_data_of_the_engine(path):
    assert strays(path.read_text(), {"engine", "torch", "transformers"}, PLAIN) == set()


SHARED = ("base", "ground", "probe", "store", "profile", "singular")
POLICY = {f"engine.cache.{name}" for name in ("base", "store", "select", "profile", "density")} | {
    "engine.cache.calibration.layer_budget",
    "engine.cache.calibration.singular_proxy",
    "engine.cache.calibration.thresholds",
    "engine.config.knobs",
    "engine.core.device",
    "engine.core.regions",
    "engine.core.rows",
}
UNMASKER = (
    {f"engine.{name}" for name in ("fields", "host", "models.ops", "plan")}
    | {
        f"engine.{name}"
        for name in ("cache.base", "cache.density", "decode.base", "decode.prefix_rule")
    }
    | {f"engine.decode.{name}" for name in ("quota", "schedule", "score")}
    | {"engine.core.events.GuidedStep", "engine.guider"}
)
ADAPTER = {f"engine.{name}" for name in ("models", "rows", "progress", "files")}


def plugins(folder, *shared):
    return [p for p in sources(folder) if p.stem not in (*shared, "__init__")]


@pytest.mark.parametrize("path", plugins("engine/cache", *SHARED), ids=name_of)
def test_a_policy_knows_the_base_and_the_store(path):
    assert strays(path.read_text(), {"engine"}, POLICY) == set()


@pytest.mark.parametrize("path", plugins("engine/decode"), ids=name_of)
def test_an_unmasker_knows_candidates_and_views(path):
    assert strays(path.read_text(), {"engine"}, UNMASKER) == set()


@pytest.mark.parametrize("path", plugins("engine/models"), ids=name_of)
def test_an_adapter_knows_adapters(path):
    assert strays(path.read_text(), {"engine"}, ADAPTER) == set()


def level_of(module):
    parts = module.split(".")
    return next((i for i, names in enumerate(LEVELS) if len(parts) > 1 and parts[1] in names), None)


def test_the_engine_imports_only_downwards():
    upward = []
    for path in sources("engine"):
        own = level_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for name in imported(path.read_text()):
            other = level_of(name) if name.startswith("engine.") else None
            if own is not None and other is not None and other > own:
                upward.append((name_of(path), name))
    assert upward == []


@pytest.mark.parametrize(
    ("text", "roots", "allowed"),
    [("import gradio as gr", PAGE, set()), ("from inspector.views import tokens", PAGE, set()),
     ("from engine import session", {"engine"}, PLAIN),
     ("def f():\n    import engine.generate.loop", {"engine"}, PLAIN),
     ("from engine.tracery import x", {"engine"}, PLAIN)],
)  # fmt: skip
def test_a_stray_import_is_found(text, roots, allowed):
    assert len(strays(text, roots, allowed)) == 1


def test_only_the_plugin_registry_is_shared_state():
    writes = [
        name_of(path)
        for path in sources("engine")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Global)
    ]
    assert writes == []


def loaded_by(module):
    code = f"import sys, {module}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.split())


def test_traces_are_read_without_torch():
    assert "torch" not in loaded_by("engine.trace.trace, engine.config.spec, engine.core.events, engine.config.plan")


def test_the_registered_models_are_known_without_torch():
    assert not loaded_by("engine.models.loading.registry") & {"torch", "numpy", "transformers"}


def test_the_session_is_made_without_the_page():
    loaded = loaded_by("engine.serve.session")
    assert "torch" in loaded
    assert not loaded & PAGE


@pytest.mark.skipif(
    not (ROOT / "inspector" / "layout.py").exists(), reason="the page's layout is not there"
)
def test_the_page_is_laid_out_without_torch():
    assert not loaded_by("inspector.page.layout") & {"torch", "transformers", "engine.serve.session"}
