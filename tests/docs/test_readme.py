"""README.md: its length, links into the page, tables and code."""

import ast
import json
import re
import runpy
from urllib.parse import parse_qsl, urlsplit

import pytest

from engine import CachePolicy, catalog
from engine.batch.service import BatchService
from engine.bench import space_costs
from engine.config.spec import RaceSpec
from engine.core.files import ASSETS
from engine.core.tables import replace_section, section_marks
from engine.models.loading.families import embedded_models
from engine.serve.session import Session
from engine.trace.trace import Trace
from inspector.lessons.lessons import LESSONS
from inspector.page_data.links import is_setting
from tests.inspector.fake import serving
from tests.support.llada_v import MICRO
from tests.support.micro import ROOT, make_spec, model_of, run

README = (ROOT / "README.md").read_text("utf-8")
RESULTS = (ROOT / "assets" / "results" / "README.md").read_text("utf-8")
PAGE = "http://127.0.0.1:7860"
LINKS = re.findall(rf"\(({re.escape(PAGE)}/[^)\s]*)\)", README)
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.S)


def section(document, name):
    start, end = section_marks(name)
    return document.partition(start)[2].partition(end)[0]


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def cell_rows(table):
    """The cells of each line but the rule, whose length and padding follow the longest cell."""
    return [cells(line) for line in table.splitlines() if set(line) - set("| -")]


def test_the_readme_is_short_and_has_its_two_lines_and_front_matter():
    assert len(README.splitlines()) <= 215
    for line in ("pip install -r requirements.txt", "python app.py", "pytest"):
        assert line in README
    assert README.startswith("---\ntitle: Driftscope\n")


def test_the_table_of_methods_is_fresh():
    """A method without a description of its own, such as a new one, may still be missing."""
    assert section(README, "methods").strip()
    expected, shown = cell_rows(catalog.table()), cell_rows(section(README, "methods"))
    assert [row for row in shown if row not in expected] == []
    names = [row["name"] for rows in ("caches", "unmaskers") for row in catalog.describe()[rows]
             if row["description"]]  # fmt: skip
    listed = [row[0].partition(" ")[2] for row in shown]
    assert [name for name in names if f"`{name}`" not in listed] == []


def test_the_computed_table_of_costs_is_fresh():
    assert replace_section(RESULTS, space_costs.table(), "costs") == RESULTS
    assert re.search(r"\| LLaDA 8B Instruct +\| `l40sx1`", RESULTS)


@pytest.mark.parametrize("missing", ["<!-- costs -->", "<!-- end of costs -->"])
def test_a_mark_that_is_missing_is_named(missing):
    with pytest.raises(ValueError, match=missing):
        replace_section(RESULTS.replace(missing, ""), "", "costs")


def source(name):
    """A file of the page's scripts."""
    return (ROOT / "inspector" / "web" / "src" / name).read_text()


@pytest.mark.parametrize("link", LINKS)
def test_a_link_into_the_page_opens_what_it_names(link):
    query = dict(parse_qsl(urlsplit(link).query))
    if lesson := query.get("lesson"):
        assert lesson in [*(one.key for one in LESSONS), "teachers"]
    views = re.findall(r'^import { (\w+) } from "./', source("inspect/views/index.ts"), re.M)
    assert query.get("look", "drift") in views
    if cursor := query.get("cursor"):
        key = re.search(r"const CURSOR_KEY = /(.*)/;", source("race/link.ts"))[1]
        lane, step, layer, position = re.fullmatch(key, cursor).groups()
        trace = Trace.load(ROOT / "assets" / "examples" / f"{lane}-recorded.npz")
        _, layers, _, positions = trace.arrays()["drift"].shape
        assert int(step) <= trace.steps
        assert int(layer) <= layers
        assert position is None or int(position) <= positions
    race = RaceSpec.from_query(urlsplit(link).query if any(map(is_setting, query)) else "")
    for spec in (race.a, race.b):
        catalog.derive_plan(spec)


def test_there_are_links_to_lessons_views_and_settings():
    assert 6 <= len(LINKS) <= 10
    kinds = {key for link in LINKS for key in dict(parse_qsl(urlsplit(link).query))}
    assert {"lesson", "look", "cursor", "b.cache"} <= kinds


def ran(code, folder):
    """The names that code has when it was run from a file."""
    path = folder / "snippet.py"
    path.write_text(code, "utf-8")
    return runpy.run_path(str(path))


def test_the_code_for_the_engine_runs(tmp_path, monkeypatch, capsys):
    (code,) = (one for one in SNIPPETS if "from engine import" in one)
    monkeypatch.chdir(ROOT)
    ran(code, tmp_path)
    assert "RunFinished" in capsys.readouterr().out


def example_policy(tmp_path):
    text = (ROOT / "engine" / "README.md").read_text("utf-8").partition("## Add a cache policy")[2]
    found = ran(re.search(r"```python\n(.*?)```", text, re.S)[1], tmp_path)
    return next(
        one for one in found.values()
        if isinstance(one, type) and issubclass(one, CachePolicy) and one is not CachePolicy
    )  # fmt: skip


def test_the_policy_of_the_engine_readme_runs_and_is_exact_where_it_says(tmp_path):
    policy, model, spec = example_policy(tmp_path), model_of("mha"), make_spec()
    plain = run(model, spec)
    assert (run(model, spec, policy=policy.exact).ids == plain.ids).all()
    kinds = {event.kind for event in run(model, spec, policy=policy).events}
    assert kinds == {"full", "partial"}


@pytest.fixture(scope="module")
def page():
    """The address of the page, with a model that takes images."""
    session = Session(embedded_models(ASSETS) | {MICRO.name: MICRO})
    with serving(session, batches=BatchService(session)) as url:
        yield url


def test_the_code_for_the_api_runs(page, tmp_path, capsys):
    (code,) = (one for one in SNIPPETS if "gradio_client" in one)
    assert PAGE in code
    ran(code.replace(PAGE, page), tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert "done 0" in lines
    metrics = ast.literal_eval(lines[-1])
    assert json.dumps(metrics)
    assert metrics["nfe"] > 0


def test_every_endpoint_is_documented():
    code = [one.read_text("utf-8") for one in (ROOT / "inspector" / "handlers").rglob("*.py")]
    names = set(re.findall(r'gr\.api\(.*api_name="(\w+)"', "\n".join(code)))
    text = (ROOT / "inspector" / "README.md").read_text("utf-8")
    part = text.partition("## Endpoints")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`/.*?) \|", part, re.M)
    assert set(re.findall(r"`/(\w+)`", " ".join(rows))) == names
    assert {"run", "estimate", "what_if", "batch", "advise"} <= names


def test_the_code_for_many_prompts_runs(page, tmp_path, capsys):
    text = (ROOT / "inspector" / "README.md").read_text("utf-8")
    code, image_code = re.findall(r"```python\n([^`]*gradio_client.*?)```", text, re.S)
    assert PAGE in code
    seen = image_code.replace(PAGE, page).replace("GSAI-ML/LLaDA-V", MICRO.name)
    assert ran(seen, tmp_path)["name"].startswith("1280x")
    assert "'image_rows': 3" in capsys.readouterr().out
    found = ran(code.replace(PAGE, page), tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert "done 4 of 4" in lines
    assert [line.split()[:2] for line in lines[-2:]] == [["plain", "decoding"], ["dual", "cache"]]
    assert [row["setting"] for row in found["found"]["runs"]] == [0, 1, 0, 1]
    assert [row["runs"] for row in found["aggregates"]["settings"]] == [2, 2]
    assert set(found["row"]) >= {"agreement", "speed_up"}
