"""Handlers of the advisor's tab: they run searches for settings and return documents."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import gradio as gr

from inspector.handlers.page_handlers import Handlers, error_text, visitor_id
from inspector.handlers.page_handlers import buttons as race_buttons
from inspector.handlers.prompt_sources import PromptSources
from inspector.page_data import messages
from inspector.page_data.messages import to_json
from inspector.protocol import Search, Searches
from inspector.run_store import LiveRuns
from inspector.server.throttle import coalesce

MAX_HZ = 2.0
FIGURES_S = 2.0  # between two messages with all figures while a search runs
BUTTONS = ("run", "estimate", "continue", "stop")


class AdviceHandlers:
    """The logic behind the tab; one object serves all visitors.

    `count` gives the numbers of prompts and known answers of a source (`PromptSources`).
    """

    def __init__(
        self,
        handlers: Handlers,
        searches: Searches,
        count: Callable[[Mapping[str, Any]], tuple[int, int]],
    ) -> None:
        self.searches = searches
        self.sources = PromptSources(count)
        self._handlers = handlers
        self._live = LiveRuns()

    def starter(self, estimate: bool) -> Callable[..., Iterator[list[Any]]]:
        """A handler that opens a search and runs it, or only estimates its time."""

        def press(
            request: gr.Request, shown: Any, source: Any, text: Any, family: Any, count: Any,
            shots: Any, seed: Any, cache: Any, of: Any, keep: Any, candidates: Any, random: Any,
            *values: Any,
        ) -> Iterator[list[Any]]:  # fmt: skip
            try:
                who = visitor_id(request)
                problems = {"family": family, "count": count, "shots": shots, "seed": seed}
                made = self.searches.open(
                    self.sources.chosen(who, source, text, problems),
                    self._handlers.form.race(values).b, cache, of=of, keep=_share(keep),
                    candidates=candidates, random=bool(random),
                )  # fmt: skip
            except Exception as error:
                yield self._refusal(shown, error)
                return
            yield from self._stream(made, who, estimate)

        return press

    def go_on(self, request: gr.Request, shown: Any) -> Iterator[list[Any]]:
        """Continue the shown search."""
        try:
            search = self.searches.get(_shown_id(shown))
        except Exception as error:
            yield self._refusal(shown, error)
            return
        yield from self._stream(search, visitor_id(request), False)

    def reopen(self, asked: Any) -> list[Any]:
        """Show a search by its id, for a page that was loaded again; a skip if it is gone."""
        try:
            search = self.searches.get(asked)
        except ValueError:
            return [gr.skip()] * (1 + len(BUTTONS))
        return [self.document(search), *buttons(search)]

    def idle(self, shown: Any) -> list[Any]:
        """The buttons when no search of the visitor runs."""
        try:
            return buttons(self.searches.get(_shown_id(shown)))
        except ValueError:
            return buttons(None)

    def stop(self, request: gr.Request) -> None:
        """Stop the visitor's search within a step."""
        control = self._live.control(visitor_id(request))
        if control is not None:
            control.stop()

    def leave(self, request: gr.Request) -> None:
        """Handle a closed tab: stop its search and drop its file; what was run stays in memory."""
        self._live.leave(visitor_id(request))
        self.sources.leave(visitor_id(request))

    def document(self, search: Search, whole: bool = True) -> str:
        """A message of a search: its progress, and the advice so far if `whole`."""
        return to_json(search.front() if whole else search.progress())

    def fill(self, event: gr.EventData) -> list[Any]:
        """Show the Run tab with the settings of the race of a setting."""
        form = self._handlers.form
        try:
            values = form.values(self._race(event)[0])
        except ValueError:
            return [gr.skip()] * (1 + len(form.widgets))
        return [gr.Tabs(selected="run"), *values]

    def race(self, event: gr.EventData, request: gr.Request) -> Iterator[list[Any]]:
        """Run the race of a setting in lane B against plain decoding in lane A."""
        try:
            race, answer = self._race(event)
            self._handlers.session.plan(race.b)
        except Exception as error:
            yield [messages.notice("failed", self._said(error)), *race_buttons("over")]
            return
        yield from self._handlers.run_race(race, visitor_id(request), answer)

    def _race(self, event: gr.EventData) -> tuple[Any, str | None]:
        search = self.searches.get(getattr(event, "search", None))
        return search.race(getattr(event, "name", None)), search.answer

    def _stream(self, search: Search, who: str, estimate: bool) -> Iterator[list[Any]]:
        control = self._handlers.session.control()
        idle, shown = [gr.skip()] * len(BUTTONS), time.monotonic()
        self._live.begin(who, search.id, control)
        failure = ""
        try:
            yield [self.document(search), *buttons(search, running=True)]
            work = search.estimate(control) if estimate else search.run(control)
            with closing(work) as events:  # type: ignore[type-var]
                for _ in coalesce(events, MAX_HZ):
                    whole = time.monotonic() - shown > FIGURES_S
                    shown = time.monotonic() if whole else shown
                    yield [self.document(search, whole), *idle]
        except Exception as error:
            failure = self._said(error)
        finally:
            control.stop()
            self._live.end(who, search.id)
        document = self.document(search)
        if failure:
            document = to_json(json.loads(document) | {"state": "failed", "message": failure})
        yield [document, *idle]

    def _refusal(self, shown: Any, error: Exception) -> list[Any]:
        """What is wrong; a search that is shown stays and can be continued."""
        refused = {"state": "failed", "message": self._said(error)}
        try:
            search = self.searches.get(_shown_id(shown))
        except ValueError:
            empty = {"search": "", "stage": "", "done": 0, "total": 0, "seconds_left": None}
            return [to_json(empty | {"runs": 0} | refused), *buttons(None)]
        return [to_json(search.progress() | refused), *buttons(search)]

    def _said(self, error: Exception) -> str:
        return self._handlers.form.labelled(error_text(error))


def buttons(search: Search | None, running: bool = False) -> list[Any]:
    """Updates of the buttons: of a running search, of one that is not, or of none."""
    left = search is not None and search.state != "done"
    enabled = {"stop"} if running else {"run", "estimate", *(["continue"] if left else [])}
    return [gr.update(interactive=name in enabled) for name in BUTTONS]


def _share(percent: Any) -> Any:
    """A share of 1 for a percentage; anything else stays, to be refused by name."""
    return percent / 100 if type(percent) in (int, float) else percent


def _shown_id(shown: Any) -> Any:
    """The id of the search that a document shows; `shown` is untrusted."""
    try:
        found = json.loads(shown) if isinstance(shown, str) else None
    except (ValueError, RecursionError):
        found = None
    return found.get("search") if isinstance(found, dict) else None
