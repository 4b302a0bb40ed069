"""Sessions with images: plans, refusals, limits, probes and branches on the small LLaDA-V."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from engine.config.branch_start import BranchStart
from engine.config.spec import RaceSpec, RunSpec
from engine.core.events import RunFinished, RunStarted, Waiting
from engine.models.loading.checkpoint import Checkpoint, CheckpointError
from engine.models.loading.config import read_config
from engine.serve.model_pool import ModelPool
from engine.serve.session import Session
from engine.vision.config import TOWER, read_vision_info
from engine.vision.encoder import ImageEncoder
from engine.vision.example_image import example_image
from engine.vision.picture import Picture
from tests.support.llada_v import MICRO, NAME, changed_copy, image_file, open_session, plain
from tests.support.micro import configure
from tests.support.traces import trace_of

SMALL = {"model": NAME, "prompt": "What?", "gen_length": 8, "block_length": 8, "steps": 4}


@pytest.fixture(scope="module")
def session():
    return open_session()


@pytest.fixture(scope="module")
def picture(session):
    return session.example_image()


def spec_of(*pictures, **changes):
    return RunSpec.from_dict(SMALL | {"images": [str(p.ref) for p in pictures]} | changes)


def events_of(session, spec, *pictures, **more):
    return list(session.run(spec, images={str(p.ref): p for p in pictures}, **more))


def traced(session, spec, *pictures, **more):
    trace = trace_of(events_of(session, spec, *pictures, **more))
    assert trace.meta["reason"] == "done", trace.meta["message"]
    return trace


@pytest.fixture(scope="module")
def plain_run(session, picture):
    """The events of a run without a cache that sees the picture."""
    return events_of(session, spec_of(picture), picture)


def test_a_plan_counts_the_rows_and_the_work_without_the_image(session, picture):
    text, shown = session.plan(spec_of()), session.plan(spec_of(picture))
    assert shown["image_rows"] == 1836
    assert shown["prompt_tokens"] == text["prompt_tokens"] + 1836
    assert (text["image_rows"], text["image_flops"]) == (0, 0)
    assert shown["image_flops"] > 0
    assert shown["memory_bytes"] > text["memory_bytes"]


def test_a_registered_model_is_planned_before_its_download(session, picture):
    rows = {row["name"]: row for row in session.catalog()["models"]}
    assert rows[NAME]["images"]
    assert not rows["tiny-llada"]["images"]
    spec = spec_of(picture, model="GSAI-ML/LLaDA-V")
    hub = open_session()
    if "GSAI-ML/LLaDA-V" in rows:
        plan = hub.plan(spec)
        assert plan["image_rows"] == 1836


def test_the_vision_part_is_loaded_when_an_image_needs_it(picture):
    own = open_session()
    before = events_of(own, spec_of())
    seeing = spec_of(picture, cache="prefix")  # most steps compute few rows
    shown, again = (events_of(own, seeing, picture) for _ in range(2))
    states = [[e.state for e in one if isinstance(e, Waiting)] for one in (before, shown, again)]
    assert states[0] == ["loading", "warmup"]
    assert states[1][0] == "loading"
    assert "images" in states[1]
    assert "loading" not in states[2]
    after = events_of(own, spec_of())
    assert np.array_equal(after[-1].canvas, before[-1].canvas)
    assert np.array_equal(shown[-1].canvas, again[-1].canvas)


def test_both_lanes_of_a_race_share_the_encoded_image(session, picture):
    spec = spec_of(picture)
    race = RaceSpec(spec, replace(spec, cache="prefix"))
    ends = {
        lane: event
        for lane, event in session.race(race, images={str(picture.ref): picture})
        if isinstance(event, RunFinished)
    }
    costs = [(e.metrics["image_ms"], e.metrics["gflops_image"]) for e in ends.values()]
    assert costs[0] == costs[1]
    assert costs[0][1] == session.plan(spec)["image_flops"] / 1e9


def test_another_image_gives_another_answer_and_two_are_padded(session, picture, plain_run):
    other = Picture.of_image(plain(480, 320))
    second = events_of(session, spec_of(other), other)
    assert not np.array_equal(plain_run[-1].canvas[0, -8:], second[-1].canvas[0, -8:])
    both = events_of(session, spec_of(picture, other), picture, other)
    started = next(e for e in both if isinstance(e, RunStarted))
    assert [(i["mode"], i["rows"]) for i in started.images] == [("pad", 730)] * 2
    assert started.images[1]["first"] == started.images[0]["first"] + 730


def test_a_probe_sees_the_image_too(session, picture):
    """Without a cache the exact forward is the run's own."""
    short = {"gen_length": 4, "block_length": 4, "steps": 2}
    exact = traced(session, spec_of(picture, record="probe", probe_steps=1, **short), picture)
    assert exact.arrays()["probe_error"].max() == 0
    assert exact.arrays()["probe_tv"].max() < 1e-5
    stale = spec_of(picture, record="probe", probe_steps=4, cache="prefix")
    found = traced(session, stale, picture).arrays()
    assert found["probe_tv"].max() < 0.9  # of an exact forward without the image it would be near 1


