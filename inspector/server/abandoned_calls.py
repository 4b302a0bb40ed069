"""Stops a call of the API whose caller does not read its stream."""

from __future__ import annotations

import gradio as gr
from gradio.context import LocalContext

MOST_UNREAD = 60  # messages, those of half a minute


def unread_messages() -> int:
    """How many messages Gradio holds for the caller of this listener; 0 outside of a listener.

    Gradio runs a listener whether or not its caller asks for the stream, and to the end.
    """
    blocks, request = LocalContext.blocks.get(None), LocalContext.request.get(None)
    if blocks is None or request is None:
        return 0
    held = blocks._queue.pending_messages_per_session.get(request.session_hash)
    return 0 if held is None else int(held.qsize())


def check_stream_is_read() -> None:
    """Raise gr.Error if nobody reads the stream of this call."""
    if unread_messages() > MOST_UNREAD:
        raise gr.Error("call: nobody reads its stream; it was stopped", print_exception=False)
