"""Hostile input: `python -m tests.proofs.fuzz --count 10000`.

Specs, links and traces are checked in this process, requests against the app in a process of its
own (`fuzz_web`). Each must give a run, a view, or a refusal that names the field.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import fastapi
import gradio as gr
import numpy as np
import torch
from hypothesis import strategies as st

from app import Settings, make_session
from engine.config.spec import RaceSpec, RunSpec
from engine.core.events import RunFinished
from engine.core.files import ASSETS
from engine.trace.schema import SCHEMA
from engine.trace.trace import Trace
from inspector.files import export
from inspector.form.settings import Form
from inspector.handlers.page_handlers import Handlers
from inspector.page_data import messages
from inspector.slices.fields import Fields, SliceError
from inspector.slices.registry import cut
from inspector.views import registry
from tests.inspector.conftest import make_form
from tests.proofs.fuzz_web import over_http
from tests.proofs.slice_times import requests
from tests.support import looking
from tests.support.hostile import Failed, each, is_named, junk, links, specs
from tests.support.micro import write_checkpoint

MOST_FORWARDS = 32
SMALL = "micro"
CACHES = ("spa_cache", "dual", "dare_o", "dllm_cache", "none", "d2_cache")


class Fuzz:
    """The checks within this process; `tally` counts the outcomes."""

    def __init__(self, folder: Path) -> None:
        self.tally: Counter = Counter()
        small = write_checkpoint(folder / SMALL)
        self.session = make_session(Settings((small,), public=True, cache=folder / "hub"))
        self.form: Form = make_form(self.session)
        self.handlers = Handlers(self.session, self.form)
        self._folder = folder
        shape = {"model": SMALL, "prompt": "How many?", "gen_length": 16, "block_length": 8}
        shape |= {"steps": 8, "record": "probe", "probe_steps": 3}
        recorded = [RunSpec.from_dict(shape | {"cache": cache}) for cache in CACHES]
        self.traces = [looking.recorded(self.session, spec) for spec in recorded]
        self.traces.append(Trace.load(ASSETS / "examples" / "lessons" / "guided.npz"))

    def spec(self, document: dict) -> None:
        """A spec runs, or is refused with the name of a field."""
        try:
            spec = RunSpec.from_dict(document)
            plan = self.session.plan(spec)
        except ValueError as error:
            self._refused("spec", str(error), document)
            return
        if plan["fetch_bytes"] or plan["max_forwards"] > MOST_FORWARDS:
            self.tally["spec planned"] += 1
            return
        end = [event for event in self.session.run(spec) if isinstance(event, RunFinished)][-1]
        if end.reason == "failed":
            self._refused("spec", end.message, document)
        else:
            self.tally["spec run"] += 1

    def link(self, query: str) -> None:
        """A link fills the form with settings that can be planned, or is refused by name."""
        request = gr.Request(fastapi.Request(_scope(query)), session_hash="fuzz")
        notice, given = self.handlers.restore(request)
        if isinstance(notice, str):
            self._refused("link", json.loads(notice)["message"], query)
            return
        if given is None:
            self.tally["link without settings"] += 1
            return
        found, _ = self.handlers.plan(request, [value for (value,) in given])
        document = json.loads(found)
        if document["ok"]:
            RaceSpec.from_query(document["query"])
            self.tally["link taken"] += 1
        else:
            self._refused("link", document["error"], query)

    def trace(self, change: tuple) -> None:
        """A changed trace is drawn and written in every format, or is refused by name."""
        path = self._folder / "fuzz.npz"
        path.write_bytes(changed(self.traces[change[0]], change))
        try:
            record = export.read_race([path])
        except ValueError as error:
            self._refused("trace", str(error), change)
            return
        title = self.form.catalog.title
        messages.whole(record, title)
        trace = record.trace_for_views("a")
        assert trace is not None
        for name in registry.VIEWS:
            json.dumps(registry.draw(trace, name))
        self._cut(trace)
        if change[1] % 20 == 0:
            folder = self._folder / "out"
            folder.mkdir(exist_ok=True)
            export.write_race(record, folder, title)
        self.tally["trace drawn"] += 1

    def _cut(self, trace: Trace) -> None:
        """Every slice of a trace is cut, or refused by name."""
        arrays = trace.arrays()
        sizes = arrays["plan"].shape[1], trace.steps, len(arrays["canvas"])
        for asked in requests(*sizes):
            with suppress(SliceError):
                cut(trace, Fields({name: str(value) for name, value in asked.items()}))

    def _refused(self, kind: str, said: str, given: object) -> None:
        if not is_named(said):
            raise Failed(f"{kind}: {said!r} names no field; the input was {str(given)[:500]!r}")
        self.tally[f"{kind} refused"] += 1


def _scope(query: str) -> dict[str, object]:
    """The ASGI scope of a request with this query."""
    return {"type": "http", "headers": [], "query_string": query.encode("utf-8", "surrogatepass")}


def changes() -> st.SearchStrategy:
    """Changes of a trace: its index, a random number, the way, an array's name and a value."""
    names = sorted(SCHEMA)
    value = junk | st.lists(st.integers(-3, 3), max_size=4)
    number, way = st.integers(0, 2**31), st.sampled_from(WAYS)
    return st.tuples(st.integers(0, len(CACHES)), number, way, st.sampled_from(names), value)


