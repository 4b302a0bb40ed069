"""How the engine decodes the cases of LLaDA-V, and the comparison of its images and prompts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image

from engine.catalog import make_policy, make_unmasker
from engine.config.spec import RunSpec
from engine.generate.loop import Denoiser
from engine.models.base import ModelAdapter
from engine.models.given_rows import GivenRows
from engine.models.loading.checkpoint import Checkpoint
from engine.models.loading.config import read_config
from engine.models.tokenizer import Tokenizer
from engine.unmask.base import Unmasker
from engine.vision.config import VisionInfo, read_vision_info
from engine.vision.crops import crops_of, pixel_values
from engine.vision.encoder import ImageEncoder
from engine.vision.picture import Picture
from engine.vision.prompt import PlacedImage, expanded, ids_with_placeholders, placed_images
from tests.compat.llada_v import LastRankFactor, ListedStops, without_newline
from tests.conformance.cases import Case, UnknownCaseError
from tests.conformance.recorders import ObservedRecorder, RecordedLogits, ShippedRecorder, wide
from tests.conformance.runs import CapturerOf, Decoded, Setup, decode

METHODS = ("llada_v_vanilla", "llada_v_fast", "llada_v_dllmcache")
SETTINGS: dict[str, Any] = {
    "gen_length": None, "block_length": None, "steps": None, "stop_ids": None, "suffix_ids": None,
    "suffix": None, "cfg_scale": None, "prefix_refresh_interval": None, "factor": None,
    "kp": None, "kr": None, "rho": (0.0,),
}  # fmt: skip
ARRAYS = frozenset({
    "prompt_text", "prompt_ids", "image0", "image1", "image2", "image3", "crops_small", "pixel_lut",
    "feat_index", "tower_rows", "projector_rows", "newline_rows", "embed_pos", "embed_rows",
    "embed_sum", "final_ids", "returned_ids", "nfe", "unmask_call", "fed_first", "fed_count",
    "logit_call", "logit_pos", "logits", "paper_final_ids", "paper_returned_ids",
    "paper_unmask_call", "paper_nfe", "paper_fed_first",
})  # fmt: skip
# The README of the recordings gives these; float32 noise of 2e-6 on all weights moves logits by up
# to 1.5e-2.
ATOL, LUT_ATOL, ROW_ATOL, SUM_ATOL = 3e-2, 2e-7, 1e-4, 1e-3
PAPER = ("final_ids", "returned_ids", "unmask_call", "nfe", "fed_first")


class NotingEncoder(ImageEncoder):
    """Keeps the tower's rows of all crops that it encodes."""

    def __init__(self, info: VisionInfo) -> None:
        super().__init__(info)
        self.encoded: list[torch.Tensor] = []

    def features(self, pixels: torch.Tensor) -> torch.Tensor:
        """As the encoder."""
        found = super().features(pixels)
        self.encoded.append(found)
        return found


