"""A Space is made by a plain push: the Hub's rule in a hook, and the app out of what it took."""

import io
import os
import re
import subprocess
import sys
import tarfile

import pytest
from gradio_client.exceptions import AppError

from inspector.space import __main__ as space
from inspector.space import publish
from tests.support.browser import PROMPT, running_app
from tests.support.micro import ROOT
from tests.support.web import program

MOST = 10 * 2**20
# Refuses what the Hub refuses, and more: any binary file, of whatever size, in any new commit.
HOOK = f"""#!{sys.executable}
import subprocess, sys
def git(*words, data=None):
    return subprocess.run(["git", *words], input=data, capture_output=True, check=True).stdout
new = sys.stdin.read().split()[1]
rows = git("rev-list", "--objects", new, "--not", "--all").decode().splitlines()
paths = dict(row.partition(" ")[::2] for row in rows)
stream = git("cat-file", "--batch", data="".join(name + chr(10) for name in paths).encode())
at = 0
while at < len(stream):
    head = stream[at:stream.index(b"\\n", at)]
    name, kind, size = head.decode().split()
    data = stream[at + len(head) + 1:][:int(size)]
    at += len(head) + int(size) + 2
    if kind == "blob" and (len(data) > {MOST} or b"\\0" in data):
        sys.exit("Your push was rejected because it contains binary files: " + paths[name])
"""


def git(*words, cwd=ROOT):
    quick = ("-c", "pack.window=0", "-c", "core.compression=0")  # what is pushed stays here
    return subprocess.run(["git", *quick, *words], cwd=cwd, capture_output=True, text=True)


def test_a_failure_of_git_is_told_without_a_traceback(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["space"])
    monkeypatch.setenv("GIT_DIR", os.devnull)  # as outside of a repository
    with pytest.raises(SystemExit, match=r"^error: git archive: .*not a git repository"):
        space.main()


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A bare repository that takes what the Hub takes."""
    folder = tmp_path_factory.mktemp("hub")
    git("init", "--bare", "-q", "-b", "main", str(folder))
    (folder / "hooks" / "pre-receive").write_text(HOOK)
    (folder / "hooks" / "pre-receive").chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def pushed(hub, tmp_path_factory):
    """A checkout of the Space for a shared GPU, as it was pushed."""
    ran = git("push", "--force", str(hub), f"{publish.commit('zero')}:refs/heads/main")
    assert ran.returncode == 0, ran.stderr
    folder = tmp_path_factory.mktemp("space") / "app"
    git("clone", "-q", str(hub), str(folder))
    return folder


def test_the_repository_itself_is_refused(hub):
    tree = git("rev-parse", "HEAD^{tree}").stdout.strip()
    alone = git("commit-tree", tree, "-m", "x").stdout.strip()  # the history would be refused too
    ran = git("push", str(hub), f"{alone}:refs/heads/other")
    assert ran.returncode != 0
    assert re.search(r"contains binary files: .*\.(npz|png|safetensors)", ran.stderr)


def test_the_branch_is_taken_and_holds_every_byte(pushed):
    assert git("rev-list", "--count", "HEAD", cwd=pushed).stdout.strip() == "1"
    publish.unpack(pushed / "assets")
    with tarfile.open(fileobj=io.BytesIO(publish.git("archive", "HEAD"))) as found:
        kept = {m.name: found.extractfile(m).read() for m in found if m.isfile()}
    kept = {
        name: data for name, data in kept.items()
        if name.startswith(publish.FOLDERS) and not name.endswith(".png")
        and not name.startswith("assets/training/")
    }  # fmt: skip
    assert len(kept) > 200
    for name, data in kept.items():
        assert (pushed / name).read_bytes() == data, name
    assert not (pushed / "tests").exists()
    assert not (pushed / "assets/training").exists()
    weights = pushed / "assets/models/tiny-llada/model.safetensors"
    before = weights.stat().st_mtime_ns
    publish.unpack(pushed / "assets")  # a second start writes nothing
    assert weights.stat().st_mtime_ns == before


def front(text):
    """The front matter as lines of text."""
    return text.split("---\n")[1]


def test_the_front_matter_is_that_of_the_hardware(pushed):
    text = (ROOT / "README.md").read_text("utf-8")
    own = front(text)
    for line in ("sdk: gradio", "app_file: app.py", "suggested_hardware: l40sx1", "license: mit",
                 "startup_duration_timeout: 1h", "preload_from_hub:"):  # fmt: skip
        assert f"\n{line}\n" in own
    pinned = re.search(r"sdk_version: (\d+\.\d+)\.", own).group(1)
    assert f"gradio>={pinned}," in (ROOT / "requirements.txt").read_text()
    lists = re.findall(r"(?:models|preload_from_hub):\n((?:- .*\n)+)", own)
    assert lists[0] == lists[1] == "".join(f"- {name}\n" for name in MODELS)
    assert len(re.search(r"short_description: (.*)", own).group(1)) <= 60
    cpu = publish.readme(text, "cpu")
    assert "suggested_hardware: cpu-basic\n" in front(cpu)
    assert "preload_from_hub" not in front(cpu)
    assert cpu.split("---\n", 2)[2] == text.split("---\n", 2)[2]
    assert publish.readme(text, "gpu") == text
    assert "suggested_hardware: zero-a10g\n" in front((pushed / "README.md").read_text("utf-8"))
    assert publish.ZERO_TORCH in (pushed / "requirements.txt").read_text().splitlines()


MODELS = ("GSAI-ML/LLaDA-8B-Instruct", "Dream-org/Dream-v0-Instruct-7B")
CALL = {"prompt": PROMPT, "gen_length": 32, "block_length": 16, "steps": 32}


def test_the_space_starts_out_of_it_and_is_bounded(pushed, tmp_path):
    """As on ZeroGPU: the stand-in for `spaces` fails where torch was imported before it."""
    env = {"SPACE_ID": "own/space", "SPACES_ZERO_GPU": "true", "GRADIO_SSR_MODE": "True"}
    path = os.pathsep.join(
        [str(ROOT / "tests" / "support" / "forking"), os.environ.get("PYTHONPATH", "")]
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with running_app(tmp_path, pushed, **env, PYTHONPATH=path, TMPDIR=str(temporary)) as app:
        assert list(temporary.glob("*/driftscope-uploads/exports-*"))
        client = program(app.url)
        found = client.predict(api_name="/methods")
        assert (found["devices"], found["any_model"]) == (["cpu", "cuda"], False)
        run = client.submit({"a": CALL, "b": CALL | {"cache": "dual"}}, api_name="/run")
        assert run.result(60)["state"] == "done"
        for name in ("/plan", "/run"):
            long = CALL | {"gen_length": 544, "steps": 544}
            with pytest.raises(AppError, match="gen_length: 544 is more than this public page"):
                client.predict({"a": CALL, "b": long}, api_name=name)
    log = app.log.read_text()
    assert "Traceback" not in log
    assert "ssr" not in log.lower()
    assert not list(temporary.glob("*/driftscope-uploads/exports-*")), (
        "visitors' files stay after SIGTERM"
    )


def test_no_package_no_start(monkeypatch):
    import app

    monkeypatch.setattr(app, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"^SPACES_ZERO_GPU .* package spaces is missing; install"):
        app.zero_decorator()
