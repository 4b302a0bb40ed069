"""What the tabs of batches and of searches share: their buttons and their listeners."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import gradio as gr
from gradio.components import Component

from inspector.form.settings import Form
from inspector.handlers.page_handlers import RUNS
from inspector.handlers.tasks.task_handlers import BUTTONS, TaskHandlers
from inspector.page.run_tab import FLAG, PRIVATE, RAW, RunTab

LABELS = {"estimate": "Estimate the time", "continue": "Continue", "stop": "Stop"}
STARTS = ("run", "estimate")
KEEP_JS = """(...values) => {
  try {
    sessionStorage.setItem('NAME', JSON.stringify(values));
  } catch {
    // Without a storage, or with a full one, the values last as long as the page.
  }
}"""
RESTORE_JS = """(...values) => {
  try {
    const kept = JSON.parse(sessionStorage.getItem('NAME'));
    return kept?.length === values.length ? kept : values;
  } catch {
    return values;
  }
}"""
REOPEN_JS = """() => {
  try {
    return [sessionStorage.getItem('driftscope-KIND') || ''];
  } catch {
    return [''];
  }
}"""


def build_buttons(tab: str, run: str) -> dict[str, gr.Button]:
    """The buttons of a tab by name; `run` is the label of the first, `tab` is in their ids."""
    labels = {"run": run, **LABELS}
    with gr.Row(elem_id=f"ds-{tab}-buttons"):
        return {
            name: gr.Button(
                labels[name], variant="primary" if name == "run" else "secondary",
                elem_id=f"ds-{tab}-{name}", interactive=name in STARTS, min_width=84,
            )
            for name in BUTTONS
        }  # fmt: skip


def wire_task(
    demo: gr.Blocks,
    tabs: gr.Tabs,
    form: Form,
    tasks: TaskHandlers[Any],
    shown: gr.HTML,
    keys: Mapping[str, gr.Button],
    starters: Mapping[str, Callable[..., Iterator[list[Any]]]],
    widgets: Sequence[Component],
    run: RunTab,
) -> None:
    """Add the listeners of a tab.

    `shown` has the document of the task. `starters` are the handlers of the buttons STARTS; they
    get `shown`, the values of `widgets` and those of the form. `run` takes the race of a click.
    """
    buttons = [*keys.values()]
    outputs = [shown, *buttons]
    begun = [
        keys[name]
        .click(**form.copy_listener)
        .then(
            starters[name], [shown, *widgets, form.values_copy], outputs, **RUNS, **RAW, **PRIVATE
        )
        for name in STARTS
    ]
    begun.append(keys["continue"].click(tasks.go_on, shown, outputs, **RUNS, **RAW, **PRIVATE))
    for event in begun:
        for follow in (event.then, event.failure):
            follow(tasks.idle, shown, buttons, **RAW, **FLAG)
    keys["stop"].click(tasks.stop, None, None, trigger_mode="multiple", **FLAG)
    _keep_values(demo, [keys[name] for name in STARTS], widgets, f"driftscope-{tasks.kind}-form")
    reopened = REOPEN_JS.replace("KIND", tasks.kind)
    demo.load(tasks.reopen, shown, outputs, js=reopened, **RAW, **FLAG)
    demo.unload(tasks.leave)
    filled = shown.race(tasks.fill, None, [tabs, form.values_given], **FLAG)
    filled.then(**form.fill_listener)
    run.follow(shown.race(tasks.race, None, run.outputs, **RUNS, **PRIVATE))


def _keep_values(
    demo: gr.Blocks, keys: Iterable[gr.Button], widgets: Sequence[Component], name: str
) -> None:
    """Keep the widgets' values in the browser's tab when one of `keys` is pressed.

    They are shown when the page is loaded again, as the task that they began is. `name` is their
    key in the storage.
    """
    for key in keys:
        key.click(None, [*widgets], None, js=KEEP_JS.replace("NAME", name), **FLAG)
    demo.load(None, [*widgets], [*widgets], js=RESTORE_JS.replace("NAME", name), **FLAG)
