"""A local server with the API of the Hugging Face Hub, for folders of models."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

import engine.models.loading.hub
from engine.config.spec import RunSpec
from engine.models.loading.hub import Hub

NAME = "own/micro"
SPEC = RunSpec(model=NAME, prompt="Hello", gen_length=8, block_length=8, steps=8)
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Stub:
    """Models that are served, and `requests`, the (method, path) of every request.

    `errors` holds a status and the Hub's error code for a model, `commit` is the current one.
    Weights are sent after `delay` seconds and after `release` is set; the file `truncated` is sent
    incomplete.
    """

    def __init__(self, models: dict[str, Path]) -> None:
        self.models, self.errors, self.requests, self.commit = models, {}, [], COMMIT
        self.delay, self.truncated, self.release = 0.0, "", threading.Event()
        self.release.set()
        self.endpoint = ""

    def downloads(self) -> list[str]:
        """Names of the files that were downloaded."""
        return [path.rsplit("/", 1)[1] for method, path in self.requests
                if method == "GET" and "/resolve/" in path]  # fmt: skip


@contextmanager
def serving(models: dict[str, Path]) -> Iterator[Stub]:
    """Serve models by name until the block ends."""
    stub = Stub(models)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads, server.stub = True, stub
    stub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        stub.release.set()
        server.shutdown()
        server.server_close()


@pytest.fixture
def online(monkeypatch):
    """Allow requests to the stub, and report progress often."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(engine.models.loading.hub, "POLL_SECONDS", 0.01)


@pytest.fixture
def stub(origin):
    """A Hub with one model, the folder `origin` of the test."""
    with serving({NAME: origin}) as stub:
        yield stub


@pytest.fixture
def cache(tmp_path):
    """The folder of downloads."""
    return tmp_path / "cache"


def cached(folder: Path, cache: Path) -> Path:
    """Put a model into a cache in the layout of huggingface_hub; returns its snapshot."""
    home = cache / f"models--{NAME.replace('/', '--')}"
    snapshot = home / "snapshots" / COMMIT
    for part in (home / "blobs", home / "refs", snapshot):
        part.mkdir(parents=True, exist_ok=True)
    (home / "refs" / "main").write_text(COMMIT)
    for path in files_of(folder):
        shutil.copyfile(path, home / "blobs" / etag(path))
        (snapshot / path.name).symlink_to(f"../../blobs/{etag(path)}")
    return snapshot


def offline(cache: Path) -> Hub:
    """A hub with a cache and an unreachable endpoint."""
    return Hub(cache, "http://127.0.0.1:9")


def etag(path: Path) -> str:
    """The name of a file's blob in a cache."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files_of(folder: Path) -> list[Path]:
    """The files of a model, including subfolders."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body would wait 40 ms for the receipt of the headers

    @property
    def stub(self):
        return self.server.stub

    def log_message(self, *given):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.split("?")[0]
        self.stub.requests.append((self.command, path))
        parts = path.strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        owner, name, *rest = parts[2:] if api else parts
        model = f"{owner}/{name}"
        if model in self.stub.errors or model not in self.stub.models:
            status, code = self.stub.errors.get(model, (404, "RepoNotFound"))
            self.answer(status, b"{}", {"X-Error-Code": code})
        elif api and rest[:1] == ["tree"]:
            self.answer(200, json.dumps(self.tree(model)).encode())
        elif api:
            self.answer(200, json.dumps(self.model_info(model)).encode())
        else:
            self.commit = rest[1] if len(rest[1]) == 40 else self.stub.commit
            self.file(self.stub.models[model], "/".join(rest[2:]))

    def model_info(self, model):
        folder = self.stub.models[model]
        rows = [
            {"rfilename": str(p.relative_to(folder)), "size": p.stat().st_size,
             "blobId": etag(p)}
            for p in files_of(folder)
        ]  # fmt: skip
        return {"id": model, "modelId": model, "sha": self.stub.commit, "siblings": rows}

    def tree(self, model):
        folder = self.stub.models[model]
        return [
            {"type": "file", "path": str(p.relative_to(folder)), "size": p.stat().st_size,
             "oid": etag(p)}
            for p in files_of(folder)
        ]  # fmt: skip

    def file(self, folder, name):
        path = folder / name
        if not path.is_file():
            self.answer(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": self.commit})
            return
        data = path.read_bytes()
        headers = {"ETag": f'"{etag(path)}"', "X-Repo-Commit": self.commit,
                 "X-Linked-Size": str(len(data))}  # fmt: skip
        if self.command == "GET" and name.endswith(".safetensors"):
            time.sleep(self.stub.delay)
            self.stub.release.wait(20)
            data = data[:-7] if name == self.stub.truncated else data
        self.answer(200, data, headers)

    def answer(self, status, body, headers=None):
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
