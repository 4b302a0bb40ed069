"""Many visitors at once: `python -m tests.proofs.visitors --visitors 20`.

Starts the app in its own process and comes to it over HTTP, as pages and as programs. Fails where
a text is not what it is alone, a visitor sees another's run, the line is not kept, or where a
stop, a cut connection, a closed tab, a crash in a step or a killed server leaves anything behind.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.browser import App, running_app
from tests.support.crash import BROKEN, SAID, write_broken
from tests.support.races import WAYS, Failed, alone, form, races, texts, to_step
from tests.support.web import Visitor, shown

PLACES = 3  # by which a visitor may come earlier or later than it asked
FREE_S = 1.0  # that the lock may be held after a visitor is gone, beside what a start takes


def listen(visitor: Visitor) -> tuple[dict, float, set[str]]:
    """A race's result, when its first step came, and the run ids that were seen."""
    first, seen, result = 0.0, set(), {}
    for message in visitor.messages():
        told = shown(message)
        if told is None:
            continue
        seen.add(told["run"])
        first = first or (time.monotonic() if told.get("steps") or told.get("lanes") else 0.0)
        result = told
    return result, first, seen


def at_once(app: App, count: int) -> dict[str, float]:
    """All visitors queue together; texts, places and what each sees."""
    asked = races(count)
    expected = [alone(app, race) for race in asked]
    if len({str(one) for one in expected}) < count:
        raise Failed("two of the races have the same texts; nothing would show a mix-up")
    visitors = [Visitor(app.url) for _ in asked]
    began = time.monotonic()
    for visitor, race in zip(visitors, asked, strict=True):
        visitor.join("run", [race])
    with ThreadPoolExecutor(count) as pool:
        heard = list(pool.map(listen, visitors))
    took = time.monotonic() - began
    for (result, _, seen), own in zip(heard, expected, strict=True):
        if texts(result) != own:
            raise Failed(f"{texts(result)} is not {own}, its text alone")
        if len(seen) != 1:
            raise Failed(f"a visitor saw the runs {seen}")
    runs = [result["run"] for result, _, _ in heard]
    order = sorted(range(count), key=lambda i: heard[i][1])
    moved = max(abs(place - i) for place, i in enumerate(order))
    if moved > PLACES:
        raise Failed(f"a visitor moved by {moved} places in the line")
    _check_ids(visitors[0], runs)
    for visitor in visitors:
        visitor.close()
    return {"visitors": count, "lanes equal": 2 * count, "places moved": moved, "seconds": took}


def _check_ids(visitor: Visitor, runs: list[str]) -> None:
    """Run ids differ, are long, and stand in nothing that the app says of itself."""
    if len(set(runs)) < len(runs) or min(map(len, runs)) < 24:
        raise Failed("run ids are not unguessable")
    pages = ["/", "/config", "/gradio_api/info", "/gradio_api/queue/status", "/gradio_api/app_id"]
    said = [visitor.http.get(path).text for path in pages]
    said += [str(visitor.ask("methods", [])), str(visitor.direct("ds-stop.click").text)]
    if any(run in text for run in runs for text in said):
        raise Failed("the app lists the runs of others")
    for guess in (runs[0][:-1], runs[0].upper(), "", "*", "%", None, runs):
        if "missing" not in visitor.server("ds-race", "view", [guess, "a", "frame"]).json():
            raise Failed(f"{guess!r} was answered with a run")


