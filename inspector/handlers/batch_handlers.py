"""Handlers of the tab of many prompts: they run batches and return documents for the page."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import gradio as gr

from engine.config.spec import RunSpec
from engine.core.events import StepEvent, Waiting
from inspector.handlers.page_handlers import Handlers, error_text, visitor_id
from inspector.handlers.page_handlers import buttons as race_buttons
from inspector.handlers.prompt_sources import PromptSources
from inspector.page_data import messages, tokens
from inspector.page_data.messages import to_json
from inspector.protocol import Batch, Batches
from inspector.run_store import LiveRuns
from inspector.server.throttle import coalesce

MAX_HZ = 2.0
SUMMARY_S = 2.0  # between two sums of the settings while a batch runs
ROWS = 200  # of a request
MAX_QUESTION, MAX_TEXT = 400, 400  # characters of a prompt and of an answer in the table
METHOD = ("unmasker", "cache", "knobs", "steps")  # fields of a kept setting
BUTTONS = ("run", "estimate", "continue", "stop")
NO_LIST = "settings: the kept settings are not a JSON list; correct or empty the field"


class BatchHandlers:
    """The logic behind the tab; one object serves all visitors."""

    def __init__(self, handlers: Handlers, batches: Batches) -> None:
        self.batches = batches
        self._handlers = handlers
        self._live = LiveRuns()
        self.sources = PromptSources(batches.count)

    def keep(self, name: Any, kept: Any, *values: Any) -> tuple[Any, str]:
        """Add lane B's method to the kept settings; returns their JSON and a note."""
        try:
            rows = _kept_rows(kept)
            spec = self._handlers.form.race(values).b
            title = name.strip() if isinstance(name, str) else ""
            rows.append(_row(title or self._handlers.form.catalog.title(spec.to_dict()), spec))
        except Exception as error:
            return gr.skip(), self._said(error)
        return json.dumps(rows, indent=1), f"Kept as “{rows[-1]['name']}”."

    def starter(self, first: int | None) -> Callable[..., Iterator[list[Any]]]:
        """A handler that runs a new batch, or its `first` prompts."""

        def press(
            request: gr.Request, shown: Any, source: Any, text: Any, family: Any,
            count: Any, shots: Any, seed: Any, lanes: Any, kept: Any, record: Any, *values: Any,
        ) -> Iterator[list[Any]]:  # fmt: skip
            try:
                race = self._handlers.form.race(values)
                problems = {"family": family, "count": count, "shots": shots, "seed": seed}
                made = self.batches.open(
                    self.sources.chosen(visitor_id(request), source, text, problems), race.a,
                    self._settings(race.a, race.b, lanes, kept), str(record),
                )  # fmt: skip
            except Exception as error:
                yield self._refusal(shown, error)
                return
            yield from self._stream(made, visitor_id(request), first)

        return press

    def go_on(self, request: gr.Request, shown: Any) -> Iterator[list[Any]]:
        """Continue the shown batch."""
        try:
            batch = self.batches.get(_shown_id(shown))
        except Exception as error:
            yield self._refusal(shown, error)
            return
        yield from self._stream(batch, visitor_id(request), None)

    def reopen(self, asked: Any) -> list[Any]:
        """Show a batch by its id, for a page that was loaded again; a skip if it is gone."""
        try:
            batch = self.batches.get(asked)
        except ValueError:
            return [gr.skip()] * (1 + len(BUTTONS))
        return [self.document(batch), *buttons(batch)]

    def idle(self, shown: Any) -> list[Any]:
        """The buttons when no batch of the visitor runs."""
        try:
            return buttons(self.batches.get(_shown_id(shown)))
        except ValueError:
            return buttons(None)

    def stop(self, request: gr.Request) -> None:
        """Stop the visitor's batch within a step."""
        control = self._live.control(visitor_id(request))
        if control is not None:
            control.stop()

    def leave(self, request: gr.Request) -> None:
        """Handle a closed tab: stop its batch and drop its file; what was run stays in memory."""
        self._live.leave(visitor_id(request))
        self.sources.leave(visitor_id(request))

    def document(self, batch: Batch, events: Sequence[Any] = (), whole: bool = True) -> str:
        """A message of a batch: its progress, what it waits for, and the settings if `whole`."""
        found = batch.front() if whole else batch.progress()
        for row in found.get("settings", ()):
            row["title"] = self._handlers.form.catalog.title(row.pop("spec"))
        last = events[-1] if events else None
        if isinstance(last, Waiting):
            found["wait"] = messages.wait(last)
        if isinstance(last, StepEvent):
            found["step"] = last.step
        return to_json(found)

    def rows(self, asked: Any) -> str:
        """Finished runs as JSON: `[batch, first]` is the untrusted request of a client."""
        try:
            batch, first = self._asked(asked)
            rows = batch.rows(first, ROWS)
        except ValueError as error:
            return to_json({"missing": str(error)})
        for row in rows:
            question, before = tokens.question(row.pop("text_of_prompt"))
            row |= {"question": question[:MAX_QUESTION], "before": before}
            row["text"] = row["text"][:MAX_TEXT]
        return to_json({"rows": rows, "total": batch.done})

    def aggregates(self, asked: Any) -> str:
        """The aggregates of a batch as JSON: `[batch, 0]` is the untrusted request of a client."""
        try:
            return to_json(self._asked(asked)[0].aggregates())
        except ValueError as error:
            return to_json({"missing": str(error)})

    def fill(self, event: gr.EventData) -> list[Any]:
        """Show the Run tab with the settings of the race of a prompt, as far as the form can."""
        form = self._handlers.form
        try:
            race = self._race(event)[0]
        except ValueError:
            return [gr.skip()] * (1 + len(form.widgets))
        try:
            values = form.values(race)
        except ValueError:  # the lanes differ in what they share on the form
            values = [gr.skip()] * len(form.widgets)
        return [gr.Tabs(selected="run"), *values]

    def race(self, event: gr.EventData, request: gr.Request) -> Iterator[list[Any]]:
        """Run the race of a prompt: the first setting in lane A, the chosen one in lane B."""
        try:
            race, answer = self._race(event)
            self._handlers.session.plan(race.a)
            self._handlers.session.plan(race.b)
        except Exception as error:
            yield [messages.notice("failed", self._said(error)), *race_buttons("over")]
            return
        yield from self._handlers.run_race(race, visitor_id(request), answer)

    def _race(self, event: gr.EventData) -> tuple[Any, str | None]:
        batch = self.batches.get(getattr(event, "batch", None))
        prompt, setting = getattr(event, "prompt", None), getattr(event, "setting", None)
        if type(prompt) is not int or type(setting) is not int:
            raise ValueError("batch: name a prompt and a setting by their numbers")
        return batch.race(prompt, setting), batch.answer(prompt)

    def _stream(self, batch: Batch, who: str, first: int | None) -> Iterator[list[Any]]:
        control = self._handlers.session.control()
        idle, summed = [gr.skip()] * len(BUTTONS), time.monotonic()
        self._live.begin(who, batch.id, control)
        failure = ""
        try:
            yield [self.document(batch), *buttons(batch, running=True)]
            with closing(batch.run(control, first)) as events:  # type: ignore[type-var]
                for some in coalesce(events, MAX_HZ):
                    whole = time.monotonic() - summed > SUMMARY_S
                    summed = time.monotonic() if whole else summed
                    yield [self.document(batch, some, whole), *idle]
        except Exception as error:
            failure = self._said(error)
        finally:
            control.stop()
            self._live.end(who, batch.id)
        document = self.document(batch)
        if failure:
            document = to_json(json.loads(document) | {"state": "failed", "message": failure})
        yield [document, *idle]

    def _refusal(self, shown: Any, error: Exception) -> list[Any]:
        """What is wrong; a batch that is shown stays and can be continued."""
        refused = {"batch": "", "state": "failed", "message": self._said(error)}
        counts = {"done": 0, "total": 0, "seconds_left": None}
        try:
            batch = self.batches.get(_shown_id(shown))
        except ValueError:
            return [to_json(counts | refused), *buttons(None)]
        return [to_json(batch.progress() | refused | {"batch": batch.id}), *buttons(batch)]

    def _settings(self, a: RunSpec, b: RunSpec, lanes: Any, kept: Any) -> list[dict[str, Any]]:
        """The settings that are compared with plain decoding: of the lanes, and those kept."""
        chosen = lanes if isinstance(lanes, list) else []
        rows: list[dict[str, Any]] = []
        for lane, spec in (("a", a), ("b", b)):
            if lane in chosen and (spec.cache, spec.unmasker) != ("none", "quota"):
                rows.append(_row(self._handlers.form.catalog.title(spec.to_dict()), spec))
        rows += _kept_rows(kept)
        names = [row.get("name") if isinstance(row, dict) else None for row in rows]
        if len(rows) > 1 and names[0] == names[1] and isinstance(rows[1], dict):
            rows[1]["name"] = f"{names[1]} (2)"
        return rows

    def _asked(self, asked: Any) -> tuple[Batch, int]:
        if not (isinstance(asked, list) and len(asked) == 2 and type(asked[1]) is int):
            raise ValueError("batch: expected its id and the number of a run")
        return self.batches.get(asked[0]), asked[1]

    def _said(self, error: Exception) -> str:
        return self._handlers.form.labelled(error_text(error))


def buttons(batch: Batch | None, running: bool = False) -> list[Any]:
    """Updates of the buttons: of a running batch, of one that is not, or of none."""
    left = batch is not None and batch.done < batch.total
    enabled = {"stop"} if running else {"run", "estimate", *(["continue"] if left else [])}
    return [gr.update(interactive=name in enabled) for name in BUTTONS]


def _row(name: str, spec: RunSpec) -> dict[str, Any]:
    fields = spec.to_dict()
    return {"name": name, **{field: fields[field] for field in METHOD}}


def _kept_rows(kept: Any) -> list[Any]:
    """The kept settings, written as a JSON list."""
    try:
        rows = json.loads(kept) if isinstance(kept, str) and kept.strip() else []
    except (ValueError, RecursionError):
        rows = None
    if not isinstance(rows, list):
        raise ValueError(NO_LIST)
    return rows


def _shown_id(shown: Any) -> Any:
    """The id of the batch that a document shows; `shown` is untrusted."""
    try:
        found = json.loads(shown) if isinstance(shown, str) else None
    except (ValueError, RecursionError):
        found = None
    return found.get("batch") if isinstance(found, dict) else None
