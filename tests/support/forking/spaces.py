"""A `spaces` in the shape of the real one: the task runs in a forked process that pickles all.

Only a test's process that puts this folder on its path imports it under that name.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import sys
from functools import wraps
from pathlib import Path

import gradio as gr

if __name__ == "spaces" and "torch" in sys.modules:
    raise ImportError("torch was imported before spaces, which changes it")
CONTEXT = multiprocessing.get_context("fork")
LOG = os.environ.get("FORKING_LOG")
LEFT = int(os.environ.get("FORKING_SECONDS", "100000"))


def gradio_auto_wrap(task):
    return task


def note(**said):
    if LOG:
        with Path(LOG).open("a") as log:
            log.write(json.dumps(said) + "\n")


def GPU(task=None, *, duration=None, size=None, left=LEFT):
    if task is None:
        return lambda given: GPU(given, duration=duration, size=size, left=left)

    @wraps(task)
    def handler(*args, **kwargs):
        asked = duration(*args, **kwargs) if callable(duration) else duration
        note(asked=asked, parent=os.getpid())
        if asked > left:
            said = (
                f"You have exceeded your free ZeroGPU quota ({asked}s requested vs. {left}s left). "
            )
            raise gr.Error(said, title="ZeroGPU quota exceeded", print_exception=False)
        given, results, stop = CONTEXT.SimpleQueue(), CONTEXT.SimpleQueue(), CONTEXT.Event()
        worker = CONTEXT.Process(target=work, args=(task, given, results, stop), daemon=True)
        worker.start()
        given.put((args, kwargs))
        try:
            while (found := results.get())[0] == "yield":
                yield pickle.loads(found[1])
        finally:
            stop.set()
            worker.join(20)
            note(worker=worker.pid, exit=worker.exitcode)
        if found[0] == "error":
            raise gr.Error(found[1], title="ZeroGPU worker error", print_exception=False)

    return handler


def work(task, given, results, stop):
    args, kwargs = given.get()
    stream = task(*args, **kwargs)
    try:
        for item in stream:
            if stop.is_set():
                stream.close()
                break
            results.put(("yield", pickle.dumps(item)))
    except Exception as error:
        results.put(("error", type(error).__name__))
    else:
        results.put(("end", None))