WAYS = ("bytes", "cut", "value", "array", "shape", "meta", "spec", "model", "swap", "none")
META = ("reason", "texts", "metrics", "message", "facts", "guider", "environment", "version")
MODEL = (
    "name",
    "family",
    "layers",
    "vocab_size",
    "mask_id",
    "eos_id",
    "fill_id",
    "stop_ids",
    "logit_shift",
)


def changed(trace: Trace, change: tuple) -> bytes:
    """The file of a trace with one change."""
    _, number, way, name, value = change
    dice, arrays = np.random.default_rng(number), dict(trace.arrays())
    meta = json.loads(json.dumps(trace.meta))
    if way == "value" and arrays[name].size:
        flat = arrays[name].copy().ravel()
        flat[dice.integers(flat.size)] = dice.integers(0, 2**31) % (1 + dice.integers(300))
        arrays[name] = flat.reshape(arrays[name].shape)
    elif way == "array":
        shape = dice.integers(0, 4, arrays[name].ndim)
        arrays[name] = dice.integers(0, 2, shape).astype(arrays[name].dtype)
    elif way == "shape" and arrays[name].ndim:
        arrays[name] = arrays[name][: dice.integers(len(arrays[name]) + 1)]
    elif way == "swap" and len(arrays[name]):
        arrays[name] = dice.permutation(arrays[name])
    elif way == "meta":
        meta[META[number % len(META)]] = value
    elif way == "spec":
        keys = [*meta["spec"], "odd"]
        meta["spec"][keys[number % len(keys)]] = value
    elif way == "model":
        meta["model"][MODEL[number % len(MODEL)]] = value
    return _written(meta, arrays, way, dice)


def _written(meta: dict, arrays: dict, way: str, dice: np.random.Generator) -> bytes:
    buffer = io.BytesIO()
    text = json.dumps(meta).encode()
    np.savez_compressed(buffer, meta=np.frombuffer(text, np.uint8), **arrays)
    data = bytearray(buffer.getvalue())
    if way == "bytes":
        for _ in range(dice.integers(1, 5)):
            data[dice.integers(len(data))] = dice.integers(256)
    return bytes(data[: dice.integers(len(data))] if way == "cut" else data)


def within(folder: Path, count: int) -> Counter:
    """Check specs, links and traces in this process; returns the outcomes."""
    fuzz = Fuzz(folder)
    each(count * 2 // 5, specs(SMALL), fuzz.spec)
    each(count // 5, links(SMALL), fuzz.link)
    each(count * 2 // 5, changes(), fuzz.trace)
    return fuzz.tally


def main() -> None:
    """Print the outcomes; exit with status 1 on a failure."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    count, began = parser.parse_args().count, time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        try:
            inside = count * 7 // 10
            tally = within(Path(name), inside) + over_http(Path(name), count - inside)
        except AssertionError as failure:
            print(f"failed: {failure}")
            sys.exit(1)
    for what, times in sorted(tally.items()):
        print(f"{what}: {times}")
    print(f"in all: {sum(tally.values())} in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
