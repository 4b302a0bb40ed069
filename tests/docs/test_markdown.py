"""Every Markdown file: its links, paths and commands exist."""

import importlib.util
import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from engine.__main__ import COMMANDS, main
from engine.cache import base as cache_base
from engine.unmask import base as unmask_base
from tests.support.micro import ROOT

HIDDEN = re.compile(r"\.(?!github$)|node_modules$")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*\.(?:py|js|json|md|svg|png|toml|npz))`")
COMMAND = re.compile(r"python -m ([\w.]*\w)((?: [^\s`|,;]+)*)")
FOREIGN = ROOT / "tests" / "goldens"  # names files of other repositories


def markdown_files():
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*.md"))
    return sorted(path for path in found if not any(HIDDEN.match(part) for part in path.parts))


FILES = markdown_files()


@cache
def text_of(path):
    return (ROOT / path).read_text("utf-8")


def slug(heading):
    """The anchor that GitHub gives to a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.replace("`", "")).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(path):
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text_of(path)), re.M)
    return {slug(heading) for heading in headings}


def broken(path, link):
    """What is wrong with a relative link of a file; empty if it can be followed."""
    name, _, anchor = link.partition("#")
    target = (ROOT / path.parent / unquote(name)).resolve() if name else ROOT / path
    if not target.is_relative_to(ROOT) or not target.exists():
        return f"{link}: no such file"
    if anchor and anchor not in anchors(target.relative_to(ROOT)):
        return f"{link}: no such heading"
    return ""


def test_the_main_files_are_found():
    folders = ("", ".github/", "engine/", "inspector/", "tests/", "assets/results/")
    names = {f"{folder}{'CONTRIBUTING' if 'git' in folder else 'README'}.md" for folder in folders}
    assert names <= {path.as_posix() for path in FILES}


def test_relative_links_and_images_lead_somewhere():
    links = [
        (path, link)
        for path in FILES
        for link in LINK.findall(FENCE.sub("", text_of(path)))
        if not link.startswith("http")
    ]
    assert len(links) > 50
    assert [(path, fault) for path, link in links if (fault := broken(path, link))] == []


@pytest.mark.parametrize("link", ["nowhere.md", "README.md#nothing", "#nothing", "../outside.md"])
def test_a_broken_link_is_found(link):
    assert broken(Path("README.md"), link)


def test_paths_in_code_exist():
    named = [
        (path, name)
        for path in FILES
        if not (ROOT / path).is_relative_to(FOREIGN)
        for name in PATH.findall(text_of(path))
        if "NAME" not in name
    ]
    assert len(named) > 20
    gone = [
        (path, name)
        for path, name in named
        if not any((base / name).is_file() for base in (ROOT, ROOT / path.parent))
    ]
    assert gone == []


def commands():
    found = {}
    for path in FILES:
        for module, words in COMMAND.findall(text_of(path)):
            flags = re.findall(r"(?<= )--[a-z][\w.-]*", words)
            name = words.split()[0] if words else ""
            key = (module, name if module == "engine" and not name.startswith("-") else "")
            found.setdefault(key, set()).update(flags)
    return sorted((module, name, sorted(flags)) for (module, name), flags in found.items())


def help_of(name, capsys):
    with pytest.raises(SystemExit) as left:
        main([*([name] if name else []), "--help"])
    assert left.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("module", "name", "flags"), commands())
def test_a_command_exists_and_has_the_options_named(module, name, flags, capsys):
    if module in ("engine", "engine.bench", "engine.evaluate"):
        name = name or module.partition(".")[2]
        shown = help_of("" if name == "COMMAND" else name, capsys)
    else:
        found = importlib.util.find_spec(module)
        assert found is not None, f"python -m {module}: no such module"
        source = Path(found.origin)
        if source.name == "__init__.py":
            source = source.with_name("__main__.py")
        shown = source.read_text("utf-8")
    assert [flag for flag in flags if not re.search(rf"{re.escape(flag)}\b", shown)] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_engine_is_documented(name):
    assert f"`python -m engine {name}" in text_of(Path("engine/README.md"))


def test_the_new_names_of_moved_modules_exist():
    text = text_of(Path(".github/CONTRIBUTING.md")).partition("\nCommands:")[0]
    rows = re.findall(r"^\| `(engine\.[\w.]+)` \| (.*) \|$", text, re.M)
    assert len(rows) > 12
    for package, cell in rows:
        folder = ROOT / package.replace(".", "/")
        for part in cell.split(";"):
            names = re.findall(r"`[\w.]*?(\w+)`", part.rpartition("→")[2])
            assert names
            for name in names:
                assert (folder / f"{name}.py").is_file() or (folder / name).is_dir(), name


def test_the_new_names_of_hooks_exist():
    text = text_of(Path(".github/CONTRIBUTING.md"))
    rows = re.findall(r"^\| `([A-Z]\w+)`.*? \| (.*→.*) \|$", text, re.M)
    assert {"CachePolicy", "Speedups", "StepView", "Unmasker"} <= {name for name, _ in rows}
    for name, cell in rows:
        one = getattr(unmask_base, name, None) or getattr(cache_base, name)
        known = {*dir(one), *getattr(one, "__dataclass_fields__", ())}
        assert [new for new in re.findall(r"→ `(\w+)`", cell) if new not in known] == []
