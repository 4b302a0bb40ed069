"""The theorem widget: when parallel decoding provably gives the most likely joint result."""

from __future__ import annotations

import gradio as gr

from inspector import static_files


def build_theorem() -> None:
    """Build an interactive version of Fast-dLLM's Theorem 1 (arXiv 2505.22618, section 3.3).

    It has sliders for the number of tokens, epsilon and the strength of the dependency between
    the tokens. All numbers are computed in the browser. Call inside `gr.Blocks`.
    """
    gr.HTML(
        "", html_template=static_files.template("theorem"), elem_id="ds-theorem",
        **static_files.BARE | {"js_on_load": static_files.script("theorem")},
    )  # fmt: skip
