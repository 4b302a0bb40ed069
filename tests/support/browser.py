"""The app in a subprocess, as the tests of the API and of the page start it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

ROOT = Path(__file__).parents[2]
PROMPT = "Nuts cost 9 dollars each. Lily buys 5 nuts. How much does she pay?"
SMALL = {
    "prompt": PROMPT, "gen_length": "32", "block_length": "16", "a.steps": "32",
    "b.unmasker": "threshold", "b.cache": "dual", "b.threshold.threshold": "0.9",
}  # fmt: skip
FINAL = ("done", "stopped", "failed")
LONG = {
    "gen_length": "512", "block_length": "32", "a.steps": "512",
    "b.unmasker": "quota", "b.cache": "none", "b.steps": "512",
}  # fmt: skip


@dataclass
class App:
    """A running app: its address, the file that takes its log and its process."""

    url: str
    log: Path
    pid: int = 0

    def held(self) -> int:
        """Megabytes that the process holds in memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if "VmRSS" in line).split()[1]) // 1024

    def children(self) -> list[int]:
        """The processes that it has started and that still are."""
        return [
            int(found)
            for found in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        ]

    def runs(self) -> bool:
        """Whether the process has not ended."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"

    def kill(self) -> None:
        """End it as `kill -9` does."""
        os.kill(self.pid, signal.SIGKILL)

    def link(self, **changes: str) -> str:
        """The page with the small race's settings, and `changes`."""
        return f"{self.url}/?{urlencode(SMALL | changes)}"


@contextmanager
def running_app(
    folder: Path, root: Path = ROOT, command: tuple[str, ...] = ("app.py",), **env: str
) -> Iterator[App]:
    """Start app.py of a checkout, or another script, on a free port and wait until it serves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    app = App(f"http://127.0.0.1:{port}", folder / "app.log")
    settings = {"GRADIO_SERVER_PORT": str(port), "GRADIO_ANALYTICS_ENABLED": "False"}
    threads = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with app.log.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=root, stdout=log, stderr=subprocess.STDOUT,
            env=os.environ | threads | settings | env,
        )  # fmt: skip
    app.pid = process.pid
    try:
        with _ending_with(process):
            _wait(app, process)
            yield app
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def _ending_with(process: subprocess.Popen) -> Iterator[None]:
    """End a process at once, and then this one, when this one is asked to end."""

    def end(number: int, frame: object) -> None:
        process.terminate()
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _wait(app: App, process: subprocess.Popen) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(app.url + "/config", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the app did not start:\n" + app.log.read_text()[-2000:])
