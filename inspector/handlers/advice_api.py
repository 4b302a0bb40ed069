"""API endpoints of the advisor: `/advise` and `/advise_results`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import gradio as gr

from engine.config.spec import RunSpec
from inspector.handlers.api import refused
from inspector.handlers.batch_api import prompt_source
from inspector.handlers.page_handlers import RUNS, Handlers, visitor_id
from inspector.protocol import Search, Searches
from inspector.run_store import LiveRuns
from inspector.server.throttle import coalesce

MAX_HZ = 2.0
ASKED = ("of", "keep", "candidates", "random", "seed")
FIELDS = ("prompts", "problems", "spec", "cache", *ASKED, "estimate", "search")


class AdviceEndpoints:
    """The endpoints of searches for settings."""

    def __init__(self, handlers: Handlers, searches: Searches) -> None:
        self._handlers, self._searches = handlers, searches
        self._live = LiveRuns()

    def advise(self, search: dict, request: gr.Request) -> Iterator[dict]:
        """Search for settings of a cache method; stream the progress, then all figures.

        A cancelled call keeps what was run: pass its id as `search` to go on.

        Args:
            search: an object with `prompts` (a text with a prompt in each line, or a list of
                objects with `prompt` and optionally `answer`) or `problems` (`family`, `count`,
                `shots`, `seed`), at least 6; `cache`, a method, several with commas, or `all`;
                `of`, what is kept (`tokens`, `answers` or `accuracy`), and `keep`, the share of it;
                `spec`, fields of all settings; `candidates`, settings to run; `random`, whether as
                many are drawn at random, to compare; `estimate`, whether only plain decoding is
                timed. Or an object with only `search`, the id of a search to continue.
        """
        try:
            found, estimate = self._opened(search)
        except Exception as error:
            raise refused(error) from None
        who = f"api:{visitor_id(request)}:{found.id}"
        control = self._handlers.session.control()
        self._live.begin(who, found.id, control)
        try:
            work = found.estimate(control) if estimate else found.run(control)
            with closing(work) as events:  # type: ignore[type-var]
                for _ in coalesce(events, MAX_HZ):
                    yield found.progress()
            yield found.front()
        except (GeneratorExit, gr.Error):
            raise
        except Exception as error:
            raise refused(error) from None
        finally:
            control.stop()
            self._live.leave(who)

    def results(self, search: str) -> dict:
        """Return the figures of a search so far.

        Args:
            search: the id of the search.
        """
        try:
            return self._searches.get(search).front()
        except Exception as error:
            raise refused(error) from None

    def _opened(self, asked: Any) -> tuple[Search, bool]:
        """The search of a request, and whether only its time is wanted."""
        if not isinstance(asked, Mapping):
            raise ValueError("search: expected an object")
        if unknown := sorted(set(asked) - set(FIELDS)):
            raise ValueError(f"search: {unknown[0][:40]!r} is unknown; use {', '.join(FIELDS)}")
        estimate = asked.get("estimate", False)
        if type(estimate) is not bool:
            raise ValueError("estimate: expected true or false")
        if "search" in asked:
            if set(asked) - {"search", "estimate"}:
                raise ValueError("search: a search that goes on has its own prompts and settings")
            return self._searches.get(asked["search"]), estimate
        base, given = self._handlers.session.default_race().a, asked.get("spec", {})
        if not isinstance(given, Mapping):
            raise ValueError("spec: expected an object with fields of a run spec")
        base = RunSpec.from_dict(replace(base, prompt="").to_dict() | dict(given))
        chosen = {name: asked[name] for name in ASKED if name in asked}
        found = self._searches.open(prompt_source(asked), base, asked.get("cache"), **chosen)
        return found, estimate


def add_advice_api(handlers: Handlers, searches: Searches) -> None:
    """Register the endpoints in the current Blocks."""
    endpoints = AdviceEndpoints(handlers, searches)
    gr.api(endpoints.advise, api_name="advise", **RUNS)
    gr.api(endpoints.results, api_name="advise_results")
