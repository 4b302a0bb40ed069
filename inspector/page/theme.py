"""The page's Gradio theme: fonts and colours."""

from __future__ import annotations

import gradio as gr

FONT = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")


def theme() -> gr.themes.Base:
    """Gradio's base theme with local fonts and a green with enough contrast on white."""
    made = gr.themes.Base(
        primary_hue="emerald", neutral_hue="slate", radius_size="md", font=FONT, font_mono=MONO
    )
    return made.set(
        button_primary_background_fill="#0b6e54",
        button_primary_background_fill_hover="#095b46",
        button_primary_background_fill_dark="#0b6e54",
        button_primary_background_fill_hover_dark="#0d8466",
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark="#ffffff",
        body_text_color_subdued="#4d5867",
        body_text_color_subdued_dark="#b3bdca",
    )
