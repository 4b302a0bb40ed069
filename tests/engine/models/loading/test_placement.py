"""Models split over devices and disk: equal logits, files written once, errors that name them."""

import numpy as np
import pytest
import torch
from accelerate.hooks import AlignDevicesHook
from safetensors.torch import load_file, save_file

from engine.cache.calibration import singular_proxy
from engine.core.progress import run_to_end
from engine.models.base import ModelAdapter
from engine.models.loading.checkpoint import Checkpoint, CheckpointError
from engine.models.loading.families import folder_adapter_class
from engine.models.loading.memory_estimate import InsufficientMemoryError
from engine.models.loading.placement import (
    LAYOUT_VERSION,
    OffloadedWeights,
    Placement,
    attach_hooks,
    offload_folder,
    weight_modules,
)
from engine.models.ops import RMSNorm
from tests.engine.cache.test_compositions import CACHES
from tests.engine.cache.test_forward import full
from tests.support.micro import (
    configure,
    make_info,
    make_model,
    make_prompts,
    make_spec,
    run,
    write_checkpoint,
)

CPU, F64 = torch.device("cpu"), torch.float64
IDS = torch.tensor([[7, 300, 2, 41, 9, 2]])
MAPS = {
    "disk": {"": "disk"},
    "mixed": {"embedding": "cpu", "blocks.0": "cpu", "blocks.1": "disk", "head": "disk"},
    "leaves": {"embedding": "disk", "blocks": "cpu", "blocks.1.qkv": "disk", "head": "cpu"},
}


def collect(steps):
    """The value of a generator, and the list of what it yields."""
    yielded = []
    while True:
        try:
            yielded.append(next(steps))
        except StopIteration as end:
            return end.value, yielded


def split(folder, places, where, dtype=F64):
    placement = Placement(CPU, places, where)
    return run_to_end(folder_adapter_class(folder).load(Checkpoint(folder), dtype, placement, (5,)))


def whole(folder, dtype=F64):
    return folder_adapter_class(folder).from_checkpoint(Checkpoint(folder), dtype, CPU, (5,))


