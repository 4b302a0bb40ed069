"""API endpoints of the advisor: `/advise` and `/advise_results`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import gradio as gr

from inspector.handlers.api import refused
from inspector.handlers.page_handlers import RUNS, Handlers
from inspector.handlers.tasks.task_api import TaskEndpoints, prompt_source
from inspector.protocol import Search, Searches

ASKED = ("of", "keep", "candidates", "random", "seed")


class AdviceEndpoints(TaskEndpoints[Search]):
    """The endpoints of searches for settings."""

    kind: ClassVar[str] = "search"
    fields: ClassVar[tuple[str, ...]] = (
        "prompts", "problems", "spec", "cache", *ASKED, "estimate", "search",
    )  # fmt: skip
    tasks: Searches

    def advise(self, search: dict) -> Iterator[dict]:
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
        work = found.estimate if estimate else found.run
        yield from self._stream(work, lambda _: found.progress())
        yield found.figures()

    def results(self, search: str) -> dict:
        """Return the figures of a search so far.

        Args:
            search: the id of the search.
        """
        return self._answer(search, lambda found: found.figures())

    def _opened(self, asked: Any) -> tuple[Search, bool]:
        """The search of a request, and whether only its time is wanted."""
        found, estimate = self._checked(asked)
        if found is None:
            chosen = {name: asked[name] for name in ASKED if name in asked}
            found = self.tasks.open(
                prompt_source(asked), self._base(asked), asked.get("cache"), **chosen
            )
        return found, estimate


def add_advice_api(handlers: Handlers, searches: Searches) -> None:
    """Register the endpoints in the current Blocks."""
    endpoints = AdviceEndpoints(handlers, searches)
    gr.api(endpoints.advise, api_name="advise", **RUNS)
    gr.api(endpoints.results, api_name="advise_results")