def test_a_branch_keeps_its_image(session, picture, plain_run):
    parent = trace_of(plain_run)
    start = BranchStart("p", 2)
    branch = replace(spec_of(picture), start=start)
    found = traced(session, branch, picture, parents={"p": parent})
    assert found.meta["images"] == parent.meta["images"]
    other = Picture.of_image(plain(480, 320))
    with pytest.raises(ValueError, match=r"^images: not that of the run"):
        events_of(session, replace(spec_of(other), start=start), other, parents={"p": parent})


def test_a_branch_with_a_suffix_goes_on(session, picture):
    spec = spec_of(picture, suffix="So:")
    parent = traced(session, spec, picture)
    branch = replace(spec, start=BranchStart("p", 2))
    found = traced(session, branch, picture, parents={"p": parent})
    assert np.array_equal(found.canvas_at(99), parent.canvas_at(99))
    assert found.meta["texts"] == parent.meta["texts"]
    assert b"".join(found.pieces[i] for i in found.canvas_at(99).tolist()).endswith(b"So:")
    assert not found.meta["texts"][0].endswith("So:")
    changed = replace(branch, suffix="Yes")
    with pytest.raises(ValueError, match=r"^suffix: not that of the run"):
        events_of(session, changed, picture, parents={"p": parent})


REFUSED = {
    "text model": ({"model": "tiny-llada"}, "images: tiny-llada takes text only; remove the image"),
    "guided": ({"unmasker": "guided"}, "images: the guider reads text only"),
    "autoregressive": ({"unmasker": "autoregressive"}, "images: an autoregressive model takes"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_what_does_not_take_images_is_refused_with_the_remedy(session, picture, kind):
    changes, words = REFUSED[kind]
    with pytest.raises(ValueError, match=rf"^{words}"):
        session.plan(spec_of(picture, **changes))


@pytest.mark.parametrize("name", ["stop", "suffix"])
def test_an_autoregressive_lane_takes_no_stop_and_no_suffix(session, name):
    value = ["x"] if name == "stop" else "x"
    with pytest.raises(ValueError, match=rf"^{name}: an autoregressive model"):
        session.plan(spec_of(model="tiny-llada", unmasker="autoregressive", **{name: value}))


def test_an_image_that_is_not_given_is_named(session, picture):
    with pytest.raises(ValueError, match=rf"^images: {picture.ref} is needed again"):
        session.run(spec_of(picture)).__next__()


def test_a_folder_without_its_tower_offers_text_only(tmp_path, picture):
    def strip(tensors):
        for name in [n for n in tensors if n.startswith(TOWER)]:
            del tensors[name]

    folder = changed_copy(tmp_path / "m", strip)
    own = Session({"m": folder, NAME: MICRO})
    (row,) = [one for one in own.catalog()["models"] if one["name"] == "m"]
    assert not row["images"]
    assert "takes text only" in row["image_problem"]
    text = spec_of(model="m")
    whole = events_of(own, spec_of())
    assert np.array_equal(events_of(own, text)[-1].canvas, whole[-1].canvas)
    with pytest.raises(ValueError, match=r"^images: model\.vision_tower.*takes text only"):
        own.plan(spec_of(picture, model="m"))


def test_a_public_page_has_narrower_limits(picture):
    own = open_session(public=True)
    other = Picture.of_image(plain(30, 30))
    with pytest.raises(ValueError, match=r"^images: 2 are more than this public page allows"):
        own.plan(spec_of(picture, other))
    with pytest.raises(ValueError, match=r"^images: .*at most 16 million"):
        own.read_image(image_file(plain(4_100, 4_000)))
    assert own.catalog()["image_limits"] == {"file_bytes": 8_000_000, "pixels": 16_000_000}


def test_a_vision_part_is_read_again_once_its_config_is_mended(tmp_path):
    folder = changed_copy(tmp_path / "mended", lambda tensors: None)
    pool, config = ModelPool({"mended": folder}), (folder / "config.json").read_text()
    configure(folder, mm_projector_type="linear")
    with pytest.raises(CheckpointError, match="mm_projector_type is 'linear'"):
        pool.vision("mended")
    (folder / "config.json").write_text(config)
    assert pool.vision("mended") is not None


def test_the_flops_of_the_tower_are_torchs():
    files = Checkpoint(MICRO)
    info = read_vision_info(read_config(MICRO), files.shapes, 64)
    encoder = ImageEncoder.from_checkpoint(files, info, torch.float32, torch.device("cpu"))
    shown = Picture.of_image(example_image())
    layout = info.layout(shown.ref, "anyres")
    encoder.tower.config._attn_implementation = "eager"  # the fused kernel is not counted
    with FlopCounterMode(display=False) as counted:
        encoder.encode(shown, layout)
    assert counted.get_total_flops() == info.flops(layout.crops)
