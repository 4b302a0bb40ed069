"""A session that has big models: listed, fetched and loaded in name, run as the embedded one."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace

from engine.config.spec import RaceSpec
from engine.core.events import RunFinished, Waiting
from engine.serve.session import EMPTY_CANVAS
from inspector.page.layout import build, launch_options

GB = 10**9
BIG, DREAM, HUGE = "owner/big-8B", "owner/dream-7B", "owner/huge-70B"
PRESETS = {
    BIG: [
        ("demo", "Demo", "app.py", {"gen_length": 128, "block_length": 32, "steps": 128}),
        ("dllm_cache", "dLLM-Cache, GSM8K", "paper, table 1", {
            "gen_length": 256, "block_length": 8, "steps": 256, "cache": "dllm_cache",
            "dllm_cache.prompt_interval": 50, "dtype": "bfloat16",
        }),
        ("dual", "Fast-dLLM, dual", "paper, table 2", {
            "gen_length": 64, "block_length": 16, "unmasker": "threshold", "cache": "dual",
            "threshold.threshold": 0.8, "temperature": 0.2, "eos": "fill_safe",
        }),
    ],
    DREAM: [
        ("cached", "Dream with dLLM-Cache", "paper, table 3", {
            "gen_length": 64, "block_length": 64, "steps": 32, "unmasker": "dream",
            "dream.alg": "entropy", "cache": "dllm_cache",
        }),
    ],
    HUGE: [],
}  # fmt: skip


def row(name: str, **changes) -> dict:
    presets = [dict(zip(("name", "title", "source", "fields"), one, strict=True))
               for one in PRESETS.get(name, [])]  # fmt: skip
    base = {
        "name": name, "title": name, "family": "llada", "max_length": 4096, "licence": "MIT",
        "parameters": 8_015_581_184, "embedded": False, "available": False, "registered": True,
        "fetch_bytes": 16 * GB, "presets": presets, "attention": "full", "block_sizes": [],
    }  # fmt: skip
    return base | changes


class Session:
    """The real session `inner`, and three registered models that are in no folder.

    Each of their races, and each recording, waits as for a download; at `held_at` for the gate.
    """

    def __init__(self, inner, any_model=True, devices=("cpu", "cuda", "auto")):
        self.inner, self.any_model, self.devices = inner, any_model, list(devices)
        self.waits, self.fault, self.fetched = download(), "", set()
        self.held_at, self.gate = -1, threading.Event()

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def catalog(self):
        found = self.inner.catalog()
        own = [row(name, available=name in self.fetched) for name in PRESETS]
        own[-1]["fetch_bytes"] = 140 * GB
        return found | {
            "models": [*found["models"], *own], "any_model": self.any_model,
            "devices": self.devices,
        }  # fmt: skip

    def plan(self, spec):
        if spec.model == HUGE:
            raise ValueError(
                "model: needs 140 GB, 80 GB are free; choose bfloat16 or a smaller one"
            )
        found = self.inner.plan(self._small(spec))
        if spec.model in PRESETS:
            found |= {
                "weights_bytes": 16 * GB, "memory_bytes": 16 * GB + 3 * GB // 10,
                "kept_bytes": 3 * GB // 10, "free_bytes": 80 * GB,
                "fetch_bytes": 0 if spec.model in self.fetched else 16 * GB,
            }  # fmt: skip
        return found

    def race(self, race, control=None, parents=None, images=None):
        if race.a.model in PRESETS or race.a.record != "off":
            for i, wait in enumerate(self.waits):
                yield "a", wait
                while i == self.held_at and not self.gate.wait(0.05) and not stopped(control):
                    yield "a", wait
                if self.fault or stopped(control):
                    yield from self._ended()
                    return
            self.fetched.add(race.a.model)
        small = RaceSpec(self._small(race.a), self._small(race.b))
        yield from self.inner.race(small, control, parents, images)

    def _ended(self):
        reason = "failed" if self.fault else "stopped"
        for lane in "ab":
            yield lane, RunFinished(reason, EMPTY_CANVAS, message=self.fault)

    def _small(self, spec):
        if spec.model not in PRESETS:
            return spec
        shown = self.inner.catalog()["models"][0]["name"]
        return replace(spec, model=shown, dtype="float32", device="cpu")


def stopped(control) -> bool:
    return control is not None and control.state == "stopped"


def download(name=BIG, parts=8):
    """What a session says while it fetches 16 GB and then loads them."""
    shares = [16 * GB * i // parts for i in range(1, parts + 1)]
    return [
        *(Waiting("fetching", done, 16 * GB, name) for done in shares),
        *(Waiting("loading", done, 16 * GB, name) for done in shares),
    ]


@contextmanager
def serving(session, folder=None, batches=None):
    """The page on a session, in this process; gives its address."""
    demo = build(session, folder, batches)
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, **launch_options(demo))
    try:
        yield url.rstrip("/")
    finally:
        demo.close()
