"""Session: models, the lock on them, and runs as streams of events."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine import catalog
from engine.config.spec import RaceSpec, RunSpec
from engine.core.control import Control
from engine.core.device import free_memory, is_out_of_memory
from engine.core.events import Event, RunFinished
from engine.core.progress import run_to_end, with_progress
from engine.estimate.devices import THIS_MACHINE
from engine.estimate.gpu_time import RESERVE, GpuSpec, run_seconds, start_seconds
from engine.estimate.request import EstimateRequest, estimate_choices, estimate_spec
from engine.generate.branch import BranchPoint, branch_point
from engine.generate.what_if import what_if
from engine.models.base import ModelInfo
from engine.models.loading.hub import Hub
from engine.serve import environment
from engine.serve.calibrate import calibration_forwards
from engine.serve.fair_queue import FairQueue, RunLock
from engine.serve.guider_pool import decodes_causally
from engine.serve.limits import AUTO, OWN_RECORDING, Limits, planned_recording
from engine.serve.loaded_model import check_context, digests_of
from engine.serve.memory_budget import MemoryBudget, device_titles, present_devices
from engine.serve.model_pool import ModelPool
from engine.serve.out_of_memory import check_race, out_of_memory_message
from engine.serve.race import load_lanes, run_lanes, wait_for_lock, without_runs
from engine.tiny import suite
from engine.trace.file_format import MAX_BYTES
from engine.trace.trace import Trace
from engine.vision import run_images
from engine.vision.example_image import example_image
from engine.vision.picture import Picture, PictureLimits, read_picture

EMPTY_CANVAS = np.zeros((1, 0), np.int32)


class Session:
    """The engine's interface for the page and for programs; its runs share the lock of `queue`.

    `folders` are models by name. With a `hub`, the models registered there may be named too, and
    any other of the Hub's. A `public` session accepts only the listed models and applies `Limits`
    to every run; otherwise a spec may also name a folder.
    """

    def __init__(
        self, folders: Mapping[str, Path], hub: Hub | None = None, public: bool = False
    ) -> None:
        self._models = ModelPool(folders, hub, public)
        self._folders = dict(folders)
        self._trained = suite.families_by_model(folders)
        self.queue = FairQueue()
        self._limits = Limits() if public else None

    def catalog(self) -> dict[str, Any]:
        """Models, devices with titles, unmaskers, caches and spec fields as plain data.

        Each of the `models` has name, title, family, max_length, licence, parameters, embedded,
        active_parameters (of one row), available, registered, fetch_bytes, presets, images,
        image_problem, attention, block_sizes, and error if it cannot be read. `image_limits` are
        PictureLimits. `guiders` are the listed names for `guided.guider`. `any_model`: models and
        guiders that are not listed may be named too. `trace_bytes`: the largest trace file.
        `estimates` are the models and devices that an estimate may name: pairs of title and name.
        """
        models = list(self._models.describe())
        own: dict[str, Any] = {
            "models": models, "estimates": estimate_choices(models, self._limits is not None),
            "devices": present_devices(), "device_titles": device_titles(),
            "guiders": self._models.guiders.names, "any_model": self._limits is None,
            "trace_bytes": MAX_BYTES if self._limits is None else self._limits.trace,
            "image_limits": self._picture_limits._asdict(),
        }  # fmt: skip
        described = catalog.describe()
        if self._limits is not None:
            own["devices"].remove(AUTO)
            described["fields"] = self._limits.limit_fields(described["fields"])
        return own | described

    def read_image(self, data: bytes) -> Picture:
        """The picture of an image file, for `images` of a run; `str(picture.ref)` names it.

        Raises ValueError naming `images` for a file that is too large, truncated, animated, damaged
        or no image; see `vision.picture.read_picture`.
        """
        return read_picture(data, self._picture_limits)

    def control(self) -> Control:
        """A new control for a run."""
        return Control()

    def plan(self, spec: RunSpec) -> dict[str, Any]:
        """The derived plan of a spec, the prompt's tokens, the model's context and the memory.

        `image_rows` of the `prompt_tokens` are rows of images, which take `image_flops` once.
        `confidence_decides`: whether the model's confidence decides how many tokens a step commits.
        `suffix_tokens`: those of the text after the answer, 0 if unknown. `end_of_text`: the rule
        by which the run ends. `dtype`: its number format, `dtype_reason`: why `auto` is that one,
        or empty. `attention`: that of the model, empty if unknown. `probe_forwards`: most exact
        forwards that level `probe` adds. `calibration_forwards`: most that measure drifts before
        the run, 0 if the model's sizes are unknown. `weights_bytes`, `memory_bytes` (weights and
        run), `free_bytes`: of the device; `kept_bytes`: of the run, what it keeps from step to
        step. `fetch_bytes`: to download, a guider's included if known. `guider_bytes`: the guider's
        memory, None if unknown before its download. `recording`: the level, the bytes that the
        recorder keeps of it at most, and why that is refused (or empty); of level `layers` if the
        spec's is `off`; None if the sizes of model or prompt are unknown. `recording_bytes`: those
        bytes, with an unknown prompt of the longest one, and at most as many as are allowed.
        The network is not used: `prompt_tokens` is None for a model that is not on disk, and so are
        the bytes if it is not registered either. Raises ValueError naming the field that is wrong.
        """
        if self._limits is not None:
            self._limits.check(spec)
        (spec,) = catalog.with_end_of_text_rules([spec])
        fetched = self._models.run_fetch_bytes(spec)  # first: a download may end during the plan
        number_format = self._models.formats.choice(spec)
        spec = dataclasses.replace(spec, dtype=number_format.dtype)
        info, found = self._models.run_info(spec), self._models.run_prompt(spec)
        prompt = None if found is None else found.ids
        tokens = None if prompt is None else len(prompt)
        derived, scheduled = catalog.derive_plan(spec, info, tokens)
        vision = self._models.vision(spec.model) if spec.images else None
        shown, calibrating = run_images.image_rows(spec, vision), 0
        recording: dict[str, Any] = {"recording": None, "recording_bytes": None}
        suffix = self._models.suffix_tokens(spec)
        if info is not None:
            if not decodes_causally(spec):
                catalog.check_model(spec, info)
                calibrating = calibration_forwards(self._models, spec, info)
            check_context(tokens or shown + 1, spec, info, suffix)
            recording = planned_recording(spec, info, tokens, self.recording_limit, suffix, shown)
        if prompt is not None and info is not None and not decodes_causally(spec):
            self._models.guiders.check(spec, self._models.tokenizer(spec.model), info, prompt)
        budget = self._models.memory_budget(spec, tokens or shown + 1)
        none = dict.fromkeys(MemoryBudget._fields)
        memory: dict[str, int | None] = none if budget is None else budget._asdict()
        memory["guider_bytes"] = self._models.guiders.planned_bytes(spec, tokens or 1)
        probes = 0 if decodes_causally(spec) else spec.max_probes(derived.max_forwards)
        return dataclasses.asdict(derived) | memory | recording | {
            "prompt_tokens": tokens, "suffix_tokens": suffix, "calibration_forwards": calibrating,
            "context": None if info is None else info.max_length, "fetch_bytes": fetched,
            "confidence_decides": catalog.make_rule(spec).confidence_decides, "image_rows": shown,
            "scheduled": scheduled, "probe_forwards": probes, "dtype_reason": number_format.reason,
            "image_flops": run_images.image_flops(spec, vision), "end_of_text": spec.eos,
            "attention": "" if info is None else info.attention, "dtype": spec.dtype,
        }  # fmt: skip

    def check_race(self, race: RaceSpec, plans: Sequence[Mapping[str, Any]]) -> None:
        """Raise InsufficientMemoryError if the lanes fit one by one, but not together.

        `plans` are those of both lanes (see `plan`).
        """
        check_race((race.a, race.b), plans, self._models)

    def estimate(self, spec: RunSpec, model: str, device: str, **given: Any) -> dict[str, Any]:
        """FLOPs, memory and time of a run with these settings on another model; nothing is run.

        `given` are further fields of `EstimateRequest`; see `estimate.request.estimate_spec`. A
        `dtype` of `auto` is that of this machine, whose rates are measured while no run computes.
        """
        if self._limits is not None:
            self._limits.check(spec)
            if device == THIS_MACHINE:
                raise ValueError("device: this machine is not measured on a public page")
        request = EstimateRequest(model, device, **given)
        spec = self._models.formats.known(spec)
        if device != THIS_MACHINE:
            return estimate_spec(self._models, spec, request)
        with without_runs(self.queue):
            return estimate_spec(self._models, spec, request)

    @property
    def _picture_limits(self) -> PictureLimits:
        return PictureLimits() if self._limits is None else self._limits.picture

    def takes_images(self, name: str) -> bool:
        """Whether a model takes images; False if it cannot be read or is unknown."""
        try:
            return self._models.vision(name) is not None
        except ValueError:
            return False

    def example_image(self) -> Picture:
        """A drawn example image."""
        return Picture.of_image(example_image())

    @property
    def recording_limit(self) -> int:
        """Bytes that the recorder may keep of one run."""
        return OWN_RECORDING if self._limits is None else self._limits.recording

    def what_if(self, trace: Trace, step: int, settings: Mapping[str, str]) -> dict[str, Any]:
        """What a recorded step would have committed under other settings; computes no forward.

        See `generate.what_if`. Raises ValueError naming the field, or what the trace lacks.
        """
        return what_if(trace, step, settings)

    def resolve(self, race: RaceSpec) -> RaceSpec:
        """The race as it is run: `eos` of each lane is its end-of-text rule.

        Lanes with the same `eos` run by the same rule, also if one of them is guided. Raises
        ValueError naming the field.
        """
        return RaceSpec(*catalog.with_end_of_text_rules([race.a, race.b]))

    def run(
        self,
        spec: RunSpec,
        control: Control | None = None,
        parents: Mapping[str, Trace] | None = None,
        images: Mapping[str, Picture] | None = None,
    ) -> Iterator[Event]:
        """The events of one run; see `race`."""
        (spec,) = catalog.with_end_of_text_rules([spec])
        stream = self._stream({"a": spec}, control or Control(), parents or {}, images or {})
        return (event for _, event in stream)

    def race(
        self,
        race: RaceSpec,
        control: Control | None = None,
        parents: Mapping[str, Trace] | None = None,
        images: Mapping[str, Picture] | None = None,
    ) -> Iterator[tuple[str, Event]]:
        """The events of two runs, in lanes `a` and `b`, that take turns on the device.

        `parents` holds the traces that a spec's `start` may name, by id; they are only read.
        `images` holds the pictures that the specs name (`read_image`); they are dropped at the end.
        Raises ValueError before any computation if a spec is impossible or too many runs wait. A
        later failure ends in a RunFinished with reason `failed`, or `memory` if memory ran out.
        """
        race = self.resolve(race)
        lanes = {"a": race.a, "b": race.b}
        return self._stream(lanes, control or Control(), parents or {}, images or {})

    def preload(self, name: str) -> None:
        """Download a model if necessary and preload it, on a GPU in bfloat16 if there is one."""
        place = {"device": "cuda", "dtype": "bfloat16"} if torch.cuda.is_available() else {}
        spec = RunSpec.from_dict({"model": name} | place)  # without a prompt, since nothing is run
        run_to_end(self._models.fetch(spec))
        with without_runs(self.queue):
            self._models.preload(spec)

    def model_info(self, name: str) -> ModelInfo:
        """The sizes of a model. Raises ValueError naming `model` if they are not known."""
        info = self._models.info(name)
        if info is None:
            raise ValueError(f"model: the sizes of {name} are not known; download it first")
        return info

    def environment(self, spec: RunSpec, control: Control | None = None) -> dict[str, Any]:
        """Machine, versions and weights of a run with these settings; loads its model.

        See `serve.environment`. Raises ValueError naming the field that is impossible, and
        StoppedError if `control` is stopped while it waits.
        """
        control = control or Control()
        fetching = self._models.fetch(self._models.formats.known(spec))
        run_to_end(with_progress(fetching, "fetching", spec.model, control))
        with without_runs(self.queue, control):
            spec = self._models.formats.measured(spec)
            model = self._models.load_to_run(spec)
            return environment.describe(spec, model.digest) | digests_of(model, spec)

    def forked(self) -> Session:
        """This session for a forked process: the same models, a queue of its own and one thread.

        The fork may have copied a held lock, or a library's threads at work.
        """
        torch.set_num_threads(1)
        own = copy.copy(self)
        own.queue = FairQueue()
        return own

    def seconds(self, gpu: GpuSpec, spec: RunSpec, plan: Mapping[str, Any]) -> float:
        """The most seconds of a run on a shared GPU, with RESERVE and a worker's start."""
        info = self._models.run_info(spec)
        assert info is not None, "its models are loaded"
        own = run_seconds(gpu, spec, info, plan) + self._models.guiders.seconds(gpu, spec, plan)
        return RESERVE * own + start_seconds(spec, info)

    def problem(self, seed: int, shots: int = 0, family: str | None = None) -> dict[str, Any]:
        """A problem of the embedded corpus with `shots` worked examples, see `tiny.suite`.

        `family` is by default the first of `families`. Raises ValueError for an unknown family.
        """
        return suite.problem(seed, shots, family or suite.DEFAULT_FAMILY)

    def families(self, model: str = "") -> list[tuple[str, str]]:
        """Label and name of the families that a model was trained on, the default one first.

        Those of all models together for a model that is not embedded, or for none.
        """
        return suite.labelled_families(self._trained, model)

    def embedded_suite(self) -> dict[str, Any]:
        """What is known of the embedded models, see `tiny.suite`."""
        return suite.describe_suite(self._folders, suite.known_families(self._trained))

    def default_shots(self) -> int:
        """The number of worked examples before the problem of the default race."""
        return suite.SHOTS

    def examples(self) -> list[dict[str, Any]]:
        """Prompts to start from, of families that the default race's model knows."""
        first = next(iter(self._folders), "")
        return suite.examples(suite.known_families(self._trained, first))

    def default_race(self) -> RaceSpec:
        """Plain decoding against Fast-dLLM's dual cache with threshold 0.9."""
        names = (row["name"] for row in self._models.describe() if row["available"])
        return suite.default_race(next(names, RunSpec().model))

    def _stream(
        self,
        specs: Mapping[str, RunSpec],
        control: Control,
        parents: Mapping[str, Trace],
        pictures: run_images.Pictures,
    ) -> Iterator[tuple[str, Event]]:
        plans = self._checked(specs)
        points = {name: self._point(spec, parents) for name, spec in specs.items()}
        for spec in specs.values():
            run_images.check_given(spec, pictures)
        self.queue.check_room(control.owner)
        lock = RunLock(self.queue, sum(plan["max_forwards"] for plan in plans), control.owner)
        running, reason, failure = list(specs), "stopped", ""
        missing = any(plan["fetch_bytes"] != 0 for plan in plans)
        events = self._events(specs, points, missing, parents, lock, control, pictures)
        try:
            with closing(events):  # here, or its lanes would outlive the lock
                for name, event in events:
                    if isinstance(event, RunFinished):
                        running.remove(name)
                    yield name, event
        except Exception as error:  # any failure is reported, and the lock is released
            reason = "memory" if is_out_of_memory(error) else "failed"
            failure = out_of_memory_message(error, specs.values(), self._models)
        finally:
            self._models.in_use.remove(lock)
            if running and lock.held:  # before another run captures a graph
                with suppress(RuntimeError):  # of a device that answers no more
                    free_memory()
            lock.release()
        for name in running:
            yield name, RunFinished(reason, EMPTY_CANVAS, message=failure)

    def _checked(self, specs: Mapping[str, RunSpec]) -> list[dict[str, Any]]:
        """The plans of specs that run together. Raises ValueError if they cannot."""
        plans = [self.plan(spec) for spec in specs.values()]
        check_race(list(specs.values()), plans, self._models)
        return plans

    def _point(self, spec: RunSpec, parents: Mapping[str, Trace]) -> BranchPoint | None:
        """The branch point of a checked spec; None while its model is not on disk."""
        prompt = self._models.prompt(spec)
        return None if prompt is None else branch_point(spec, parents, prompt)

    def _events(
        self,
        specs: Mapping[str, RunSpec],
        points: Mapping[str, BranchPoint | None],
        missing: bool,
        parents: Mapping[str, Trace],
        lock: RunLock,
        control: Control,
        pictures: run_images.Pictures,
    ) -> Generator[tuple[str, Event], None, None]:
        for name, spec in specs.items():  # without the lock: other runs continue
            fetching = self._models.fetch(self._models.formats.known(spec))
            for waiting in with_progress(fetching, "fetching", spec.model, control):
                yield name, waiting
            if control.state == "stopped":
                return
        if missing:  # the sizes and the prompt's tokens are known now
            self._checked(specs)
            points = {name: self._point(spec, parents) for name, spec in specs.items()}
        for waiting in wait_for_lock(lock, control):
            yield next(iter(specs)), waiting
        if control.state == "stopped":  # the lock is not held then
            return
        specs = {name: self._models.formats.measured(spec) for name, spec in specs.items()}
        self._models.in_use.add(lock, control, list(specs.values()))
        lanes = yield from load_lanes(self._models, specs, points, pictures, control)
        if lanes is None:
            return
        for name, lane in lanes.items():
            start = specs[name].start
            before = parents[start.trace].steps_before + start.step if start else 0
            yield name, dataclasses.replace(lane.start(), steps_before=before)
        yield from run_lanes(lanes, lock, control)
