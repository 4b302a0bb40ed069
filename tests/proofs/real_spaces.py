"""ZeroGPU with the real `spaces` package and no GPU: its decorator, worker and tensors.

`python -m tests.proofs.real_spaces` prints the results as JSON.

A local server replaces ZeroGPU's scheduler. The package patches torch so that there seems to be a
CUDA device; models are loaded to it, packed to disk and planned with, as on a Space. In the worker
the calls that need a GPU are replaced, so that the model runs on the CPU.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PROMPT = "Nuts cost 9 dollars each. Lily buys 5 nuts. How much does she pay?"
SHAPE = {"model": "tiny-llada", "prompt": PROMPT, "gen_length": 32, "block_length": 32, "steps": 32}
MISSING = ("_cuda_init", "_cuda_exchangeDevice", "_cuda_maybeExchangeDevice")
GRANTED = {"idle": True, "nvidiaIndex": 0, "nvidiaUUID": "GPU-0", "allowToken": "t"}


class Scheduler(ThreadingHTTPServer):
    """Answers as ZeroGPU's device API does; `left` seconds are granted, None: any number."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.calls, self.left = [], None


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *given):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        name = self.path.split("?")[0].strip("/")
        self.server.calls.append(name)
        code, body = 200, {}
        if name == "schedule" and self.server.left is None:
            body = GRANTED
        elif name == "schedule":
            code, body = 429, {"left": self.server.left, "wait": "PT1H"}
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def scheduling():
    server = Scheduler()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ |= {
        "SPACES_ZERO_GPU": "true", "SPACE_ID": "owner/name",
        "SPACES_ZERO_DEVICE_API_URL": f"http://127.0.0.1:{server.server_port}",
    }  # fmt: skip
    yield server
    server.shutdown()


def not_forked_badly():
    return False


def patched():
    """The package, imported where torch was built without CUDA: with the names it looks for."""
    import torch

    importlib.import_module("torch._inductor.utils")
    if torch.version.cuda is None:
        torch.version.cuda = "13.0"
        for name in MISSING:
            setattr(torch._C, name, lambda *given: 0)
        not_forked_badly.__module__ = "tests.proofs.real_spaces"
        sys.modules.setdefault("tests.proofs.real_spaces", sys.modules[__name__])
        torch.cuda._is_in_bad_fork = not_forked_badly
    return importlib.import_module("spaces")


def ended(session, race):
    """How both lanes ended, and the answers."""
    from engine.core.control import Control
    from engine.core.events import RunFinished

    ends = [e for _, e in session.race(race, Control()) if isinstance(e, RunFinished)]
    return [[end.reason, *end.texts, end.message] for end in ends]


def report(server):
    """What happens with a model on the pretended GPU, and with a race in the real worker."""
    spaces = patched()
    import app
    from engine.config.spec import RaceSpec, RunSpec
    from inspector.space.zero import SharedGpu, ZeroSession

    settings = app.Settings.of(os.environ | {"DRIFTSCOPE_PRELOAD": "tiny-llada"})
    session = app.make_session(settings)
    zero = app.shared(session, app.preload(session, settings), spaces.GPU)
    adapter = next(iter(session._models._loaded.values())).adapter
    found = {"devices": sorted({str(p.device) for p in adapter.parameters()})}
    zero_torch = importlib.import_module("spaces.zero.torch")
    found["packed"] = zero_torch.pack()
    on_gpu = RunSpec(**SHAPE, device="cuda", dtype="bfloat16")
    asked = []
    thread = threading.Thread(target=lambda: asked.append(zero.plan(on_gpu)["gpu_seconds"]))
    thread.start()
    thread.join()
    found["asked"] = asked
    zero_torch.init, zero_torch.move, zero_torch.size = (lambda *a, **k: 0,) * 3
    spec = RunSpec(**SHAPE)
    session._models.load(spec)
    gpu = SharedGpu(frozenset({("tiny-llada", "float32")}), 10**9, lambda s, p: 2.0, device="cpu")
    small = ZeroSession(session, gpu, spaces.GPU)
    race = RaceSpec(spec, spec)
    found["here"], found["worker"] = ended(session, race), ended(small, race)
    server.left = 3
    found["refused"] = ended(small, race)
    found["calls"] = server.calls
    return found


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    with scheduling() as server:
        sys.stdout.write(json.dumps(report(server)) + "\n")


if __name__ == "__main__":
    main()
