"""Files that are not traces raise a ValueError that says so."""

import io
import json
import pickle
import struct
import tracemalloc
import zipfile
from contextlib import suppress
from warnings import catch_warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config.images import image_rows
from engine.trace.file_format import MAX_JSON_BYTES, VERSION
from engine.trace.npz import MAX_META_BYTES
from engine.trace.schema import MAX_ID, MAX_PIECES
from engine.trace.trace import Trace
from tests.engine.trace.test_trace import traced


@pytest.fixture(scope="module")
def trace():
    return traced(level="probe")[0]


LIMIT = 8_000_000
IMAGE = {
    "name": "8x8-" + "0" * 32, "width": 8, "height": 8, "mode": "anyres", "first": 0,
    "rows": image_rows("anyres", 1, 1), "crops": 1, "grid": [1, 1], "map": [1, 1],
}  # fmt: skip


def refused(data, match="trace: "):
    """Fails unless the data are refused with a remedy, without memory for what they declare."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=match) as refusal:
            Trace.from_bytes(data, LIMIT)
        assert "; " in str(refusal.value)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000 + 20 * len(data)
    finally:
        tracemalloc.stop()


def rewritten(trace, change, **meta):
    """The file of a trace with some arrays replaced, or left out if None."""
    arrays = {**trace.arrays(), **change}
    document = json.dumps(trace.meta | meta).encode()
    buffer = io.BytesIO()
    kept = {name: array for name, array in arrays.items() if array is not None}
    np.savez(buffer, meta=np.frombuffer(document, np.uint8), **kept)
    return buffer.getvalue()


def with_member(trace, name, data):
    """The file of a trace with one raw member replaced."""
    buffer = io.BytesIO(_without(trace.to_bytes(), name))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr(name, data)
    return buffer.getvalue()


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def header_of(shape, dtype="<i4"):
    """An array file whose header declares more data than it holds."""
    text = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def test_an_image_that_fits_is_accepted(trace):
    assert Trace.from_bytes(rewritten(trace, {}, images=[IMAGE]), LIMIT).steps == trace.steps


def test_an_unchanged_rewrite_is_accepted(trace):
    assert Trace.from_bytes(rewritten(trace, {})).steps == trace.steps
    kept = with_member(trace, "rows.npy", npy(trace.arrays()["rows"]))
    assert Trace.from_bytes(kept).steps == trace.steps


@pytest.mark.parametrize("keep", [0, 1, 2, 30, 0.3, 0.9, 0.999])
def test_truncated_files(trace, keep):
    for data in (trace.to_bytes(), trace.to_json().encode()):
        refused(data[: keep if isinstance(keep, int) else int(len(data) * keep)])


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was run",))


def test_object_arrays_and_pickles_are_not_run(trace):
    objects = npy(np.array([Bomb()], object))
    refused(with_member(trace, "rows.npy", objects))
    refused(with_member(trace, "rows.npy", pickle.dumps(Bomb())))
    refused(pickle.dumps(Bomb()))
    refused(objects)


@pytest.mark.parametrize(
    "member",
    [b"", b"junk", header_of((10**13,)), header_of((2**62, 4)), header_of((-1,)), header_of((9,)),
     header_of((1,), "O"), header_of((1,), "<i4,<i8"), b"\x93NUMPY\x01\x00\x05\x00{'a':",
     b"\x93NUMPY\x09\x09", b"\x93NUMPY\x01\x00\x04\x00((((", b"\x93NUMPY\x01\x00\x06\x00'''abc"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["rows.npy", "rows", "meta.npy"])
def test_members_that_are_not_arrays(trace, name, member):
    document = with_member(trace, name, member)
    if name == "rows":
        document = _without(document, "rows.npy")
    refused(document)


def _without(document, name):
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(document)) as old, zipfile.ZipFile(buffer, "w") as new:
        for info in old.infolist():
            if info.filename != name:
                new.writestr(info.filename, old.read(info))
    return buffer.getvalue()


def test_a_zip_bomb_is_not_unpacked(trace):
    buffer = io.BytesIO()
    archive = zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED)
    with archive, archive.open("rows.npy", "w") as member:
        for _ in range(LIMIT // 2**20 + 1):
            member.write(bytes(2**20))
    assert len(buffer.getvalue()) < 2**20
    refused(buffer.getvalue(), "unpacks to more than 8 MB")


def test_a_huge_declared_shape_is_refused_without_memory_for_it(trace):
    shapes = {"rows.npy": ((1_500_000,), "<i4"), "drift.npy": ((100, 2, 5, 7000), "|u1")}
    for name, (shape, dtype) in shapes.items():
        refused(with_member(trace, name, header_of(shape, dtype)), "declares another size")


def test_a_member_that_lies_about_its_size_is_refused_without_memory_for_it(trace):
    data = header_of((1_500_000,))
    document = bytearray(with_member(trace, "rows.npy", data))
    entry = document.rindex(b"PK\x01\x02")
    for offset, size in ((20, len(data)), (24, len(data) + 6_000_000)):  # packed, unpacked
        document[entry + offset : entry + offset + 4] = size.to_bytes(4, "little")
    refused(bytes(document), "rows declares more data than it holds")
    document[entry + 20 : entry + 24] = (LIMIT).to_bytes(4, "little")
    refused(bytes(document), "members are larger than the file")


@pytest.mark.parametrize("member", ["rows.npy", "odd.npy"])
def test_members_that_are_unknown_or_given_twice(trace, member):
    buffer = io.BytesIO(trace.to_bytes())
    with zipfile.ZipFile(buffer, "a") as archive, catch_warnings(action="ignore"):
        archive.writestr(member, npy(trace.arrays()["rows"]))
    refused(buffer.getvalue(), "is unknown or given twice")


def test_arrays_by_columns_are_read(trace):
    by_columns = npy(np.asfortranarray(trace.arrays()["flops"]))
    loaded = Trace.from_bytes(with_member(trace, "flops.npy", by_columns))
    assert np.array_equal(loaded.arrays()["flops"], trace.arrays()["flops"])


def test_too_many_members(trace):
    buffer = io.BytesIO(trace.to_bytes())
    with zipfile.ZipFile(buffer, "a") as archive:
        for n in range(1000):
            archive.writestr(f"{n}.npy", b"")
    refused(buffer.getvalue())


def archive_of(count):
    """An archive that lists `count` members of no data."""
    entries = count * (b"PK\1\2" + b"\0" * 24 + b"\1" + b"\0" * 17 + b"a")
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(entries), 4, 0)
    return b"PK\3\4" + entries + end


def test_a_long_list_of_members_is_refused_unread():
    refused(archive_of(10_000), "its list of arrays is too long")


def test_an_encrypted_member(trace):
    document = bytearray(trace.to_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        document[document.find(mark) + flags] |= 1
    refused(bytes(document))


def test_files_larger_than_allowed(tmp_path):
    refused(bytes(LIMIT + 1), "larger than 8 MB")
    with pytest.raises(ValueError, match="as JSON larger than 16 MB"):
        Trace.from_bytes(b"[" + b" " * MAX_JSON_BYTES)
    path = tmp_path / "huge.npz"
    with path.open("wb") as file:
        file.truncate(LIMIT + 1)
    with pytest.raises(ValueError, match="larger than 8 MB"):
        Trace.load(path, LIMIT)


WRONG = {
    "dtype": lambda a: {"rows": a["rows"].astype(np.int64)},
    "byte order": lambda a: {"rows": a["rows"].astype(">i4")},
    "float ids": lambda a: {"commit_id": a["commit_id"].astype(np.float32)},
    "dimensions": lambda a: {"rows": a["rows"][None]},
    "missing": lambda a: {"rows": None},
    "unknown": lambda a: {"extra": a["rows"]},
    "short": lambda a: {"rows": a["rows"][:-1]},
    "commits": lambda a: {"commit_id": a["commit_id"][1:]},
    "id too large": lambda a: {"commit_id": np.full_like(a["commit_id"], 40)},
    "id negative": lambda a: {"canvas": np.full_like(a["canvas"], -1)},
    "position": lambda a: {"commit_position": np.full_like(a["commit_position"], 22)},
    "twice": lambda a: {"commit_position": np.zeros_like(a["commit_position"])},
    "step": lambda a: {"commit_step": np.full_like(a["commit_step"], len(a["rows"]))},
    "step order": lambda a: {"commit_step": a["commit_step"][::-1].copy()},
    "kind": lambda a: {"kind": np.full_like(a["kind"], 9)},
    "rows": lambda a: {"rows": np.full_like(a["rows"], 23)},
    "block": lambda a: {"block": np.full_like(a["block"], 2**30)},
    "time": lambda a: {"forward_ms": np.full_like(a["forward_ms"], np.nan)},
    "endless time": lambda a: {"forward_ms": np.full_like(a["forward_ms"], 1e308)},
    "negative time": lambda a: {"decide_ms": -1 - a["decide_ms"]},
    "plan width": lambda a: {"plan": a["plan"][..., :1].copy()},
    "plan steps": lambda a: {"plan": a["plan"][:1]},
    "plan sites": lambda a: {"plan": a["plan"][:, :, :3].copy()},
    "pieces": lambda a: {"piece_end": a["piece_end"] + 1},
    "piece order": lambda a: {"piece_end": a["piece_end"][::-1].copy()},
    "candidates": lambda a: {"candidate_id": a["candidate_id"][:, :2].copy()},
    "empty": lambda a: {name: array[:0] for name, array in a.items()},
    "no canvas": lambda a: {"canvas": a["canvas"][:0]},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_arrays_that_do_not_fit(trace, wrong):
    refused(rewritten(trace, WRONG[wrong](trace.arrays())))


@pytest.mark.parametrize(
    "meta",
    [{"version": VERSION + 1}, {"version": 0}, {"version": True}, {"version": None},
     {"reason": "won"}, {"reason": []}, {"spec": 3}, {"model": {}},
     {"model": {"vocab_size": "40"}}, {"model": {"vocab_size": 10**9}}, {"model": []},
     {"environment": None}, {"model": {"vocab_size": True}},
     {"texts": "x"}, {"metrics": [1]}, {"message": None},
     {"stops": 3}, {"stops": [3]}, {"stops": [[]]}, {"stops": [["3"]]}, {"stops": [[3]] * 9},
     {"images": [IMAGE | {"grid": [1, 1, 1, 1], "map": []}]},
     {"images": [IMAGE | {"grid": [1, 2, 3], "map": [1]}]},
     {"images": [IMAGE | {"mode": "pad", "rows": 730, "map": [27, 28]}]}],
)  # fmt: skip
def test_meta_that_does_not_fit(trace, meta):
    refused(rewritten(trace, {}, **meta))


@pytest.mark.parametrize(
    ("name", "value"),
    [("texts", ["a\ud800"]), ("spec", {"cache": "\ud800"}), ("environment", {"\udfff": 1}),
     ("model", {"vocab_size": 40, "stop_ids": [["\ud800"]]}), ("\ud800", 1)],
)  # fmt: skip
def test_half_a_character_is_refused_by_name(trace, name, value):
    """Gradio's answer cannot hold it: the page would get no answers any more."""
    named = "meta." + name.replace("\ud800", r"\\ud800")
    refused(rewritten(trace, {}, **{name: value}), f"{named} holds half a character")


