"""An exam whose batches several processes decode, and which resumes from the samples kept."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from engine.batch.decoding_code import code_version
from engine.config.spec import RunSpec
from engine.distributed.keyed_lines import KeyedLines, key_of, read_lines
from engine.distributed.processes import Processes
from engine.evaluate.exam import ExamResult, Questions, evaluate, fitted
from engine.guider.model import Guider
from engine.serve import environment
from engine.serve.loaded_model import LoadedModel, digests_of

OF_MACHINE = ("device_name", "dtype", "kernels", "threads", "torch")  # of an environment
RATES = ("tokens_per_s", "positions_per_s", "ms_per_problem")
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "bool": (bool,), "int": (int,), "float": (int, float), "tuple[int, ...]": (list,)
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Sample:
    """A decoded problem and where it was measured; `resumed` if it was read from a file."""

    result: ExamResult
    machine: Mapping[str, Any]
    resumed: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it, see `from_dict`."""
        return {"result": dataclasses.asdict(self.result), "machine": dict(self.machine)}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Sample:
        """The resumed sample of a line; raises ValueError naming a field that is wrong."""
        values, machine = row.get("result"), row.get("machine")
        if not isinstance(values, dict) or not isinstance(machine, dict):
            raise ValueError("result and machine must be objects")
        known = {field.name: str(field.type) for field in dataclasses.fields(ExamResult)}
        if unknown := sorted(values.keys() - known.keys()):
            raise ValueError(f"result.{unknown[0]} is unknown")
        for name, kind in known.items():
            if not isinstance(values.get(name), _TYPES[kind]):
                raise ValueError(f"result.{name} must be of type {kind}")
        result = ExamResult(**values | {"ids": tuple(values["ids"])})
        return cls(result, machine, resumed=True)


def machine_of(where: Mapping[str, Any], processes: int) -> dict[str, Any]:
    """What decides the time of a sample; `where` is that of `engine.serve.environment`."""
    return {name: where[name] for name in OF_MACHINE if name in where} | {"processes": processes}


def cut(
    model: LoadedModel | Guider, spec: RunSpec, questions: Questions, batch: int, fit: bool
) -> list[list[int]]:
    """The indices of the questions in each batch: exactly the batches that `evaluate` makes."""
    lengths = [
        fitted(spec, one, prompt, model.tokenizer).gen_length if fit else spec.gen_length
        for one, prompt in questions
    ]
    order = sorted(range(len(questions)), key=lambda index: lengths[index])
    alike = [list(same) for _, same in groupby(order, key=lambda index: lengths[index])]
    return [same[i : i + batch] for same in alike for i in range(0, len(same), batch)]


class SharedExam:
    """Decodes the problems of an exam with all processes; whole batches are dealt in turn.

    So every batch, and with it every text and count, is that of one process. With a `folder`, each
    process appends its samples to a file of its own there, and what any file there has is not
    decoded again, whatever the number of processes was. Only the main process reads the files. The
    same exam again, as of two rows with one spec, has samples of its own.
    """

    def __init__(self, processes: Processes, folder: Path | None) -> None:
        self._processes, self._lines = processes, None
        self._exams: list[list[list[str]]] = []  # the keys of each
        held: dict[str, Sample] = {}
        if folder is not None:
            held = dict(_kept(folder)) if processes.is_main else held
            self._lines = KeyedLines(folder / f"samples-{processes.rank}.jsonl")
        self._held: dict[str, Sample] = processes.gather(held)[0]

    def evaluate(
        self,
        model: LoadedModel | Guider,
        spec: RunSpec,
        questions: Questions,
        batch: int,
        fit: bool,
    ) -> list[Sample]:
        """The samples in the order of the questions, on every process. Errors as `gather`'s."""
        batches = cut(model, spec, questions, batch, fit)
        of_model = dict(digests_of(model, spec))
        if self._lines is not None:  # which another version may continue
            of_model["code"] = code_version(spec.cache, spec.unmasker)
        asked = [[questions[i] for i in group] for group in batches]
        keys = [_keys(spec, of_model, fit, group) for group in asked]
        earlier = self._exams.count(keys)
        self._exams.append(keys)
        if earlier:
            of_model["repetition"] = str(earlier)
            keys = [_keys(spec, of_model, fit, group) for group in asked]
        missing = [i for i, own in enumerate(keys) if not all(key in self._held for key in own)]
        found = {
            index: self._held[key]
            for i in sorted(set(range(len(batches))) - set(missing))
            for index, key in zip(batches[i], keys[i], strict=True)
        }
        work, where = len(questions) - len(found), environment.describe(spec, model.digest)
        machine = machine_of(where, self._processes.count)
        counted, own_samples = f"exam {len(self._exams)}", {}
        for share in self._processes.share(len(missing)):
            group = batches[missing[share]]
            results = evaluate(model, spec, asked[missing[share]], batch, fit)
            for index, key, result in zip(group, keys[missing[share]], results, strict=True):
                own_samples[index] = Sample(result, machine)
                if self._lines is not None:
                    self._lines.put(key, own_samples[index].to_dict())
            _tell(self._processes.add(counted, len(group)), len(group), work)
        for part in self._processes.gather(own_samples):
            found |= part
        return [found[index] for index in range(len(questions))]


def rates_removed(row: Mapping[str, Any], samples: list[Sample]) -> dict[str, Any]:
    """A row of `summarise` with the number of samples that were `resumed`, and their `machine`.

    The machine, which may be another than this one, and the RATES are None if the samples come from
    several kinds of machine, numbers of threads or numbers of processes, because their times cannot
    be added.
    """
    first = samples[0].machine
    several = any(one.machine != first for one in samples)
    known = {"resumed": sum(one.resumed for one in samples)}
    if several:
        return dict(row) | known | dict.fromkeys((*RATES, "machine"))
    return dict(row) | known | {"machine": dict(first)}


def _kept(folder: Path) -> Iterator[tuple[str, Sample]]:
    for path in sorted(folder.glob("samples-*.jsonl")):
        for key, row in read_lines(path):
            try:
                yield key, Sample.from_dict(row)
            except ValueError as error:
                print(f"{path}: a sample is decoded again: {error}", file=sys.stderr)


def _keys(spec: RunSpec, of_model: Mapping[str, str], fit: bool, questions: Questions) -> list[str]:
    """A key for each problem of a batch: of the run, not of the machine, and of its batch."""
    values = {name: value for name, value in spec.to_dict().items() if name != "device"}
    asked = [[prompt, one.solution] for one, prompt in questions]
    parts = {"spec": values, **of_model, "fit": fit, "batch": asked}
    return [key_of(parts | {"row": row}) for row in range(len(questions))]


def _tell(done: int, added: int, work: int) -> None:
    """Print the progress of all processes when this batch completed another percent of it."""
    if 100 * done // work > 100 * (done - added) // work:
        print(f"{done} of {work} problems", file=sys.stderr, flush=True)
