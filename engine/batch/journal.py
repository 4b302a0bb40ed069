"""Journal: the outcomes of a batch in a file, one JSON line each, from which it resumes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.batch.decoding_code import code_version
from engine.batch.outcome import Outcome
from engine.config.spec import RunSpec
from engine.distributed.keyed_lines import KeyedLines, key_of, read_lines

OF_RUN = ("seed", "record")  # of an environment; the spec has them as well


def run_key(spec: RunSpec, answer: str | None, environment: Mapping[str, Any]) -> str:
    """The key of a run: its spec with the prompt, the right answer, checkpoint and machine.

    `environment` is that of `engine.serve.environment`. Times of two machines, numbers of threads,
    choices of routines or versions are never mixed, because their keys differ.
    """
    where = {name: value for name, value in environment.items() if name not in OF_RUN}
    return key_of({"spec": spec.to_dict(), "answer": answer, "environment": where})


class Journal:
    """Outcomes by key, and the file that they are appended to as they are finished.

    A line that is damaged, for example the last one of a process that was killed, is left out and
    its run is done again. Without a `path` nothing is written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._lines = None if path is None else KeyedLines(path)
        self._held: dict[str, Outcome] = {}
        for key, row in () if path is None else read_lines(path):
            with suppress(ValueError, TypeError, KeyError, AttributeError):
                self._held[key] = Outcome.from_dict(row)

    def __len__(self) -> int:
        return len(self._held)

    def version(self, spec: RunSpec) -> dict[str, str]:
        """The version of the code as a part of a run's environment; empty without a file.

        Another version may continue a file, and its outcomes are not mixed with those kept there.
        """
        if self._lines is None:
            return {}
        return {"code": code_version(spec.cache, spec.unmasker)}

    def get(self, key: str) -> Outcome | None:
        """The outcome of a key, or None."""
        return self._held.get(key)

    def put(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome, and append it to the file before returning."""
        self._held[key] = outcome
        if self._lines is not None:
            self._lines.put(key, outcome.to_dict())
