"""Images beside the prompt: uploads, who gets them, the form, the trace and the lanes."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.config.spec import RaceSpec, RunSpec
from engine.trace.trace import Trace
from inspector.files.run_card import run_card
from inspector.handlers import image_service
from inspector.handlers.image_service import ImageService
from inspector.handlers.page_handlers import Handlers, error_text, visitor_id
from inspector.handlers.uploads import UnreadUploads
from inspector.page_data import links, tokens
from inspector.run_store import RaceRecord
from tests.inspector.conftest import form_values, make_form
from tests.support.llada_v import NAME, image_file, open_session, plain
from tests.support.traces import trace_of

SHAPE = {"model": NAME, "prompt": "What?", "gen_length": 8, "block_length": 8, "steps": 4}


@pytest.fixture(scope="module")
def seeing():
    return open_session()


@pytest.fixture(scope="module")
def handlers(seeing):
    return Handlers(seeing, make_form(seeing))


@pytest.fixture
def unread():
    return UnreadUploads()


@pytest.fixture
def images(seeing, tmp_path, unread):
    return ImageService(seeing, 20_000_000, error_text, tmp_path, unread)


def upload(folder: Path, data: bytes, name="a.png") -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


def spec(*names) -> RunSpec:
    return RunSpec.from_dict(SHAPE | {"images": list(names)})


def test_an_upload_is_kept_in_memory_and_its_file_is_deleted(images, tmp_path):
    path = upload(tmp_path, image_file(plain(30, 20)))
    name = images.read("me", path)
    assert name.startswith("30x20-")
    assert not Path(path).exists()
    assert list(images.given("me", [spec(name)])) == [name]


def test_a_file_that_was_not_uploaded_is_neither_read_nor_deleted(seeing, tmp_path):
    inside, outside = tmp_path / "uploads", tmp_path / "private.png"
    inside.mkdir()
    outside.write_bytes(image_file(plain(30, 20)))
    (inside / "link.png").symlink_to(outside)
    images = ImageService(seeing, 20_000_000, error_text, inside, UnreadUploads())
    for path in (outside, inside / "link.png", inside / ".." / "private.png"):
        with pytest.raises(ValueError, match="images: no file was uploaded"):
            images.read("me", path)
    assert outside.exists()


def test_visitors_who_add_the_same_file_at_the_same_time_both_have_it(images, tmp_path, unread):
    path = upload(tmp_path, image_file(plain(30, 20)))
    unread.add([path, path])  # Gradio names an upload by its content
    first, _ = images.take([path], "me")
    assert Path(path).exists()
    assert images.take([path], "other")[0] == first
    assert not Path(path).exists()


def test_nobody_gets_the_image_of_another_visitor(images, tmp_path):
    name = images.read("me", upload(tmp_path, image_file(plain(30, 20))))
    assert images.given("you", [spec(name)]) == {}
    assert "is needed again" in images.shown("you", name)
    images.leave("me")
    assert images.given("me", [spec(name)]) == {}


@pytest.mark.parametrize("data", [b"no image", b"", image_file(plain(9, 9), "JPEG")[:150]])
def test_a_refused_file_is_named_and_deleted(images, tmp_path, data):
    path = upload(tmp_path, data)
    names, said = images.take(path, "me")
    assert "images: " in said
    assert not Path(path).exists()
    assert not isinstance(names, str)


@pytest.mark.parametrize("order", ["good bad", "bad good", "good good good good good"])
def test_a_refused_upload_leaves_neither_files_nor_pictures(images, tmp_path, order):
    before = images.read("me", upload(tmp_path, image_file(plain(40, 20))))
    data = {"good": image_file(plain(30, 20)), "bad": b"no image"}
    paths = [upload(tmp_path, data[kind], f"{n}.png") for n, kind in enumerate(order.split())]
    name = str(images._session.read_image(data["good"]).ref)
    names, said = images.take(paths, "me")
    assert "images: " in said
    assert not isinstance(names, str)
    assert not list(tmp_path.iterdir())
    assert list(images.given("me", [spec(before, name)])) == [before]


def test_a_refused_upload_leaves_the_images_of_the_form_in_view(images, tmp_path):
    before = images.read("me", upload(tmp_path, image_file(plain(40, 20))))
    _, said = images.take(upload(tmp_path, b"no image"), "me", before)
    assert f'data-image="{before}"' in said
    assert "no image that is read here" in said


def test_what_is_shown_is_never_markup_of_the_visitor(images):
    shown = images.shown("me", "<script>alert(1)</script> 30x20-" + "0" * 32)
    assert "<script>" not in shown
    assert shown.count("is needed again") == 2


def size(images, who, name):
    return len(images.given(who, [spec(name)])[name].png)


@pytest.fixture
def small(images, tmp_path, monkeypatch):
    """Places for six images of a visitor and for nine of all; a function that adds one."""

    def add(who, n):
        return images.read(who, upload(tmp_path, image_file(plain(60, 60, (n, 0, 0)))))

    one = size(images, "first", add("first", 1))
    images.leave("first")
    monkeypatch.setattr(image_service, "VISITOR_BYTES", 6 * one + one // 2)
    monkeypatch.setattr(image_service, "KEPT_BYTES", 9 * one + one // 2)
    return add


def test_a_visitor_with_many_images_loses_those_used_longest_ago(images, small):
    names = [small("me", n) for n in range(1, 9)]
    for name in names[:2]:
        assert "was dropped, because newer images" in images.shown("me", name)
        with pytest.raises(ValueError, match=rf"^images: {name} was dropped.*Add the same file"):
            images.given("me", [spec(name)])
    for name in names[2:]:
        assert list(images.given("me", [spec(name)])) == [name]
    assert small("me", 1) == names[0]
    assert list(images.given("me", [spec(names[0])])) == names[:1]


def test_a_visitor_cannot_empty_the_images_of_others(images, small):
    few, many = small("few", 1), [small("many", n) for n in range(1, 7)]
    mine = [small("me", n) for n in range(1, 9)]
    assert list(images.given("few", [spec(few)])) == [few]
    assert list(images.given("me", [spec(*mine[-4:])])) == mine[-4:]
    assert list(images.given("many", [spec(*many[-4:])])) == many[-4:]


def test_the_images_of_one_prompt_stay_together(images, small, tmp_path):
    for n in range(1, 7):
        small("other", n)
    paths = [
        upload(tmp_path, image_file(plain(60, 60, (n, 0, 0))), f"{n}.png") for n in range(1, 5)
    ]
    names, shown = images.take(paths, "me")
    assert "ds-refusal" not in shown
    assert list(images.given("me", [spec(*names.split())])) == names.split()


@pytest.mark.parametrize(
    ("count", "words"), [(1, "it takes"), (2, "they take .*at most 0 MB .*add fewer")]
)
def test_images_that_cannot_fit_are_refused_when_they_are_added(
    images, tmp_path, monkeypatch, count, words
):
    before = images.read("me", upload(tmp_path, image_file(plain(30, 20))))
    monkeypatch.setattr(image_service, "VISITOR_BYTES", size(images, "me", before) * count)
    paths = [upload(tmp_path, image_file(plain(60, 60 + n)), f"{n}.png") for n in range(count)]
    names, said = images.take(paths, "me")
    assert re.search(f"images: packed as PNG, {words}.*scale down to", said)
    assert not isinstance(names, str)
    assert list(images.given("me", [spec(before)])) == [before]


def test_an_image_is_dropped_after_its_time(images, tmp_path, monkeypatch):
    names = [images.read("me", upload(tmp_path, image_file(plain(30, n)))) for n in (20, 21)]
    assert len(images.given("me", list(map(spec, names)))) == 2
    monkeypatch.setattr(image_service, "LIFETIME_S", -1.0)
    assert images.given("me", list(map(spec, names))) == {}


def test_an_image_is_dropped_when_the_page_replaces_it(images, tmp_path):
    mine = images.read("me", upload(tmp_path, image_file(plain(30, 20))))
    theirs = images.read("other", upload(tmp_path, image_file(plain(30, 20))))
    images.take([str(upload(tmp_path, image_file(plain(31, 20))))], "me")
    assert images.given("me", [spec(mine)]) == {}
    assert list(images.given("other", [spec(theirs)])) == [theirs]


def filled(form, race):
    return form.race(form_values(form, race))


def test_the_form_and_a_link_give_images_and_stops_back(handlers):
    name = "30x20-" + "0" * 32
    one = spec(name)
    race = RaceSpec(one, one)
    race = RaceSpec.from_query(race.to_query())
    assert race.a.images == (name,)
    stops = RunSpec.from_dict(one.to_dict() | {"stop": ["\n", "<|eot_id|>"], "suffix": "So"})
    again = filled(handlers.form, RaceSpec(stops, stops))
    assert (again.a.images, again.a.stop, again.b.suffix) == ((name,), stops.stop, "So")
    assert RaceSpec.from_query(again.to_query()) == again


def test_lanes_with_different_images_are_left_to_the_api(handlers):
    with pytest.raises(ValueError, match=r"^images: both lanes share it"):
        form_values(handlers.form, RaceSpec(spec(), spec("30x20-" + "0" * 32)))


def test_without_an_upload_a_missing_image_says_that_another_model_is_needed(handlers, request_of):
    name = "30x20-" + "0" * 32
    said = {model: handlers.show_images(request_of(), model, name)[1] for model in (NAME, None)}
    assert "name of an image. Add the same file." in said[NAME]
    assert "Choose a model that takes images, then add the same file." in said[None]


def test_the_upload_is_offered_for_models_that_take_images(handlers, request_of):
    offered = {
        model: handlers.show_images(request_of(), model, "")[0]["visible"]
        for model in (NAME, "tiny-llada", "GSAI-ML/LLaDA-V", "GSAI-ML/LLaDA-8B-Instruct", None)
    }
    assert offered[NAME]
    assert not offered["tiny-llada"]
    assert not offered[None]


@pytest.fixture(scope="module")
def run(seeing):
    picture = seeing.example_image()
    trace = trace_of(seeing.run(spec(str(picture.ref)), images={str(picture.ref): picture}))
    assert trace.meta["reason"] == "done"
    return trace


def test_a_race_of_the_page_gets_its_image(handlers, request_of):
    who = request_of()
    name = handlers.example_image(who)
    race = RaceSpec(spec(name), RunSpec.from_dict(spec(name).to_dict() | {"cache": "prefix"}))
    *_, last = handlers.run(who, form_values(handlers.form, race))
    whole = json.loads(last[0])
    assert whole["state"] == "done"
    assert [whole["lanes"][lane]["start"]["images"][0]["name"] for lane in "ab"] == [name] * 2
    *_, refused = handlers.run(request_of("another"), form_values(handlers.form, race))
    said = json.loads(refused[0])["message"]
    assert "is needed again" in said
    assert f"In Settings, choose the model {NAME}, add the same file" in said
    images, key = handlers.images, (visitor_id(who), name)
    images._drop(key)
    *_, refused = handlers.run(who, form_values(handlers.form, race))
    assert "was dropped, because newer images" in json.loads(refused[0])["message"]


def test_a_trace_knows_the_rows_of_its_image_and_not_its_pixels(run, tmp_path):
    (image,) = run.meta["images"]
    assert image["rows"] == 729 + image["map"][1] * (image["map"][0] + 1)
    ids = run.arrays()["canvas"][image["first"] : image["first"] + image["rows"]]
    assert set(ids.tolist()) == {run.meta["model"]["pad_id"]}
    run.save(tmp_path / "t.npz")
    again = Trace.load(tmp_path / "t.npz")
    assert again.meta["images"] == run.meta["images"]
    assert tokens.lane_start(again, "x")["images"] == run.meta["images"]


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 5}, {"first": -1}, {"first": 16_000}, {"mode": "other"}, {"map": [1]},
        {"map": [40, "27"]}, {"name": "x" * 2_000}, {"more": 1}, {"width": True},
    ],
)  # fmt: skip
def test_a_damaged_list_of_images_is_refused(run, tmp_path, change):
    other = run.snapshot()
    other.meta = dict(run.meta) | {"images": [run.meta["images"][0] | change]}
    other.save(tmp_path / "t.npz")
    with pytest.raises(ValueError, match=r"^trace: meta\.images"):
        Trace.load(tmp_path / "t.npz")


def test_a_run_card_and_a_link_name_the_image(run):
    name = run.meta["images"][0]["name"]
    record = RaceRecord(traces={"a": run, "b": run}, state="done")
    assert json.dumps(run_card(record)).count(name) >= 2
    assert name in links.link(record)["query"].replace("%22", '"')


def test_few_images_are_decoded_at_the_same_time(images, seeing, tmp_path, monkeypatch):
    now, most, read = [], [], seeing.read_image

    def counted(data):
        now.append(1)
        most.append(len(now))
        time.sleep(0.05)
        now.pop()
        return read(data)

    monkeypatch.setattr(seeing, "read_image", counted)
    paths = [upload(tmp_path, image_file(plain(9 + n, 9)), f"{n}.png") for n in range(6)]
    with ThreadPoolExecutor(6) as pool:
        assert len(list(pool.map(lambda path: images.read("me", path), paths))) == 6
    assert max(most) == 2
