"""What tests of the page share: recorded runs, how they are brought in, colours and contrast."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.config.spec import RaceSpec, RunSpec
from engine.evaluate.record_examples import collect_traces
from engine.serve.session import Session
from engine.trace.trace import Trace
from tests.support.browser import PROMPT
from tests.support.micro import write_checkpoint

INKS = """([selector, unless, solid]) => {
  const back = (e) => {
    for (; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (!/^rgba\\(.*, 0\\)$|transparent/.test(colour)) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const says = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  return [...document.querySelectorAll(selector)]
    .filter((e) => e.offsetParent && says(e) && !(unless && e.closest(unless)))
    .filter((e) => !solid || getComputedStyle(e).backgroundImage === 'none')
    .map((e) => [String(e.className || e.tagName), getComputedStyle(e).color, back(e)]);
}"""
COLOUR = """([figure, x, y]) => {
  const canvas = document.querySelector(`#ds-race [data-figure=${figure}] canvas`);
  const [left, top, right, bottom] = canvas.dataset.box.split(',').map(Number);
  const [wide, high] = canvas.dataset.cells.split(',').map(Number);
  const px = devicePixelRatio * (left + (x + 0.5) * (right - left) / wide);
  const py = devicePixelRatio * (top + (y + 0.5) * (bottom - top) / high);
  return [...canvas.getContext('2d').getImageData(px, py, 1, 1).data.slice(0, 3)];
}"""


def recorded(session: Session, spec: RunSpec) -> Trace:
    """The trace of a run, which must end well."""
    return collect_traces(("a", event) for event in session.run(spec))["a"]


def expert_run(folder: Path) -> Trace:
    """A probed run of a small model with experts, which is written to a folder."""
    spec = RunSpec(
        model="micro", prompt="1 + 1", gen_length=16, block_length=8, steps=16, cache="dllm_cache",
        record="probe", probe_steps=4, knobs={"dllm_cache.response_interval": 3},
    )  # fmt: skip
    return recorded(Session({"micro": write_checkpoint(folder, kind="llada_moe")}), spec)


def recorded_lanes(
    session: Session, level: str, knobs: Mapping[str, Any] | None = None, **caches: str
) -> dict[str, Trace]:
    """A small problem by lane under its cache and the cache's own knobs, recorded at a level."""
    shape: dict[str, Any] = {"gen_length": 32, "block_length": 16, "steps": 32, "record": level}
    base = replace(session.default_race().a, prompt=PROMPT, **shape)
    lanes = {}
    for lane, cache in caches.items():
        own = {key: value for key, value in (knobs or {}).items() if key.startswith(f"{cache}.")}
        lanes[lane] = recorded(session, replace(base, cache=cache, knobs=own))
    return lanes


def bring(race: Any, lanes: Mapping[str, Trace], folder: Path) -> None:
    """Import traces into an open page."""
    paths = [folder / f"{name}.npz" for name in lanes]
    for path, trace in zip(paths, lanes.values(), strict=True):
        trace.save(path)
    bring_files(race, paths)


def bring_once(race: Any, lanes: Mapping[str, Trace], folder: Path, known: set[str]) -> None:
    """Import traces unless the page shows them: `known` holds the runs that they became."""
    if race.data("run") not in known:
        bring(race, lanes, folder)
        known.add(race.data("run"))


def bring_files(race: Any, paths: Sequence[Path]) -> None:
    """Import files into an open page, which may show imported ones before."""
    _give(race, paths, "imported")


def bring_race(race: Any, spec: RaceSpec, folder: Path) -> None:
    """Run a short race on an open page, by a run card: a load of the page costs seconds more."""
    begun, specs = race.begun, spec.to_dict()
    lanes = {lane: {"spec": own, "model": {}, "results": {}} for lane, own in specs.items()}
    card = folder / "run-card.json"
    card.write_text(json.dumps({"lanes": lanes, "summary": {}}))
    _give(race, [card], "done")
    while race.begun < begun + 3:  # the import, the run and the recording
        race.settled()
    race.over()


def _give(race: Any, paths: Sequence[Path], state: str) -> None:
    """Give an open page files, and wait until it shows another race in a state."""
    files, before = open_files(race), race.data("run")
    take_back(race)
    files.locator("input[type=file]").set_input_files(paths)
    race.page.locator(f'#ds-race .ds[data-state={state}]:not([data-run="{before}"])').wait_for()


def open_files(race: Any) -> Any:
    """Open the files, and return the field of imports.

    Gradio writes the fields of a page that just came once more, and closes what was opened before.
    """
    race.settled()
    files = race.page.locator("#ds-import")
    if not files.is_visible():
        race.page.locator("#ds-files > button").click()
    files.wait_for()
    return files


def take_back(race: Any) -> None:
    """Take the files, if there are any, back out of the field."""
    key = race.page.locator("#ds-import :is(button[aria-label*=lear], button[title*=lear])")
    if key.count():
        key.first.click()
        key.first.wait_for(state="detached")


def show(race: Any, view: str) -> None:
    """Open a view of the Run tab and wait until it is drawn."""
    race.page.locator(f"#ds-race [data-tab={view}]").click()
    race.page.locator(f"#ds-race [data-inspect][data-ready={view}]").wait_for()


def drawn(race: Any) -> None:
    """Wait until the open view and the token card have all their data."""
    race.page.locator("#ds-race [data-inspect]:not([data-ready=''])").wait_for()


def pointed(race: Any) -> None:
    """Wait until the page has followed the pointer, once in a frame, and has what it points at."""
    race.page.evaluate("new Promise((done) => requestAnimationFrame(() => done()))")
    drawn(race)


def point(race: Any, figure: str, x: float, y: float = 0.5, click: bool = False) -> str:
    """What a figure says when one points, or clicks, at a share of its width and height."""
    root = race.page.locator(f"#ds-race [data-figure={figure}]")
    canvas = root.locator("[data-box]")
    drawn(race)
    canvas.evaluate("e => e.scrollIntoView({ block: 'center' })")
    left, top, right, bottom = map(float, (canvas.get_attribute("data-box") or "").split(","))
    place = {"x": left + x * (right - left), "y": top + y * (bottom - top)}
    canvas.hover(position=place)
    if click:
        canvas.click(position=place)
    pointed(race)
    return root.locator(".ds-words").inner_text()


def show_at(race: Any, view: str, lane: str, layer: int, step: int) -> None:
    """Open a view with the cursor at a place, counted from 0."""
    race.page.locator(f"#ds-race [data-inspect-lane-{lane}]").click()
    show(race, view)
    race.page.locator("#ds-race [data-inspect-step]").fill(str(step))
    race.page.locator("#ds-race [data-inspect-layer]").fill(str(layer))
    drawn(race)


def cell_colour(race: Any, figure: str, x: int, y: int) -> list[int]:
    """RGB in the middle of a heat map's cell."""
    drawn(race)
    return race.page.evaluate(COLOUR, [figure, x, y])


def inks(page: Any, selector: str, unless: str = "", solid: bool = False) -> list[list[str]]:
    """Name, ink and ground of each shown element with text of its own, but those in `unless`.

    `solid`: only where the ground is a plain colour.
    """
    return page.evaluate(INKS, [selector, unless, solid])


def illegible(found: Iterable[list[str]]) -> set[tuple[str, ...]]:
    """Those whose ink and ground have a contrast below 4.5 (WCAG)."""
    poor = set()
    for name, ink, ground in found:
        high, low = sorted((luminance(ink), luminance(ground)), reverse=True)
        if (high + 0.05) / (low + 0.05) < 4.5:
            poor.add((name, ink, ground))
    return poor


def luminance(colour: str) -> float:
    """Relative luminance of `rgb(...)`."""
    parts = [int(x) / 255 for x in re.findall(r"\d+", colour)[:3]]
    lin = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * lin[0] + 0.7152 * lin[1] + 0.0722 * lin[2]


def recolour(page: Any, dark: bool) -> None:
    """Change the page's theme as Gradio does, and wait until its colours have come."""
    page.evaluate("dark => document.body.classList.toggle('dark', dark)", dark)
    page.wait_for_function("document.getAnimations().every((one) => one.playState !== 'running')")
