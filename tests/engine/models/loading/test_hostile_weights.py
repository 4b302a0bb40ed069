"""Weight files that are damaged, link elsewhere or are no weights: errors that name the file."""

import contextlib
import json
import os
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from engine.models.loading.checkpoint import Checkpoint, CheckpointError, read_json
from engine.models.loading.families import folder_adapter_class
from tests.engine.models.loading.test_adapters_from_files import (
    layout,
    load,
    logits,
    sharded,
    tensors,
)
from tests.support.micro import write_checkpoint

INDEX = "model.safetensors.index.json"
ONE = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
TWO = ONE | {"data_offsets": [16, 32]}


@pytest.fixture
def folder(kind, tmp_path):
    return write_checkpoint(tmp_path / "micro", kind=kind)


def file_of(header, data=16):
    """A safetensors file of a header (text or an object) and `data` zero bytes."""
    text = header.encode() if isinstance(header, str) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data)


DAMAGED = {
    "longer-than-the-file": struct.pack("<Q", 10**6) + b"{}",
    "longer-than-memory": struct.pack("<Q", 2**63) + b"{}",
    "overlap": file_of({"a": ONE, "b": ONE | {"data_offsets": [8, 24]}}, 24),
    "gap": file_of({"a": ONE, "b": ONE | {"data_offsets": [20, 36]}}, 36),
    "backwards": file_of({"a": ONE | {"data_offsets": [16, 0]}}),
    "doubled": file_of(f'{{"a": {json.dumps(ONE)}, "a": {json.dumps(TWO)}}}', 32),
    "trailing": file_of({"a": ONE}, 24),
    "nan": file_of({"a": ONE | {"shape": [float("nan"), 2]}}),
    "negative": file_of({"a": ONE | {"shape": [-2, 2]}}),
    "overflow": file_of({"a": ONE | {"shape": [2**40, 2**40]}}),
    "format": file_of({"a": ONE | {"dtype": "Q99"}}),
    "deep": file_of('{"a":' * 5000 + "{}" + "}" * 5000),
    "list": file_of("[]", 0),
    "pickle": b"\x80\x02}q\x00.",
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_named(folder, damage):
    (folder / "model.safetensors").write_bytes(DAMAGED[damage])
    with pytest.raises(CheckpointError, match=r"^model\.safetensors: damaged .*; copy it again"):
        load(folder)


def test_a_valid_file_is_read(folder):
    (folder / "model.safetensors").write_bytes(file_of({"a": ONE}))
    assert Checkpoint(folder).shapes == {"a": (2, 2)}


@pytest.mark.parametrize("kind_of", [torch.int8, torch.int64, torch.float8_e4m3fn, torch.bool])
def test_tensors_that_are_not_floating_point_are_named(folder, kind_of):
    name = layout(folder).head
    tensors(folder, lambda found: found.update({name: found[name].to(kind_of)}))
    with pytest.raises(CheckpointError, match=rf"{name}: \w+ numbers in model.safetensors; use"):
        load(folder)


@pytest.mark.parametrize("kind_of", [torch.float64, torch.float16, torch.bfloat16])
def test_every_supported_dtype_is_read(folder, kind_of):
    def narrow(found):
        found.update({name: tensor.to(kind_of) for name, tensor in found.items()})

    before = logits(folder)
    tensors(folder, narrow)
    gap = (logits(folder) - before).abs().max()
    assert gap == 0 if kind_of == torch.float64 else 0 < gap < 1


def test_a_very_long_name_is_shortened(folder):
    tensors(folder, lambda found: found.update({"x" * 100_000: torch.ones(1)}))
    with pytest.raises(CheckpointError, match="unknown tensor") as caught:
        load(folder)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickles_are_never_read(folder, name):
    (folder / "model.safetensors").rename(folder / name)
    with pytest.raises(CheckpointError, match=rf"^{name}: a pickle.*only .safetensors files are"):
        load(folder)


def test_a_pickle_next_to_the_weights_is_ignored(folder):
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02}q\x00.")
    load(folder)


def indexed(folder, change):
    """Split the weights into shards and apply `change` to the map of the index."""
    sharded(folder, index=True)
    data = json.loads((folder / INDEX).read_text())
    change(data["weight_map"])
    (folder / INDEX).write_text(json.dumps(data))