def test_a_number_in_place_of_an_older_array(trace):
    document = json.loads(trace.to_json())
    document["meta"]["version"] = 2
    document["arrays"] = {"flops": {"shape": [], "data": [1]}}
    refused(json.dumps(document).encode())


@pytest.mark.parametrize(
    "change",
    [lambda d: d.pop("meta"), lambda d: d.pop("arrays"), lambda d: d["arrays"].pop("rows"),
     lambda d: d["arrays"].update(rows=3), lambda d: d["arrays"]["rows"].update(shape=[10**12]),
     lambda d: d["arrays"]["rows"].update(data=[10**30]), lambda d: d.update(arrays=[1]),
     lambda d: d["arrays"]["rows"].update(data=["x"]), lambda d: d.update(meta="x"),
     lambda d: d["arrays"]["rows"].update(shape="ab"), lambda d: d["arrays"].update(odd={}),
     lambda d: d["arrays"]["rows"].update(data=[[1, 2], [3]])],
)  # fmt: skip
def test_json_that_does_not_fit(trace, change):
    document = json.loads(trace.to_json())
    change(document)
    refused(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("name", "item", "said"),
    [("rows", {"data": [1.5], "shape": [1]}, "rows should have data of type int32"),
     ("rows", {"data": [10**30], "shape": [1]}, "rows should"),
     ("rows", {"data": [1], "shape": [2]}, "rows should"),
     ("rows", {"data": None, "shape": [1]}, "rows should"), ("rows", 3, "rows should"),
     ("odd", {"data": [], "shape": [0]}, "field 'odd' is unknown")],
)  # fmt: skip
def test_json_names_the_array_that_cannot_be_read(trace, name, item, said):
    document = json.loads(trace.to_json())
    document["arrays"][name] = item
    refused(json.dumps(document).encode(), f"trace: {said}.*; export it again")


