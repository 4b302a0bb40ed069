"""A new method is one Python file: the examples of engine/README.md pass all tests of methods.

The examples are put into a copy of the package, without Markdown files, and the tests that cover
every method are run there for them: engine, catalog, form, Methods page, token card and a race.
"""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.micro import ROOT

COPIED = ("engine", "inspector", "tests", "app.py", "pyproject.toml", "README.md")
# What was compiled is copied with its source, but not while another process writes it: it then has
# another name, and may be gone before it is copied.
IGNORED = shutil.ignore_patterns("node_modules", "*.pyc.*")
COVERS = re.compile(r"\b(policies|full_policies|unmaskers|describe)\(\)")
FORM = "tests/inspector/test_settings.py"
TOKEN_CARD = "tests/browser/test_inspect_c.py"
WHOLE = ("test_settings", "test_method_pages", "test_the_table_of_methods_is_fresh",
         "test_every_component")  # fmt: skip
EXAMPLES = {
    "every_other": ("Add a cache policy", "engine/cache/methods", 60),
    "top_share": ("Add an unmasker", "engine/unmask/methods", 30),
}


def example(heading):
    """The code of a section of engine/README.md."""
    text = (ROOT / "engine" / "README.md").read_text("utf-8").partition(f"## {heading}\n")[2]
    return re.search(r"```python\n(.*?)```", text, re.S)[1]


def copy_package(folder):
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=IGNORED)
        else:
            shutil.copy(source, folder)
    (folder / "assets").symlink_to(ROOT / "assets")


def files_covering_methods():
    """Test files that cover every method; of those with a browser only that of the token card."""
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if path.parent.name != "browser"]
    found = [path for path in files if COVERS.search(path.read_text("utf-8"))]
    return sorted({FORM, TOKEN_CARD, *(path.relative_to(ROOT).as_posix() for path in found)})


@pytest.mark.timeout(900)
def test_the_examples_of_the_readme_pass_the_tests_of_all_methods(tmp_path):
    copy_package(tmp_path)
    for name, (heading, place, _) in EXAMPLES.items():
        (tmp_path / place / f"{name}.py").write_text(example(heading), "utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-rp", "-p", "no:xdist", "-p", "no:cacheprovider",
         "--assert=plain", "-k", " or ".join((*EXAMPLES, *WHOLE)), *files_covering_methods()],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = ran.stdout.splitlines()
    assert ran.returncode == 0, "\n".join(lines[-60:]) + ran.stderr
    for name, (_, _, least) in EXAMPLES.items():
        assert sum(name in line and line.startswith("PASSED") for line in lines) >= least
