"""Widgets whose values stay when the page is loaded again, as the task that they began does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import gradio as gr
from gradio.components import Component

from inspector.page.run_tab import FLAG

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


def keep_values(
    demo: gr.Blocks, keys: Iterable[gr.Button], widgets: Sequence[Component], name: str
) -> None:
    """Keep the widgets' values in the browser's tab when one of `keys` is pressed.

    They are shown when the page is loaded again. `name` is their key in the storage.
    """
    for key in keys:
        key.click(None, [*widgets], None, js=KEEP_JS.replace("NAME", name), **FLAG)
    demo.load(None, [*widgets], [*widgets], js=RESTORE_JS.replace("NAME", name), **FLAG)