@pytest.mark.parametrize("size", [None, True, 0, -1, 2.5, "8", [], 2**40])
def test_a_block_length_that_is_no_number_of_positions_is_refused(trace, size):
    spec = trace.meta["spec"] | {"block_length": size}
    refused(rewritten(trace, {}, spec=spec), "trace: meta.spec.block_length should be")


def survives(data):
    """Fails where a document is neither read nor refused with a ValueError."""
    with suppress(ValueError):
        Trace.from_bytes(data)


@given(st.binary(max_size=200), st.sampled_from([b"", b"PK\x03\x04", b"\x93NUMPY", b"{", b"[["]))
def test_random_bytes(data, start):
    survives(start + data)


@given(st.data())
def test_flipped_bytes(trace, data):
    document = bytearray(trace.to_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        document[data.draw(st.integers(0, len(document) - 1))] = data.draw(st.integers(0, 255))
    survives(bytes(document))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(JSON, st.sampled_from(["meta", "arrays", "rows", "canvas"]))
def test_random_json(trace, value, place):
    document = json.loads(trace.to_json())
    (document if place in document else document["arrays"])[place] = value
    survives(json.dumps(document).encode())


def test_deep_json():
    survives(b"[" * 100_000)


@pytest.mark.parametrize(
    ("name", "value"),
    [("commit_id", 1.7), ("canvas", 1.0), ("flops", 0.5), ("commit_id", None),
     ("commit_confidence", -1), ("commit_confidence", 1e999)],
)  # fmt: skip
def test_numbers_of_another_kind_in_json_are_refused(trace, name, value):
    document = json.loads(trace.to_json())
    document["arrays"][name]["data"][0] = value
    refused(json.dumps(document).encode())


@pytest.mark.parametrize("kind", ["npz", "json"])
def test_a_meta_that_would_fill_the_memory_is_refused(trace, kind):
    """Millions of empty lists pack a thousandfold, and each has 64 bytes in memory."""
    extra = {"extra": [[]] * (MAX_META_BYTES // 3)}
    document = {"meta": trace.meta | extra, "arrays": {}}
    data = rewritten(trace, {}, **extra) if kind == "npz" else json.dumps(document).encode()
    with pytest.raises(ValueError, match="trace: meta is larger than 4 MB; shorten the texts"):
        Trace.from_bytes(data)


def test_a_meta_that_no_reader_takes_is_not_written(trace):
    large = Trace.from_bytes(trace.to_bytes())
    large.meta["message"] = "x" * MAX_META_BYTES
    for write in (large.to_bytes, large.to_json):
        with pytest.raises(ValueError, match="trace: meta is larger"):
            write()


def test_a_long_prompt_of_characters_outside_the_basic_plane_is_read(trace):
    prompt = "\U0001f600" * 100_000
    found = Trace.from_bytes(rewritten(trace, {}, spec=trace.meta["spec"] | {"prompt": prompt}))
    assert found.meta["spec"]["prompt"] == prompt


@pytest.mark.parametrize("prefix", ["", "guider_"])
def test_more_tokens_than_any_vocabulary_has_are_refused(trace, prefix):
    change = {
        f"{prefix}piece_id": np.arange(MAX_PIECES + 1, dtype=np.int32),
        f"{prefix}piece_end": np.zeros(MAX_PIECES + 1, np.int32),
    }
    wide = trace.meta["model"] | {"vocab_size": MAX_ID}
    with pytest.raises(ValueError, match=f"tokens in {prefix}piece_id expected"):
        Trace.from_bytes(rewritten(trace, change, model=wide))
