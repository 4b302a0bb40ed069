"""The advisor's tab: what is searched for and on which prompts, buttons, and the results."""

from __future__ import annotations

from typing import Any

import gradio as gr
from gradio.components import Component

from inspector import static_files
from inspector.handlers.page_handlers import Handlers
from inspector.handlers.tasks.advice_handlers import AdviceHandlers
from inspector.handlers.tasks.prompt_sources import PROBLEMS
from inspector.page.prompt_widgets import build_source
from inspector.page.run_tab import RunTab
from inspector.page.task_tab import build_buttons, wire_task
from inspector.protocol import Batches, Searches

KINDS = {
    "tokens": "the tokens of its text", "answers": "its final answers",
    "accuracy": "its share of right answers",
}  # fmt: skip
USUAL = "right answers if all are known, else final ones"
KEEP, CANDIDATES, PROBLEM_COUNT = 95, 8, 24


def build_advisor(
    demo: gr.Blocks,
    tabs: gr.Tabs,
    handlers: Handlers,
    services: tuple[Searches, Batches],
    run: RunTab,
) -> None:
    """Build the components and listeners of the tab; `run` takes the race of a setting."""
    searches, batches = services
    advice, limits = AdviceHandlers(handlers, searches, batches.count), searches.describe()
    gr.Markdown(_about(limits))
    with gr.Row():
        with gr.Column(scale=3, min_width=300):
            source = build_source(handlers, advice.sources, "advice", PROBLEMS, PROBLEM_COUNT)
        with gr.Column(scale=2, min_width=280):
            asked = _asked(handlers, limits)
    keys = build_buttons("advice", "Search")
    shown = gr.HTML(
        "", html_template=static_files.text("advice.html"), elem_id="ds-advice",
        **static_files.BARE | {"js_on_load": static_files.script("advice", ("race",))},
    )  # fmt: skip
    starters = {"run": advice.starter(False), "estimate": advice.starter(True)}
    widgets = [*source, *asked]
    wire_task(demo, tabs, handlers.form, advice, shown, keys, starters, widgets, run)


def _about(limits: dict[str, Any]) -> str:
    """What the tab is for, with the limits of this page."""
    text = (
        "Find settings of a cache method that are fast and keep a share, which you choose, of "
        "plain decoding's tokens, final answers or right answers. Two exact runs are recorded. "
        "From them the time and the kept share of settings are predicted. The best predictions "
        "are run in rounds on a third of the prompts, at most 24, and the best of these are "
        "tested on the other prompts. Model, lengths and "
        "unmasker are those of lane B of the Run tab; plain decoding here has the same unmasker "
        "and no cache."
    )
    if limits["seconds"] is None:
        return text
    return text + (
        f" At most {limits['prompts']} prompts, {limits['methods']} method, "
        f"{limits['candidates']} settings and {limits['seconds']:.0f} s at once on this public "
        "page; other visitors' runs take turns with yours."
    )


def _asked(handlers: Handlers, limits: dict[str, Any]) -> list[Component]:
    """The widgets of what is searched for: method, what is kept, how much, how many settings."""
    titles = {row["name"]: row["title"] for row in handlers.form.catalog.methods["cache"]}
    methods = [(titles[name], name) for name in limits["caches"]]
    if limits["methods"] >= len(methods):
        methods.append(("All methods", "all"))
    chosen = handlers.form.catalog.default.b.cache
    cache = gr.Dropdown(methods, value=chosen, label="Method", elem_id="ds-advice-cache")
    of = gr.Dropdown(
        [(USUAL, ""), *((KINDS[kind], kind) for kind in limits["kinds"])],
        value="", label="What to keep of plain decoding", elem_id="ds-advice-of",
    )  # fmt: skip
    keep = gr.Slider(1, 100, KEEP, step=1, label="At least (%)", elem_id="ds-advice-keep")
    candidates = gr.Slider(
        4, limits["candidates"], min(CANDIDATES, limits["candidates"]), step=1,
        label="Settings to run", elem_id="ds-advice-candidates",
    )  # fmt: skip
    random = gr.Checkbox(
        False, label="Also draw as many at random, to compare", elem_id="ds-advice-random"
    )
    return [cache, of, keep, candidates, random]
