"""Long use of the app: `python -m tests.proofs.endurance --runs 500 --cancels 200`.

Starts the app in its own process. Pages and programs run races, three at a time: some to their
end, others abandoned at a random step in a random way. After a warm-up of a hundred races, fails
if memory grows by more than 5 %, if processes, threads or files stay open, if the lock stays held,
or if the last run takes longer than the first.

The warm-up has a run and a cancel of every prompt, because oneDNN compiles and keeps 0.6 MB of code
for each number of rows, up to a limit of its own.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.support.browser import App, running_app
from tests.support.races import METHODS, WAYS, Failed, form, races, texts, to_step
from tests.support.web import Visitor

AT_ONCE = 3
PROMPTS = 50
TIMED = 7
GROWTH, SLOWER = 1.05, 1.25


@dataclass
class State:
    """Resources of the idle app: megabytes, threads, open files, processes; time of a run."""

    memory: int
    threads: int
    files: int
    children: int
    run_s: float

    @classmethod
    def of(cls, app: App) -> State:
        """Measure them, and time a run of one visitor."""
        seconds = statistics.median(timed(app) for _ in range(TIMED))
        threads = len(list(Path(f"/proc/{app.pid}/task").iterdir()))
        files = len(list(Path(f"/proc/{app.pid}/fd").iterdir()))
        return cls(app.held(), threads, files, len(app.children()), seconds)


@dataclass
class Tally:
    """Races so far by the way they ended, and memory in megabytes over time."""

    done: Counter = field(default_factory=Counter)
    history: list[int] = field(default_factory=list)


def timed(app: App) -> float:
    """Seconds of one small run by a program, from its request to the last message."""
    visitor, began = Visitor(app.url), time.monotonic()
    texts(visitor.ask("run", [races(1)[0]])["data"][0])
    visitor.close()
    return time.monotonic() - began


def run_once(app: App, seed: int) -> str:
    """A race to its end, by a page or, one time in ten, by a program.

    The app frees a page's race when its tab is closed, and keeps a program's for its views.
    """
    visitor = Visitor(app.url)
    visitor.stay()
    by_program, nth = seed % 10 == 9, seed // 10
    unmasker, cache = METHODS[(nth if by_program else seed) % len(METHODS)]
    chosen = {"ds-b-unmasker": unmasker, "ds-b-cache": cache}
    if by_program:
        race = races(1)[0] | {"b": races(1)[0]["b"] | {"unmasker": unmasker, "cache": cache}}
        texts(visitor.ask("run", [race])["data"][0])
    else:
        found = visitor.ask("ds-run.click", **form(seed % PROMPTS, 16, 16), **chosen)
        if '"state":"done"' not in found["data"][0]:
            raise Failed(f"a run ended as {found['data'][0][:300]}")
    visitor.leave()
    visitor.close()
    return "page and program"


def leave_once(app: App, seed: int, most_steps: int) -> str:
    """A long race that is abandoned in a random way, at a random step up to `most_steps`."""
    dice = random.Random(seed)
    way, visitor = dice.choice(list(WAYS)), Visitor(app.url)
    visitor.stay()
    visitor.join("ds-run.click", **form(seed % PROMPTS, 256, 256))
    to_step(visitor, dice.randint(0, most_steps))
    WAYS[way](visitor)
    visitor.close()
    return way


def endure(app: App, runs: int, cancels: int, seed: int = 0, most_steps: int = 60) -> Tally:
    """Runs and cancels in random order, AT_ONCE at a time."""
    leave = partial(leave_once, most_steps=most_steps)
    tasks = [(run_once, i) for i in range(runs)] + [(leave, i) for i in range(cancels)]
    random.Random(seed).shuffle(tasks)
    tally = Tally()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for number, way in enumerate(pool.map(lambda task: task[0](app, task[1]), tasks)):
            tally.done[way] += 1
            if number % 50 == 0:
                tally.history.append(app.held())
    return tally


def check(before: State, after: State) -> None:
    """Raise Failed if the app uses more resources, or is slower, than before."""
    if after.memory > GROWTH * before.memory:
        raise Failed(f"memory grew from {before.memory} to {after.memory} MB")
    if after.children > before.children or after.threads > before.threads + AT_ONCE:
        raise Failed(f"threads or processes were not ended: {before} {after}")
    if after.files > before.files + 2 * AT_ONCE:
        raise Failed(f"files were not closed: {before} {after}")
    if after.run_s > SLOWER * before.run_s + 0.1:
        raise Failed(f"a run took {before.run_s:.2f} s first and {after.run_s:.2f} s last")


def main() -> None:
    """Print the figures; exit with status 1 on a failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--cancels", type=int, default=200)
    given = parser.parse_args()
    if min(given.runs, given.cancels) < 2 * PROMPTS:
        parser.error(f"at least {2 * PROMPTS} runs and cancels; {PROMPTS} of each are the warm-up")
    with tempfile.TemporaryDirectory() as name, running_app(Path(name)) as app:
        try:
            endure(app, PROMPTS, PROMPTS, seed=1)
            before = State.of(app)
            tally = endure(app, given.runs - PROMPTS, given.cancels - PROMPTS)
            after = State.of(app)
            print(
                f"in all: {given.runs} runs, {given.cancels} cancels; after the first "
                f"{2 * PROMPTS} by way: {dict(tally.done)}"
            )
            print(f"then: {before}\nlast: {after}\nMB on the way: {tally.history}")
            check(before, after)
        except Failed as failure:
            print(f"failed: {failure}")
            sys.exit(1)
        if "Traceback" in app.log.read_text():
            print(f"failed: the log has a traceback:\n{app.log.read_text()[-3000:]}")
            sys.exit(1)


if __name__ == "__main__":
    main()