@pytest.mark.parametrize("file", ["../../x.safetensors", "/etc/passwd", "..\\x", "a/b.safetensors"])
def test_an_index_that_leaves_the_folder_is_an_error(folder, file):
    indexed(folder, lambda where: where.update({layout(folder).norm: file}))
    with pytest.raises(CheckpointError, match=r"index\.json: names '.*', a file outside the folde"):
        load(folder)


def test_a_tensor_in_the_wrong_shard_is_named(folder):
    norm = layout(folder).norm
    files = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]

    def move(where):
        where[norm] = files[(files.index(where[norm]) + 1) % 3]

    indexed(folder, move)
    with pytest.raises(CheckpointError, match=rf"{norm}: not in model-.*, where the index puts it"):
        load(folder)


def test_a_shard_of_another_model_is_named(folder, kind, tmp_path):
    sharded(folder, index=True)
    other = write_checkpoint(tmp_path / "other", kind=kind, layers=1)
    sharded(other, index=False)
    name = "model-00002-of-00003.safetensors"
    (other / name).replace(folder / name)
    with pytest.raises(CheckpointError, match=r"not in|missing|in both"):
        load(folder)


@pytest.mark.parametrize(
    "text", ["[]", '{"weight_map": []}', '{"weight_map": {"a": 3}}', "[" * 9999]
)
def test_an_invalid_index_is_named(folder, text):
    (folder / INDEX).write_text(text)
    with pytest.raises(CheckpointError, match=r"model\.safetensors\.index\.json: "):
        load(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_link_out_of_the_folder_is_an_error(folder, name, tmp_path):
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    with pytest.raises(CheckpointError, match=rf"{name}: a link out of micro; copy the file into"):
        load(folder)


def test_links_of_the_hubs_cache_are_followed(folder, tmp_path):
    before = logits(folder)
    repo = tmp_path / "models--a--b"
    snapshot = repo / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (repo / "blobs").mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        path.rename(repo / "blobs" / f"{number}")
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    assert torch.equal(logits(snapshot), before)
    (tmp_path / "link").symlink_to(snapshot)
    assert torch.equal(logits(tmp_path / "link"), before)
    secret = tmp_path / "secret.safetensors"
    secret.write_bytes((snapshot / "model.safetensors").read_bytes())
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to(secret)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: a link out of c0ffee"):
        load(snapshot)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@pytest.mark.parametrize("what", ["folder", "pipe", "dangling", "loop"])
def test_a_path_that_is_no_regular_file_is_an_error(folder, name, what):
    path = folder / name
    path.unlink()
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("nowhere" if what == "dangling" else name)
    with pytest.raises(CheckpointError, match=rf"{name}: "):
        load(folder)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A checkpoint whose weights a test may overwrite, and the bytes that they had."""
    folder = write_checkpoint(tmp_path_factory.mktemp("fuzz") / "micro", layers=1)
    return folder, (folder / "model.safetensors").read_bytes()


@settings(max_examples=120)
@given(data=st.data())
def test_any_changed_file_loads_or_is_an_error(small, data):
    folder, whole = small[0], bytearray(small[1])
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, header + 64))
        whole[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    cut = bytes(whole[: data.draw(st.sampled_from([None, header, -1]))])
    (folder / "model.safetensors").write_bytes(cut)
    with contextlib.suppress(CheckpointError):
        load(folder)


def test_a_file_changed_after_its_header_was_read_is_named(folder):
    checkpoint, path = Checkpoint(folder), folder / "model.safetensors"
    found = load_file(path)
    name = layout(folder).norm
    found[name] = found[name].repeat(2)
    save_file(found, path)
    with pytest.raises(CheckpointError, match=rf"{name}: changed while it was read"):
        folder_adapter_class(folder).from_checkpoint(checkpoint, torch.float32, torch.device("cpu"))


def test_json_files_must_hold_an_object(tmp_path):
    (tmp_path / "config.json").write_text('{"a": 1}')
    assert read_json(tmp_path / "config.json") == {"a": 1}
    (tmp_path / "config.json").write_text('["a"]')
    with pytest.raises(CheckpointError, match=r"config\.json: expected a JSON object"):
        read_json(tmp_path / "config.json")
