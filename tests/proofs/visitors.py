"""Many visitors at once: `python -m tests.proofs.visitors --visitors 20`.

Starts the app in its own process and visits it over HTTP, as pages and as programs. Fails if a
text differs from that of the same race alone, if a visitor sees another's run, if the queue is not
served in order, or if anything remains after a stop, a cut connection, a closed tab, a crash in a
step or a killed server.
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

JOIN_EVERY = 0.1  # seconds between two visitors: runs that come in one moment have no order
MAX_MOVED = 1  # positions by which a visitor may be served earlier or later
ATTEMPTS = 3  # at the start of a waiting run
RELEASE_SECONDS = 1.0  # allowed until the lock is free, plus twice the time of a start


def listen(visitor: Visitor) -> tuple[dict, float, set[str]]:
    """The result of a race, the time of its first step, and the run ids seen."""
    first, seen, result = 0.0, set(), {}
    for message in visitor.messages():
        output = shown(message)
        if output is None:
            continue
        seen.add(output["run"])
        first = first or (time.monotonic() if output.get("steps") or output.get("lanes") else 0.0)
        result = output
    return result, first, seen


def at_once(app: App, count: int) -> dict[str, float]:
    """All visitors queue within seconds; checks texts, order and what each of them sees."""
    asked = races(count)
    expected = [alone(app, race) for race in asked]
    if len({str(one) for one in expected}) < count:
        raise Failed("two of the races have the same texts, so a mix-up could not be seen")
    visitors = [Visitor(app.url) for _ in asked]
    began, listening = time.monotonic(), []
    with ThreadPoolExecutor(count) as pool:
        for visitor, race in zip(visitors, asked, strict=True):
            visitor.join("run", [race])
            listening.append(pool.submit(listen, visitor))
            time.sleep(JOIN_EVERY)
        results = [one.result() for one in listening]
    took = time.monotonic() - began
    for (result, _, seen), own in zip(results, expected, strict=True):
        if texts(result) != own:
            raise Failed(f"{texts(result)} differs from {own}, the text of the race alone")
        if len(seen) != 1:
            raise Failed(f"a visitor saw the runs {seen}")
    runs = [result["run"] for result, _, _ in results]
    order = sorted(range(count), key=lambda i: results[i][1])
    moved = max(abs(place - i) for place, i in enumerate(order))
    if moved > MAX_MOVED:
        raise Failed(f"a visitor moved by {moved} positions in the queue")
    _check_ids(visitors[0], runs)
    for visitor in visitors:
        visitor.close()
    return {"visitors": count, "lanes equal": 2 * count, "places moved": moved, "seconds": took}


def _check_ids(visitor: Visitor, runs: list[str]) -> None:
    """Run ids are distinct and long, and appear in no response about the app itself."""
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
    """Two pages export their own races by their ids, and one that guesses an id gets none."""
    mine, other, new = (Visitor(app.url) for _ in range(3))
    runs = []
    for visitor, seed in ((mine, 1), (other, 2)):
        told = json.loads(visitor.ask("ds-run.click", **form(seed))["data"][0])
        runs.append(told["run"])
    heads = [run[:8] for run in runs]
    asked = zip((mine, other, new), (*runs, runs[0][:-1]), strict=True)
    names = [str(page.ask("ds-export.click", [run])["data"][0]) for page, run in asked]
    for visitor_names, head in zip(names, heads, strict=False):
        if head not in visitor_names:
            raise Failed("a visitor cannot export its own race")
    if heads[1] in names[0] or heads[0] in names[1] or any(h in names[2] for h in heads):
        raise Failed("a visitor was given the race of another")
    for visitor in (mine, other, new):
        visitor.close()


def left_by(app: App, way: str, steps: int = 3) -> float:
    """Abandon a long race after some steps while another waits; seconds until that one starts.

    At most RELEASE_SECONDS plus twice the time that a race needs to start without waiting, in one
    of ATTEMPTS attempts, because other processes may take the processor.
    """
    for _ in range(ATTEMPTS):
        usual, waited = _start_seconds(app), _seconds_after_leaving(app, way, steps)
        if waited <= RELEASE_SECONDS + 2 * usual:
            return waited
    raise Failed(f"{way}: the next run began after {waited:.1f} s")


def _start_seconds(app: App) -> float:
    """Seconds until the first step of a race that does not wait."""
    visitor, began = Visitor(app.url), time.monotonic()
    visitor.join("run", [races(1)[0]])
    first = listen(visitor)[1]
    visitor.close()
    return first - began


def _seconds_after_leaving(app: App, way: str, steps: int) -> float:
    """Seconds until the first step of a waiting race after another one is abandoned."""
    leaving, waiting = Visitor(app.url), Visitor(app.url)
    leaving.stay()
    leaving.join("ds-run.click", **form(3, 512, 512))
    to_step(leaving, steps)
    waiting.join("run", [races(1)[0]])
    began = time.monotonic()
    WAYS[way](leaving)
    result, first, _ = listen(waiting)
    texts(result)
    for visitor in (leaving, waiting):
        visitor.close()
    return first - began


def crashed(app: App, steps: int) -> str:
    """A race that fails in a step reports it, and the next one is right."""
    broken = {"model": BROKEN, "prompt": "How many?", "gen_length": 32, "block_length": 32}
    broken |= {"steps": 32}
    visitor, expected = Visitor(app.url), alone(app, races(1)[0])
    found = visitor.ask("run", [{"a": broken, "b": broken}])
    if SAID not in str(found.get("error")):
        raise Failed(f"the crash of a step was reported as {found}")
    if alone(app, races(1)[0]) != expected:
        raise Failed("the run after a crash differs from the one before")
    visitor.close()
    return f"reported after step {steps}"


def everything(count: int) -> dict[str, object]:
    """Run all checks; returns figures by name."""
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
    """`kill -9` during runs: no process remains, and the app starts and serves again."""
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
        raise Failed(f"processes remain: {alive}")
    with running_app(folder) as app:
        alone(app, races(1)[0])
    return "nothing left, serves again"


def main() -> None:
    """Print the figures; exit with status 1 on a failure."""
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