@pytest.fixture
def folder(kind, tmp_path):
    return write_checkpoint(tmp_path / "micro", kind=kind)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A Dream checkpoint, whole and split over memory and disk."""
    here = tmp_path_factory.mktemp("pair")
    folder = write_checkpoint(here / "micro", kind="dream", layers=3)
    places = {"embedding": "disk", "blocks": "cpu", "blocks.1": "disk", "head": "disk"}
    return whole(folder), split(folder, places, here / "offload")


@pytest.mark.parametrize("places", MAPS.values(), ids=MAPS)
@pytest.mark.parametrize("dtype", [F64, torch.bfloat16], ids=["float64", "bfloat16"])
def test_a_split_model_gives_equal_logits(folder, places, dtype, tmp_path):
    adapter = split(folder, places, tmp_path / "offload", dtype)
    assert torch.equal(full(adapter, IDS), full(whole(folder, dtype), IDS))
    held = {name: p.device.type for name, p in adapter.named_parameters()}
    for name, module, place in weight_modules(adapter, Placement(CPU, places)):
        on_disk = place == "disk" and not isinstance(module, RMSNorm)
        assert held[f"{name}.weight"] == ("meta" if on_disk else "cpu"), name
    assert (adapter.device, adapter.dtype) == (CPU, dtype)


@pytest.mark.parametrize("places", MAPS.values(), ids=MAPS)
def test_tied_weights_are_stored_together(folder, kind, places, tmp_path):
    config = {"llada": "weight_tying", "dream": "tie_word_embeddings"}
    path = folder / "model.safetensors"
    found = load_file(path)
    found.pop(folder_adapter_class(folder).layouts[0].head)
    save_file(found, path)
    configure(folder, **{config[kind]: True})
    adapter = split(folder, places, tmp_path / "offload")
    assert torch.equal(full(adapter, IDS), full(whole(folder), IDS))
    assert not (tmp_path / "offload" / "head.weight.dat").exists()


@pytest.mark.parametrize("cache", CACHES)
def test_every_cache_decodes_the_same_on_a_split_model(pair, cache):
    spec = make_spec(cache=cache, gen_length=8, steps=8)
    one, two = (run(model, spec, make_prompts(7)) for model in pair)
    assert np.array_equal(one.ids, two.ids)
    for a, b in zip(one.events, two.events, strict=True):
        assert np.array_equal(a.confidence, b.confidence, equal_nan=True)


def test_singular_proxies_work_with_weights_on_disk(pair):
    one, two = (singular_proxy.compute_proxy(model, 1, 2) for model in pair)
    assert torch.equal(one.weight, two.weight)
    assert torch.equal(one.bias, two.bias)
    assert pair[1].block(1).qkv.weight.device.type == "meta"


def test_weights_in_host_memory_are_loaded_for_each_call():
    model = make_model(seed=3)
    before, gpu = full(model, IDS % 40), torch.device("cuda:0")
    kept = OffloadedWeights(None)
    for name, tensor in model.named_parameters():
        kept.keep(name, tensor.detach())
    attach_hooks(model, Placement(gpu, {"": "cpu"}), kept)
    hooks = [m._hf_hook for m in model.modules() if hasattr(m, "_hf_hook")]
    assert len(hooks) == 2 + 4 * model.info.layers
    assert {hook.execution_device for hook in hooks} == {"cuda:0"}
    assert model.head.weight.device.type == "meta"
    for hook in hooks:
        hook.execution_device = "cpu"
    assert torch.equal(full(model, IDS % 40), before)
    kept.keep("head.weight", kept["head.weight"] * 2)
    assert torch.equal(full(model, IDS % 40), before * 2)


def test_a_module_on_another_gpu_runs_there():
    with torch.device("meta"):
        model = ModelAdapter(make_info())
    placement = Placement(torch.device("cuda:0"), {"": "cuda:0", "blocks.1": "meta"})
    attach_hooks(model, placement, OffloadedWeights(None))
    hooks = {n: m._hf_hook for n, m in model.named_modules() if hasattr(m, "_hf_hook")}
    leaves = ("qkv", "out", "feed_forward.gate_up", "feed_forward.down")
    assert set(hooks) == {f"blocks.1.{leaf}" for leaf in leaves}
    for hook in hooks.values():
        assert isinstance(hook, AlignDevicesHook)
        assert (hook.execution_device, hook.offload, hook.io_same_device) == ("meta", False, True)


def test_offloaded_files_are_written_once(folder, tmp_path):
    where = tmp_path / "offload"
    split(folder, MAPS["disk"], where)
    before = {p.name: p.stat().st_ino for p in where.iterdir()}
    placement = Placement(CPU, MAPS["disk"], where)
    adapter, reports = collect(
        folder_adapter_class(folder).load(Checkpoint(folder), F64, placement)
    )
    assert {p.name: p.stat().st_ino for p in where.iterdir()} == before
    assert reports[-1].done == reports[-1].total
    assert torch.equal(full(adapter, IDS), full(whole(folder), IDS))
    assert all(name.endswith(".dat") for name in before)


def test_files_on_disk_have_the_content_of_this_version_of_the_layout(tmp_path):
    """If it changes, the version has to be raised, or later loads reuse files of the old layout."""
    where, stem = tmp_path / "offload", "model.transformer.blocks.1."
    split(write_checkpoint(tmp_path / "micro"), MAPS["disk"], where)
    found = load_file(tmp_path / "micro" / "model.safetensors")
    joined = {"qkv": ("q_proj", "k_proj", "v_proj"), "feed_forward.gate_up": ("ff_proj", "up_proj")}
    for name, parts in joined.items():
        data = torch.cat([found[f"{stem}{part}.weight"] for part in parts]).to(F64)
        assert (where / f"blocks.1.{name}.weight.dat").read_bytes() == data.numpy().tobytes()
    assert LAYOUT_VERSION == 1
    assert offload_folder("digest", "bfloat16").name == "offload-1-bfloat16"


@pytest.mark.parametrize("damage", ["short", "missing"])
def test_an_incomplete_file_is_written_again(folder, damage, tmp_path):
    where = tmp_path / "offload"
    split(folder, MAPS["disk"], where)
    path = where / "blocks.1.feed_forward.down.weight.dat"
    data = path.read_bytes()
    path.unlink() if damage == "missing" else path.write_bytes(data[:-8])
    adapter = split(folder, MAPS["disk"], where)
    assert path.read_bytes() == data
    assert torch.equal(full(adapter, IDS), full(whole(folder), IDS))


def test_weights_are_read_from_disk(folder, tmp_path):
    adapter = split(folder, MAPS["disk"], tmp_path / "offload")
    path = tmp_path / "offload" / "blocks.1.feed_forward.down.weight.dat"
    path.write_bytes((torch.frombuffer(bytearray(path.read_bytes()), dtype=F64) * 2).numpy().data)
    assert (full(adapter, IDS) - full(whole(folder), IDS)).abs().max() > 1e-3


@pytest.mark.parametrize("damage", ["short", "missing"])
def test_a_file_lost_after_loading_is_named(folder, damage, tmp_path):
    adapter = split(folder, MAPS["disk"], tmp_path / "offload")
    path = tmp_path / "offload" / "blocks.1.feed_forward.down.weight.dat"
    path.unlink() if damage == "missing" else path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(CheckpointError, match=r"forward\.down\.weight\.dat: .* load the model"):
        full(adapter, IDS)


def test_an_unwritable_folder_is_named(folder, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        InsufficientMemoryError, match=r"model: .*weights cannot be written to .*file/offload"
    ):
        split(folder, MAPS["disk"], tmp_path / "file" / "offload")


@pytest.mark.parametrize(
    ("places", "message"),
    [({"embedding": "cpu"}, r"device: the map has no place for blocks\.0\.qkv"),
     ({"": "disk"}, "device: .* no folder is given")],
)  # fmt: skip
def test_an_incomplete_map_is_an_error(folder, places, message):
    with pytest.raises(ValueError, match=message):
        split(folder, places, None)