@dataclass
class LoadedCase:
    """The parts of a case that its runs share."""

    case: Case

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The files of the model."""
        return Checkpoint(self.case.model_folder(self.case.entry["model"]))

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        return Tokenizer(self.checkpoint.folder)

    @cached_property
    def vision(self) -> VisionInfo:
        """The sizes of the vision part."""
        adapter = self.adapter
        config = read_config(self.checkpoint.folder)
        return read_vision_info(config, self.checkpoint.shapes, adapter.info.d_model)

    @cached_property
    def adapter(self) -> ModelAdapter:
        """The language model."""
        return self.case.load_adapter()

    @cached_property
    def encoder(self) -> NotingEncoder:
        """The vision part."""
        return NotingEncoder.from_checkpoint(
            self.checkpoint, self.vision, torch.float32, self.case.device
        )

    @cached_property
    def pictures(self) -> list[Picture]:
        """The images."""
        count = len(self.case.entry["images"])
        found = [self.case.arrays[f"image{i}"] for i in range(count)]
        return [Picture.of_image(Image.fromarray(pixels)) for pixels in found]

    @property
    def spec(self) -> RunSpec:
        """The settings of the run."""
        return spec_of(self.case, [str(picture.ref) for picture in self.pictures])

    @cached_property
    def ids(self) -> list[int]:
        """The ids of the prompt with placeholders, by the engine."""
        return ids_with_placeholders(self.spec, self.tokenizer)

    @cached_property
    def placed(self) -> tuple[PlacedImage, ...]:
        """The images where the recorded run has them."""
        mode = "pad" if self.case.entry["aspect"] == "pad" else None
        found = placed_images(self.spec.images, self.ids, self.vision, mode)
        if self.case.entry["route"] != "tensor":
            return found
        short = [one.layout._replace(rows=one.layout.rows - 1) for one in found]
        return tuple(
            replace(one, layout=layout, first=one.first - i)
            for i, (one, layout) in enumerate(zip(found, short, strict=True))
        )

    @cached_property
    def given(self) -> list[torch.Tensor]:
        """The rows of each image."""
        pad = [replace(one, layout=self.vision.layout(one.ref, one.mode)) for one in self.placed]
        pairs = zip(self.pictures, pad, strict=True)
        rows = [self.encoder.encode(picture, one.layout) for picture, one in pairs]
        tensor = self.case.entry["route"] == "tensor"
        return [without_newline(one) for one in rows] if tensor else rows

    @cached_property
    def prompt(self) -> torch.Tensor:
        """The ids of the prompt on the canvas."""
        return torch.tensor(expanded(self.ids, self.placed, self.adapter.info.pad_id))

    def setup(self, released: bool) -> Setup:
        """What decodes the case, as released or as it ships.

        Several stops follow the released rule in both runs, as the recording does.
        """
        settings, spec = self.case.settings, self.spec
        listed = released or len(settings["stop_ids"]) > 1
        suffix = tuple(settings["suffix_ids"])
        length = len(self.prompt) + spec.gen_length + len(suffix)
        firsts = [one.first for one in self.placed]
        rows = GivenRows(length, list(zip(firsts, self.given, strict=True))) if firsts else None

        def unmasker() -> Unmasker:
            if released and spec.unmasker == "factor":
                return LastRankFactor(factor=settings["factor"])
            return make_unmasker(spec)

        return Setup(
            adapter=self.adapter.with_given_rows(rows),
            spec=spec,
            make_policy=lambda: make_policy(spec),
            make_unmasker=unmasker,
            make_denoiser=ListedStops if listed else Denoiser,
            suffix=suffix,
            stops=tuple(map(tuple, settings["stop_ids"])),
        )


def spec_of(case: Case, images: Sequence[str] = ()) -> RunSpec:
    """The RunSpec of a case. Raises UnknownCaseError for settings that are not known."""
    case.check_settings(SETTINGS)
    settings, knobs = case.settings, dict[str, Any]()
    cache, unmasker = "none", "quota"
    if "prefix_refresh_interval" in settings:
        cache = "prefix"
        knobs["prefix.refresh_interval"] = settings["prefix_refresh_interval"]
    if "kp" in settings:
        cache = "dllm_cache"
        knobs["dllm_cache.prompt_interval"] = settings["kp"]
        knobs["dllm_cache.response_interval"] = settings["kr"]
        knobs["dllm_cache.recompute_ratio"] = settings["rho"]
        knobs["dllm_cache.layer0_dense"] = False  # LLaDA-V's hook has no rule for layer 1
    if "factor" in settings:
        unmasker, knobs["factor.factor"] = "factor", float(settings["factor"])
    return RunSpec(
        prompt=case.entry["question"],
        images=tuple(images),
        gen_length=settings["gen_length"],
        block_length=settings["block_length"],
        steps=settings["steps"],
        unmasker=unmasker,
        cache=cache,
        cfg_scale=float(settings.get("cfg_scale", 0.0)),
        knobs=knobs,
    )


def compare(case: Case, capturer_of: CapturerOf) -> tuple[Any, ...]:
    """The fields of an Outcome: a run as released and one as it ships, against the recordings."""
    if case.entry["aspect"] not in ("anyres_max_4", "pad"):
        raise UnknownCaseError(f"aspect {case.entry['aspect']} is unknown")
    loaded = LoadedCase(case)
    observed, shipped = ObservedRecorder(case.arrays), ShippedRecorder(case.arrays)
    differences = [*prompt_differences(loaded), *image_differences(loaded)]

    calls = observed_calls(case)
    found = decode(loaded.setup(released=True), loaded.prompt, observed, steps=calls)
    differences += run_differences(loaded, found, arrays_until(loaded, calls), observed.fed)
    if observed.logits.compared != len(observed.logits):
        differences.append(f"{observed.logits.compared} of {len(observed.logits)} logits rows")
    differences += wide(observed.logits.error(), ATOL)

    setup = loaded.setup(released=False)
    own, steps, sound = paper_arrays(case.arrays), int(case.arrays["nfe"]), sound_steps(case)
    shipped.logits = RecordedLogits(case.arrays, sound)
    found = decode(setup, loaded.prompt, shipped, capturer_of(setup.adapter, False))
    others = [*run_differences(loaded, found, own), *wide(shipped.logits.error(), ATOL)]
    if not shipped.logits.compared:
        others.append("no logits were compared")
    differences += [f"as shipped: {one}" for one in others]
    return (
        differences, observed.logits.error(), shipped.logits.error(), shipped.logits.compared,
        steps, steps, sorted(set(case.arrays) - ARRAYS),
    )  # fmt: skip


def observed_calls(case: Case) -> int:
    """The calls of the observed run: all, or as many as logits are recorded of.

    Without a cache and without stops the shipped run repeats it, and is compared to its end.
    """
    if case.method != "llada_v_vanilla" or case.settings["stop_ids"]:
        return int(case.arrays["nfe"])
    return int(case.arrays["logit_call"].max()) + 1


def arrays_until(loaded: LoadedCase, calls: int) -> dict[str, np.ndarray]:
    """The arrays of a run that ends after some of the recorded calls."""
    golden = loaded.case.arrays
    if calls == int(golden["nfe"]):
        return golden
    later, order = golden["unmask_call"] >= calls, golden["unmask_call"]
    ids = np.where(later, loaded.adapter.info.mask_id, golden["final_ids"])
    own = {"final_ids": ids, "returned_ids": ids, "nfe": np.array(calls)}
    own["unmask_call"] = np.where(later, -1, order)
    return golden | own | {name: golden[name][:calls] for name in ("fed_first", "fed_count")}


def sound_steps(case: Case) -> int:
    """The last call whose canvas is the same as released and by the paper's rule."""
    golden = case.arrays
    by_code, by_paper = golden["unmask_call"], golden.get("paper_unmask_call")
    if by_paper is None or np.array_equal(by_code, by_paper):
        return int(golden["nfe"])
    parted = by_code != by_paper
    return int(min(by_code[parted].min(), by_paper[parted].min()))


