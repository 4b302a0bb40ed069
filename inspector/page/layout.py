"""The layout of the page: its tabs, and the options for launching it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware
from starlette.routing import Route

from inspector import static_files
from inspector.catalog import Catalog
from inspector.form.settings import Form
from inspector.handlers.api import add_api
from inspector.handlers.estimates import EstimateService
from inspector.handlers.page_handlers import Handlers
from inspector.handlers.slice_service import SliceService
from inspector.handlers.tasks.advice_api import add_advice_api
from inspector.handlers.tasks.batch_api import add_batch_api
from inspector.page.advisor_tab import build_advisor
from inspector.page.batch_tab import build_batch
from inspector.page.learn_tab import build_learn
from inspector.page.methods_tab import build_methods
from inspector.page.run_tab import FLAG, build_run
from inspector.page.theme import theme
from inspector.protocol import Batches, Searches, Session
from inspector.run_store import RUN_SLOTS
from inspector.server.bundle import bundle_route
from inspector.server.compressed_page import CompressedPage
from inspector.server.gate import MAX_EVENTS, Gate

THREADS = RUN_SLOTS + 64  # for everything beside the runs
QUEUE_PAUSE = 0.01  # seconds; with the millisecond of Gradio, an idle app uses 4 % of a processor


class Page(gr.Blocks):
    """The page, with what serves it beside Gradio.

    Attributes:
        routes: routes beside those of Gradio.
        gate: the middleware that checks all requests.
        trace_bytes: the size of the largest trace file.
        stop_runs: stops the runs of all visitors before their next step.
    """

    routes: tuple[Route, ...]
    gate: Middleware
    trace_bytes: int
    stop_runs: Callable[[], None]


def build(
    session: Session,
    examples: Path | None = None,
    batches: Batches | None = None,
    searches: Searches | None = None,
) -> Page:
    """Build the page.

    Args:
        session: the engine's session.
        examples: a folder with a recorded race, `a.npz` and `b.npz`, and the folders of the
            lessons and the methods' recorded runs. Without it there is no Learn tab.
        batches: the engine's batch service. Without it there is no tab of many prompts.
        searches: the engine's search service. Without it, or without `batches`, there is no tab of
            the advisor.
    """
    described, race = session.catalog(), session.default_race()
    form = Form(Catalog(described, race))
    demo = Page(
        title="Driftscope", fill_width=True, analytics_enabled=False, delete_cache=(600, 3600)
    )
    with demo:
        form.values_copy.render()
        form.values_given.render()
        handlers = Handlers(session, form)
        demo.routes = SliceService(handlers).routes()
        demo.trace_bytes = form.catalog.trace_bytes
        demo.stop_runs = handlers.controls.stop
        demo.gate = Middleware(Gate, trace_bytes=demo.trace_bytes, uploads=handlers.uploads)
        estimates = EstimateService(handlers)  # one: it counts the requests of page and API
        add_api(handlers, estimates)
        if batches is not None:
            add_batch_api(handlers, batches)
        if searches is not None:
            add_advice_api(handlers, searches)
        gr.HTML(
            html_template=static_files.text("title.html"), elem_id="ds-title", **static_files.BARE
        )
        with gr.Tabs(elem_id="ds-tabs") as tabs:
            with gr.Tab("Run", id="run"):
                run = build_run(demo, handlers, estimates, examples)
            if batches is not None:
                with gr.Tab("Many prompts", id="batch"):
                    build_batch(demo, tabs, handlers, batches, run)
            if batches is not None and searches is not None:
                with gr.Tab("Advisor", id="advice"):
                    build_advisor(demo, tabs, handlers, (searches, batches), run)
            if examples is not None:
                with gr.Tab("Learn", id="learn"):
                    build_learn(handlers, examples / "lessons")
                demo.load(first_tab, None, tabs, **FLAG)
            with gr.Tab("Methods", id="methods"):
                results = examples and examples.parent / "results" / "results.json"
                build_methods(described, race.a, results)
    demo.queue(max_size=MAX_EVENTS, default_concurrency_limit=16, api_open=False)
    demo._queue.sleep_when_free = QUEUE_PAUSE
    return demo


def first_tab(request: gr.Request) -> Any:
    """Select the Learn tab if the link names a lesson."""
    return gr.Tabs(selected="learn") if "lesson" in request.query_params else gr.skip()


def launch_options(page: Page) -> dict[str, Any]:
    """The arguments for `page.launch`: theme, style sheets, limits, middleware and routes."""
    return {
        "theme": theme(), "css": static_files.css(), "footer_links": ["api", "settings"],
        "ssr_mode": False, "run_history": False, "max_file_size": page.trace_bytes,
        "state_session_capacity": 64, "max_threads": THREADS,
        "app_kwargs": {
            "middleware": [page.gate, Middleware(CompressedPage)],
            "routes": [bundle_route(), *page.routes],
        },
    }  # fmt: skip