def pages_apart(app: App) -> None:
    """Two pages, and one that has run nothing: each takes away its own race only."""
    mine, other, new, nobody = (Visitor(app.url) for _ in range(4))
    nobody.session = None
    heads = []
    for visitor, seed in ((mine, 1), (other, 2)):
        told = json.loads(visitor.ask("ds-run.click", **form(seed))["data"][0])
        heads.append(told["run"][:8])
    names = [str(v.ask("ds-export.click", [])["data"][0]) for v in (mine, other, new)]
    for visitor_names, head in zip(names, heads, strict=False):
        if head not in visitor_names:
            raise Failed("a visitor cannot take its own race away")
    if heads[1] in names[0] or heads[0] in names[1] or any(h in names[2] for h in heads):
        raise Failed("a visitor was given the race of another")
    charts = [visitor.direct("renewed").json()["data"][0] for visitor in (mine, new, nobody)]
    if charts[2] != charts[1] or charts[2] == charts[0]:
        raise Failed("a visitor without a session was given the chart of another")
    for visitor in (mine, other, new, nobody):
        visitor.close()


def left_by(app: App, way: str, steps: int = 3) -> float:
    """A long race is left after some steps while another waits; seconds to that one's first.

    They may be FREE_S more than twice those of a race that need not wait.
    """
    idle, race = Visitor(app.url), races(1)[0]
    began = time.monotonic()
    idle.join("run", [race])
    usual = listen(idle)[1] - began
    leaving, waiting = Visitor(app.url), Visitor(app.url)
    leaving.stay()
    leaving.join("ds-run.click", **form(3, 512, 512))
    to_step(leaving, steps)
    waiting.join("run", [race])
    began = time.monotonic()
    WAYS[way](leaving)
    result, first, _ = listen(waiting)
    texts(result)
    for visitor in (leaving, waiting, idle):
        visitor.close()
    if first - began > FREE_S + 2 * usual:
        raise Failed(f"{way}: the next run began after {first - began:.1f} s")
    return first - began


def crashed(app: App, steps: int) -> str:
    """A race that breaks in a step says so; the next one is right."""
    broken = {"model": BROKEN, "prompt": "How many?", "gen_length": 32, "block_length": 32}
    broken |= {"steps": 32}
    visitor, expected = Visitor(app.url), alone(app, races(1)[0])
    found = visitor.ask("run", [{"a": broken, "b": broken}])
    if SAID not in str(found.get("error")):
        raise Failed(f"the crash of a step was told as {found}")
    if alone(app, races(1)[0]) != expected:
        raise Failed("the run after a crash is another than before")
    visitor.close()
    return f"told after step {steps}"


def everything(count: int) -> dict[str, object]:
    """All checks; figures by name."""
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps = write_broken(folder / "models")
        env = {"DRIFTSCOPE_MODELS": str(folder / "models" / BROKEN)}
        with running_app(folder, **env) as app:
            figures |= at_once(app, count)
            pages_apart(app)
            for way in WAYS:
                waits = [left_by(app, way, steps) for steps in (1, 5, 20)]
                figures[f"{way}, s until the next run's first step"] = round(max(waits), 2)
            figures["crash"] = crashed(app, steps)
        figures["killed server"] = killed(folder)
    return figures


def killed(folder: Path) -> str:
    """`kill -9` in the middle of runs: nothing is left, and the app starts again and serves."""
    with running_app(folder) as app:
        visitors = [Visitor(app.url) for _ in range(3)]
        for visitor in visitors:
            visitor.join("ds-run.click", **form(3, 512, 512))
        to_step(visitors[0], 3)
        children = app.children()
        app.kill()
        for visitor in visitors:
            visitor.close()
    alive = [pid for pid in children if Path(f"/proc/{pid}").exists()]
    if alive:
        raise Failed(f"processes were left: {alive}")
    with running_app(folder) as app:
        alone(app, races(1)[0])
    return "nothing left, serves again"


def main() -> None:
    """Print the figures; leave with 1 where something failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visitors", type=int, default=20)
    try:
        figures = everything(parser.parse_args().visitors)
    except Failed as failure:
        print(f"failed: {failure}")
        sys.exit(1)
    for name, figure in figures.items():
        print(f"{name}: {figure:.2f}" if isinstance(figure, float) else f"{name}: {figure}")


if __name__ == "__main__":
    main()
