"""The page as built: private listeners, distinct ids, no torch, nothing started by an import."""

import subprocess
import sys

import pytest

from inspector.page.layout import build, launch_options
from tests.support.browser import ROOT


@pytest.fixture(scope="module")
def demo(session):
    return build(session)


def test_only_the_api_is_public(demo):
    shown = {fn.api_name: fn.api_visibility for fn in demo.fns.values()}
    assert set(shown.values()) <= {"public", "private"}
    assert {name for name, kind in shown.items() if kind == "public"} == {
        "estimate", "image", "methods", "plan", "run", "trace", "what_if",
    }  # fmt: skip


def test_a_message_of_a_listener_updates_few_components(demo):
    """With each message, Gradio's page updates the inputs and searches the page for each of them.

    So it does with the components that show a progress: without a list, with all outputs.
    """
    served = [
        fn for fn in demo.fns.values() if fn.fn is not None and fn.api_visibility == "private"
    ]
    assert served
    for fn in served:
        assert len(fn.inputs) <= 16, fn.api_name
        assert fn.show_progress_on == [] or not fn.outputs, fn.api_name


def test_ids_are_distinct(demo):
    ids = [block.elem_id for block in demo.blocks.values() if getattr(block, "elem_id", None)]
    assert len(set(ids)) == len(ids)


def test_every_input_is_labelled(demo):
    for block in demo.blocks.values():
        if type(block).__name__ in ("Slider", "Number", "Dropdown", "Textbox", "Checkbox", "File"):
            assert block.label


def test_launch_options_are_known_to_gradio(demo):
    import inspect

    assert set(launch_options(demo)) <= set(inspect.signature(demo.launch).parameters)
    assert launch_options(demo)["ssr_mode"] is False


def loaded_after(statement, *modules):
    code = f"import sys; {statement}; print([m for m in {modules!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip().splitlines()[-1]


def test_importing_the_app_starts_nothing():
    assert loaded_after("import app", "torch", "gradio", "engine.serve.session") == "[]"
