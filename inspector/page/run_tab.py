"""The Run tab: settings, buttons, both lanes with the inspector beneath, files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import gradio as gr
from gradio.components import Component
from gradio.events import Dependency

from engine.config.spec import MAX_SHOTS
from inspector import static_files
from inspector.form.model_picker import build_model_picker, refreshed_models
from inspector.form.presets import CHECK_CHOICE_JS, Presets
from inspector.form.settings import Form, build_lane, build_prompt, build_shared
from inspector.handlers.branching import Branching
from inspector.handlers.estimates import EstimateService
from inspector.handlers.file_service import RECORDED, FileService
from inspector.handlers.page_handlers import BUTTONS, RUNS, Handlers, buttons
from inspector.handlers.view_service import ViewService
from inspector.page_data import messages
from inspector.page_data.messages import to_json
from inspector.page_data.sizes import size
from inspector.protocol import LANES

# An empty list means no component. Without a list, Gradio's page keeps the hidden progress of every
# output of every listener, and with each message it updates them all, as `Form.values_copy` says.
PRIVATE: dict[str, Any] = {
    "api_visibility": "private", "show_progress": "hidden", "show_progress_on": [],
}  # fmt: skip
FLAG: dict[str, Any] = {**PRIVATE, "queue": False}
RAW: dict[str, Any] = {"preprocess": False}  # unchecked values: Form.race names what is wrong
SETTINGS_TERMS = (
    "lane", "step", "block", "cache", "unmasker", "confidence", "threshold", "guider",
    "end-of-text-rule", "row", "refresh", "recompute", "reuse", "frozen",
)  # fmt: skip
# The id of the race that is shown, in place of the value of the listener's only input.
SHOWN_RUN_JS = "() => document.querySelector('#ds-race .ds').dataset.run ?? ''"
LINK_NOT_READ = "The settings of the link could not be read. The defaults are shown."
UNPLANNED = "The server did not answer. Change a setting or load the page again."
OVER_JS = "() => { document.dispatchEvent(new CustomEvent('driftscope-over')); }"
IMPORT_OVER_JS = "() => { document.dispatchEvent(new CustomEvent('driftscope-import-over')); }"
CHANGED_JS = "() => { document.dispatchEvent(new CustomEvent('driftscope-changed')); }"
FILES_AT_ONCE = 2  # of exports, and of imports: each may take the memory of four large traces
WATCHED = 8  # widgets of a listener: Gradio's page reads all of them when one of them changes
LABELS = {"run": "Run", "pause": "Pause", "step": "Step", "resume": "Resume", "stop": "Stop"}
VARIANTS: dict[str, Literal["primary", "stop"]] = {"run": "primary", "stop": "stop"}


@dataclass(frozen=True)
class RunTab:
    """What other tabs use of this one: the race, its buttons, and what follows a run."""

    race: gr.HTML
    keys: Mapping[str, gr.Button]
    follow: Callable[..., None]

    @property
    def outputs(self) -> list[Component]:
        """The outputs of a listener that runs a race."""
        return [self.race, *self.keys.values()]


def build_run(
    demo: gr.Blocks, handlers: Handlers, estimates: EstimateService, examples: Path | None
) -> RunTab:
    """Build the components and listeners of the tab; `examples` is a folder of recorded races."""
    form, views, files = handlers.form, ViewService(handlers), FileService(handlers, examples)

    def estimate(asked: Any) -> str:
        return estimates.page(asked)

    plan = gr.HTML(
        "", html_template=static_files.text("plan.html"), elem_id="ds-plan",
        server_functions=[estimate],
        **static_files.BARE | {"js_on_load": static_files.script("plan", ("changed",))},
    )  # fmt: skip
    presets, drawn, example = _settings(form, handlers)
    form.values_copy.value = [widget.value for widget in form.inputs]
    keys = _buttons()
    recorded = _recorded(files)

    def replay(run_id: Any) -> str:
        return handlers.replay(run_id)

    def news(asked: Any) -> str:
        return handlers.news(asked)

    def view(asked: Any) -> str:
        return views.document(asked)

    race = gr.HTML(
        handlers.first_view(examples), html_template=static_files.template("race"),
        elem_id="ds-race", server_functions=[replay, news, view],
        **static_files.BARE | {"js_on_load": static_files.script("race", ("record", "branch"))},
    )  # fmt: skip
    given, imported = _files(files, race, handlers.form.catalog.trace_bytes)
    recorded.input(files.choose_recorded, recorded, [race, recorded], **RAW, **FLAG)
    linked = demo.load(files.show_linked, None, [race, recorded], **FLAG)
    changed, planned = _wire_settings(linked, handlers, plan, race, keys["run"])
    _wire_presets(form, presets, changed)
    renewed = _renewing(handlers)
    demo.load(**renewed)
    failed = planned | {"fn": plan_after_failure(handlers), "outputs": [plan, *keys.values()]}
    tab = RunTab(race, keys, partial(_follow, views, race, keys, planned, failed, renewed))
    _wire_run(demo, handlers, tab)
    tab.follow(imported.then(files.run_card, given, tab.outputs, **RUNS, **PRIVATE), held=False)
    recording = race.record(
        views.record, None, [race, *keys.values()],
        **RUNS, **PRIVATE,
    )  # fmt: skip
    _once_over(recording, planned, failed)
    race.branch(**form.copy_listener)  # a listener after it by `then` would get no event data
    branch = race.branch(
        Branching(handlers).branch, form.values_copy, [race, *keys.values()],
        **RUNS, **RAW, **PRIVATE,
    )  # fmt: skip
    _once_over(branch, planned, failed).then(**renewed)
    block = form.widgets["block_length"]
    fitted = [form.widgets[name] for name in ("prompt", "gen_length", "a.steps", "b.steps")]
    plan.click(handlers.new_problem, [*drawn, block], fitted, **RAW, **FLAG)
    example.input(handlers.example, [example, block], fitted, **RAW, **FLAG)
    return tab


def _buttons() -> dict[str, gr.Button]:
    with gr.Row(elem_id="ds-buttons"):
        return {
            name: gr.Button(
                LABELS[name], variant=VARIANTS.get(name, "secondary"),
                elem_id=f"ds-{name}", interactive=False, min_width=84,
            )
            for name in BUTTONS  # the first plan enables Run
        }  # fmt: skip


def _settings(form: Form, handlers: Handlers) -> tuple[gr.HTML, list[Component], gr.Dropdown]:
    with gr.Accordion("Settings", open=False, elem_id="ds-settings"):
        terms = static_files.term_links(SETTINGS_TERMS)
        gr.HTML(f'<p class="ds-terms">Terms used below: {terms}.</p>', **static_files.BARE)
        presets = build_model_picker(form)
        with gr.Row():
            with gr.Column(scale=2, min_width=300):
                drawn, example = _problem(form, handlers)
            with gr.Column(scale=1, min_width=260):
                gr.Markdown("## Both lanes")
                build_shared(form)
            for lane in LANES:
                with gr.Column(scale=1, min_width=260):
                    build_lane(form, lane)
    return presets, drawn, example


def _problem(form: Form, handlers: Handlers) -> tuple[list[Component], gr.Dropdown]:
    """The settings of a new problem (worked examples, family) and the list of examples."""
    example = gr.Dropdown(
        [row["label"] for row in handlers.session.examples()],
        value=None, label="Examples", elem_id="ds-example",
    )  # fmt: skip
    build_prompt(form)
    _image(form, handlers)
    with gr.Row():
        shots = gr.Slider(
            0, MAX_SHOTS, handlers.session.default_shots(), step=1, elem_id="ds-shots",
            label="Worked examples in a new problem", min_width=160,
        )  # fmt: skip
        families = handlers.session.families(form.catalog.default.a.model)
        family = gr.Dropdown(
            families, value=families[0][1], label="Family of a new problem", elem_id="ds-family",
            min_width=160, visible=len(families) > 1,
        )  # fmt: skip
    model, offered = form.widgets["model"], partial(handlers.offer_families, hidden=True)
    model.change(offered, [model, family], family, **RAW, **FLAG)  # type: ignore[attr-defined]
    return [shots, family], example


def _image(form: Form, handlers: Handlers) -> None:
    """The upload of an image, shown for models that take one, and the images added."""
    offered = handlers.session.takes_images(form.catalog.default.a.model)
    with gr.Column(visible=offered, elem_id="ds-image-box") as box:
        upload = gr.File(
            label=f"Image, at most {size(form.catalog.image_bytes)}",
            file_types=["image"], file_count="multiple", elem_id="ds-image", height=150,
        )  # fmt: skip
        drawn = gr.Button("Use the example image", elem_id="ds-image-example", size="sm")
    shown = gr.HTML("", elem_id="ds-image-shown", **static_files.BARE)
    remove = gr.Button("Remove the image", elem_id="ds-image-remove", size="sm", visible=False)
    names, model = form.widgets["images"], form.widgets["model"]
    upload.upload(handlers.take_images, [upload, names], [names, shown, upload], **FLAG)
    added = drawn.click(handlers.example_image, None, names, **FLAG)
    remove.click(lambda: "", None, names, **FLAG)
    changes = [names.change, model.change]  # type: ignore[attr-defined]
    show = {
        "fn": handlers.show_images, "inputs": [model, names], "outputs": [box, shown, remove],
    }  # fmt: skip
    gr.on(changes, trigger_mode="always_last", **show, **RAW, **FLAG)
    added.then(**show, **RAW, **FLAG)  # the name is as before if a link named it: no change


def _recorded(files: FileService) -> gr.Dropdown:
    return gr.Dropdown(
        [("–", ""), *files.recorded()], value="", label="Recorded runs", info=RECORDED,
        elem_id="ds-recorded", visible=bool(files.recorded()),
    )  # fmt: skip


def _files(files: FileService, race: gr.HTML, most: int) -> tuple[gr.File, Dependency]:
    """The upload of files to import, and the event of an import.

    A run card runs after it: an import is refused while a run of the visitor goes on.
    """
    with gr.Accordion("Export and import", open=False, elem_id="ds-files"), gr.Row():
        with gr.Column(min_width=280):
            gr.Markdown(
                "Save the last race as files. They contain everything shown above and can be "
                "viewed without a model."
            )
            ready = gr.Button("Prepare files", elem_id="ds-export")
            made = gr.File(label="Files", file_count="multiple", interactive=False, visible=False)
            made.GRADIO_CACHE = str(files.folder)  # no second copy beside the uploads
            said = note("ds-export-note")
        with gr.Column(min_width=280):
            gr.Markdown(
                "View one trace, or two side by side, each with its `-recorded` file if there is "
                f"one. A file may have at most {size(most)}. Nothing is computed. Runs of other "
                "engines open too: as `driftscope-run` JSON, d3LLM trajectories or pages of "
                "dLLM-RL's trace viewer. The race of a run card runs again."
            )
            given = gr.File(
                label="Traces, runs of other engines and run cards (.npz, .json or .html)",
                file_count="multiple",
                file_types=[".npz", ".json", ".html"], elem_id="ds-import",
            )  # fmt: skip
            told = note("ds-import-note")

    def export(request: gr.Request, run_id: Any) -> tuple[Any, str]:
        paths, message = files.export(request, run_id)
        return gr.File(paths, visible=paths is not None), message

    few: dict[str, Any] = {"concurrency_limit": FILES_AT_ONCE, **PRIVATE}
    ready.click(export, ready, [made, said], js=SHOWN_RUN_JS, **RAW, **few)
    return given, given.upload(files.import_files, given, [race, told, given], **few)


def note(name: str) -> gr.HTML:
    """An element with the id `name` for a note, which screen readers tell when it changes."""
    return gr.HTML(
        "", html_template=static_files.text("note.html"), elem_id=name,
        **static_files.BARE | {"js_on_load": static_files.script("note")},
    )  # fmt: skip


def _wire_settings(
    linked: Dependency, handlers: Handlers, plan: gr.HTML, race: gr.HTML, run: gr.Button
) -> tuple[Dependency, dict[str, Any]]:
    """Add the listeners of the form.

    They begin after `linked`, which also writes `race`: of two values at once the page takes one.

    Returns the event of a change, after which `values_copy` is up to date, and the listener
    arguments that update the plan.

    The first plan waits for the settings of a link, so that Run cannot start the defaults instead.
    """
    form = handlers.form
    planned = {"fn": handlers.plan, "inputs": form.values_copy, "outputs": [plan, run]} | RAW | FLAG
    restored = linked.then(handlers.restore, None, [race, form.values_given], **FLAG)
    unread = messages.notice("failed", LINK_NOT_READ)
    restored.failure(None, None, race, js=f"() => {json.dumps(unread)}", **FLAG)
    for follow in (restored.then(**form.fill_listener).then, restored.failure):
        _then_plan(follow, planned)
    for start in range(0, len(form.inputs), WATCHED):
        _on_change(form.inputs[start : start + WATCHED], {"fn": None, "js": CHANGED_JS} | FLAG)
    changed = plan.changed(**form.copy_listener)  # once for changes that come together: see plan.ts
    _then_plan(partial(changed.then, trigger_mode="always_last"), planned)
    for lane in LANES:
        chosen = [form.widgets[f"{lane}.unmasker"], form.widgets[f"{lane}.cache"]]
        shown = [group for (owner, _, _), group in form.groups.items() if owner == lane]
        outputs = [*shown, form.widgets[f"{lane}.steps"]]
        shape = {"fn": partial(form.lane_updates, lane), "inputs": chosen, "outputs": outputs}
        _on_change(chosen, shape | RAW | FLAG)
    return changed, planned


def _then_plan(follow: Callable[..., Dependency], planned: dict[str, Any]) -> Dependency:
    """Update the plan by `follow`, as `event.then`; if that fails, the plan says so."""
    document = to_json({"ok": False, "error": UNPLANNED})
    shown = follow(**planned)
    shown.failure(None, None, planned["outputs"][0], js=f"() => {json.dumps(document)}", **FLAG)
    return shown


def _wire_presets(form: Form, offered: gr.HTML, changed: Dependency) -> None:
    """Add the listeners of the presets; `changed` is the event of a change of the form.

    A chosen preset fills the form. Choosing another model, or changing a setting that the preset
    gave, clears the choice. Settings that another model's attention rules out are replaced.
    """
    model, every = form.widgets["model"], {"trigger_mode": "multiple", **RAW, **FLAG}
    presets = Presets(form)
    outputs = [offered, form.values_given]
    renewed = model.change(**form.copy_listener)  # type: ignore[attr-defined]
    fitted = renewed.then(
        presets.fit, [model, form.values_copy], outputs, trigger_mode="always_last", **RAW, **FLAG
    )
    for event in (fitted, offered.take(presets.take, model, outputs, **every)):
        event.then(**form.fill_listener)
    given = [offered, form.values_given, form.values_copy]
    changed.then(None, given, offered, js=CHECK_CHOICE_JS, **every)


def _on_change(widgets: list[Component], listener: dict[str, Any]) -> Dependency:
    """Call a listener when one of the widgets changes, by hand or by a handler.

    A listener with a function on the server is called once more after its last change.
    """
    changes = [widget.change for widget in widgets]  # type: ignore[attr-defined]
    return gr.on(changes, trigger_mode="always_last", **listener)


def _wire_run(demo: gr.Blocks, handlers: Handlers, tab: RunTab) -> None:
    form = handlers.form
    run = tab.keys["run"].click(**form.copy_listener)
    run = run.then(handlers.run, form.values_copy, tab.outputs, **RUNS, **RAW, **PRIVATE)
    tab.follow(run)
    for name in BUTTONS[1:]:
        tab.keys[name].click(handlers.flag(name), None, None, trigger_mode="multiple", **FLAG)
    demo.unload(handlers.leave)


def _follow(
    views: ViewService,
    race: gr.HTML,
    keys: dict[str, gr.Button],
    planned: dict[str, Any],
    failed: dict[str, Any],
    renewed: dict[str, Any],
    run: Dependency,
    held: bool = True,
) -> None:
    """Record a short race after its run, and then enable the buttons; see `_once_over`."""
    recording = run.then(
        views.record_short_run, None, [race, *keys.values()],
        **RUNS, **PRIVATE,
    )  # fmt: skip
    _once_failed(run, failed, held)
    _once_over(recording, planned, failed, held).then(**renewed)


def _renewing(handlers: Handlers) -> dict[str, Any]:
    """Listener arguments that update the list of models after a race."""

    def renewed() -> Any:
        return refreshed_models(handlers.session)

    return {"fn": renewed, "outputs": [handlers.form.widgets["model"]], **FLAG}


def plan_after_failure(handlers: Handlers) -> Callable[..., list[Any]]:
    """A handler that updates the plan and all buttons after a run, recording or branch failed.

    What failed has sent no last message, which would disable Pause, Step, Resume and Stop. If
    another run of the visitor goes on, they stay as they are.
    """

    def plan(request: gr.Request, values: Any) -> list[Any]:
        updates = handlers.plan(request, values)
        live = handlers.is_live(request)
        return [*updates, *(gr.skip() if live else button for button in buttons("over")[1:])]

    return plan


def _once_over(
    event: Dependency, planned: dict[str, Any], failed: dict[str, Any], held: bool = True
) -> Dependency:
    """Enable the page's buttons when an event is over, and not before.

    Gradio ignores a second click on a button while its event is running, and the event runs until
    after its last message. So Run is enabled by the update of the plan that follows the event, and
    the buttons in the race component by `OVER_JS`.

    `held` tells whether the race component may hold its buttons for the event. It does not for an
    import, which comes also while another run holds them. `failed` are the listener arguments that
    update the plan if the event fails.
    """
    event.then(None, js=OVER_JS if held else IMPORT_OVER_JS, **FLAG)
    _once_failed(event, failed, held)
    return _then_plan(event.then, planned)


def _once_failed(event: Dependency, failed: dict[str, Any], held: bool) -> None:
    """Enable the page's buttons when an event has failed, as `_once_over`."""
    event.failure(None, js=OVER_JS if held else IMPORT_OVER_JS, **FLAG)
    _then_plan(event.failure, failed)