def paper_arrays(golden: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of the run by the paper's rule, where a case has them."""
    return {
        name: golden.get(f"paper_{name}", golden[name]) if name in PAPER else golden[name]
        for name in golden
    }


def run_differences(
    loaded: LoadedCase,
    found: Decoded,
    golden: Mapping[str, np.ndarray],
    fed: Sequence[np.ndarray] | None = None,
) -> Iterator[str]:
    """Differences in ids, calls, order and, if given, the rows fed to each call."""
    state, run = found.state, found.state.run
    ids = state.ids[0, run.prompt_length :]
    same = ~surplus(golden, found.order, run.gen_length)
    wrong = int((ids != golden["final_ids"])[same].sum())
    if wrong:
        yield f"final_ids differ at {wrong} positions"
    stop = state.answer_length(0)
    returned = np.concatenate((ids[:stop], ids[run.gen_length :]))
    if not np.array_equal(returned, golden["returned_ids"]):
        yield "returned_ids differ"
    if state.step_index != int(golden["nfe"]):
        yield f"nfe {state.step_index}, recorded {int(golden['nfe'])}"
    wrong = int((found.order != golden["unmask_call"])[same].sum())
    if wrong:
        yield f"unmask_call differs at {wrong} positions"
    if fed is not None and loaded.case.method != "llada_v_dllmcache":
        rows = [np.flatnonzero(one) for one in fed]
        for name, values in (
            ("fed_first", [r[0] for r in rows]), ("fed_count", [len(r) for r in rows])
        ):  # fmt: skip
            if not np.array_equal(values, golden[name]):
                yield f"{name} differs"
        if any(np.diff(r).max(initial=1) > 1 for r in rows):
            yield "fed rows are not contiguous"


def surplus(golden: Mapping[str, np.ndarray], order: np.ndarray, answer: int) -> np.ndarray:
    """Positions [G + suffix] behind a stop that only the last recorded call committed.

    `order` are the calls that committed each position here, `answer` is G. If fewer masks are left
    before a stop than a call commits, torch.topk takes others, of confidence -inf. They change
    nothing else: the call is the last one, and the text ends at the stop.
    """
    places, last = np.arange(len(order)), int(golden["nfe"]) - 1
    stop = len(golden["returned_ids"]) - (len(order) - answer)
    taken = (golden["unmask_call"] == last) & (order < 0)
    found: np.ndarray = taken & (places >= stop) & (places < answer)
    return found


def prompt_differences(loaded: LoadedCase) -> Iterator[str]:
    """Differences in the ids of the prompt, and in the places and rows of its images."""
    case, golden = loaded.case, loaded.case.arrays
    if loaded.ids != golden["prompt_ids"].tolist():
        yield "prompt_ids differ"
    if len(loaded.prompt) != case.entry["prompt_length"]:
        yield f"prompt has {len(loaded.prompt)} rows"
    for recorded, placed in zip(case.entry["images"], loaded.placed, strict=True):
        own = (placed.first, placed.layout.rows, placed.layout.crops)
        if own != tuple(recorded[name] for name in ("first_row", "rows", "crops")):
            yield f"image at {own[0]}: {own[1]} rows and {own[2]} crops differ"
    suffix = case.settings.get("suffix")
    if suffix and loaded.tokenizer.encode_text(suffix) != case.settings["suffix_ids"]:
        yield "suffix_ids differ"


def image_differences(loaded: LoadedCase) -> Iterator[str]:
    """Differences in crops, pixels, and rows of tower, projector and embeddings."""
    case, golden = loaded.case, loaded.case.arrays
    if not loaded.pictures:
        return
    crops = [
        crop
        for picture, placed in zip(loaded.pictures, loaded.placed, strict=True)
        for crop in crops_of(picture.rgb(), placed.layout)
    ]
    stacked = np.stack([np.asarray(crop) for crop in crops])
    if hashlib.sha256(stacked.tobytes()).hexdigest() != case.entry["crops_sha256"]:
        yield "crops differ"
    if not np.array_equal(stacked[:, ::16, ::16], golden["crops_small"]):
        yield "crops_small differ"
    pixels = pixel_values(crops)
    table = np.full(256, np.nan, np.float32)
    table[stacked] = pixels.permute(0, 2, 3, 1).numpy()
    yield from _far("pixel_lut", table, golden["pixel_lut"], LUT_ATOL)
    embedded = _embedded(loaded)
    features = torch.cat(loaded.encoder.encoded).flatten(0, 1)[golden["feat_index"]]
    yield from _far("tower_rows", features.cpu().numpy(), golden["tower_rows"], ROW_ATOL)
    projected = loaded.encoder.projector(features).cpu().numpy()
    yield from _far("projector_rows", projected, golden["projector_rows"], ROW_ATOL)
    yield from _far("embed_rows", embedded[golden["embed_pos"]], golden["embed_rows"], ROW_ATOL)
    yield from _far("embed_sum", embedded.sum(1), golden["embed_sum"], SUM_ATOL)
    newline = loaded.encoder.newline.cpu().numpy()
    if not np.array_equal(np.flatnonzero((embedded == newline).all(1)), golden["newline_rows"]):
        yield "newline_rows differ"


def _embedded(loaded: LoadedCase) -> np.ndarray:
    """The embedding rows [P, D] of the prompt as the forward gets them."""
    adapter = loaded.setup(released=True).adapter
    found: np.ndarray = adapter.embed(loaded.prompt[None].to(adapter.device))[0].cpu().numpy()
    return found


def _far(name: str, found: np.ndarray, recorded: np.ndarray, atol: float) -> Iterator[str]:
    if not np.allclose(found, recorded, rtol=0, atol=atol, equal_nan=True):
        yield f"{name} differ by {np.nanmax(np.abs(found - recorded)):.3g}"
