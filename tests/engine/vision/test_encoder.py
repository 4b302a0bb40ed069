"""The vision part: what it sees, how its rows are arranged, damaged checkpoints."""

from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from engine.config.images import ImageRef
from engine.models.loading.checkpoint import Checkpoint, CheckpointError
from engine.models.loading.config import read_config
from engine.vision import run_images
from engine.vision.config import NEWLINE, TOWER, NoTowerError, read_vision_info
from engine.vision.crops import BICUBIC, crops_of, resized
from engine.vision.encoder import ImageEncoder, arrange_rows
from engine.vision.example_image import example_image
from engine.vision.geometry import PAD_LAYOUT, Size
from engine.vision.picture import Picture
from engine.vision.prompt import PlacedImage
from tests.support.llada_v import MICRO, changed_copy, plain

LAYER_0 = TOWER + "encoder.layers.0."


def load(folder=MICRO, dtype=torch.float64):
    files = Checkpoint(folder)
    info = read_vision_info(read_config(folder), files.shapes, 64)
    return ImageEncoder.from_checkpoint(files, info, dtype, torch.device("cpu"))


@pytest.fixture(scope="module")
def encoder():
    return load()


def rows_of(encoder, image, mode="anyres"):
    picture = Picture.of_image(image)
    return encoder.encode(picture, encoder.info.layout(picture.ref, mode))


def test_the_attention_is_torchs_fused_kernel_and_the_last_norm_is_gone(encoder):
    assert encoder.tower.config._attn_implementation == "sdpa"
    assert isinstance(encoder.tower.post_layernorm, torch.nn.Identity)
    assert encoder.info.parameters == sum(p.numel() for p in encoder.parameters())


def test_the_last_six_pixels_of_a_crop_are_not_seen(encoder):
    image = example_image().resize((384, 384))
    before = rows_of(encoder, image, "pad")
    image.paste((0, 0, 0), (378, 0, 384, 384))
    image.paste((0, 0, 0), (0, 378, 384, 384))
    assert torch.equal(rows_of(encoder, image, "pad"), before)
    image.putpixel((377, 200), (255, 0, 255))
    assert not torch.equal(rows_of(encoder, image, "pad"), before)


def test_newlines_follow_every_row_of_the_map_and_nothing_else(encoder):
    picture = Picture.of_image(example_image())
    layout = encoder.info.layout(picture.ref, "anyres")
    rows = encoder.encode(picture, layout)
    found = (rows == encoder.newline).all(1).nonzero()[:, 0]
    width = layout.map.width + 1
    assert found.tolist() == list(range(729 + width - 1, layout.rows, width))
    assert len(rows) == layout.rows
    padded = rows_of(encoder, example_image(), "pad")
    assert (padded == encoder.newline).all(1).nonzero()[:, 0].tolist() == [729]


def test_tiles_are_joined_in_the_order_of_the_image(encoder):
    layout = encoder.info.layout(Picture.of_image(plain(768, 768)).ref, "anyres")
    crops = torch.arange(5.0, dtype=torch.float64)[:, None, None].expand(-1, 729, 1)
    rows = arrange_rows(crops, layout, torch.full((1,), -1.0, dtype=torch.float64))
    assert set(rows[:729, 0].tolist()) == {0.0}
    board = rows[729:, 0].view(54, 55)
    assert board[0, 0] == 1
    assert board[0, 53] == 2
    assert board[53, 0] == 3
    assert board[53, 53] == 4
    assert (board[:, 54] == -1).all()


def test_the_height_is_shrunk_first_where_it_shrinks_more_than_twice_as_much():
    image = Image.effect_noise((210, 800), 100).convert("RGB")
    first = image.resize((210, 384), BICUBIC).resize((384, 384), BICUBIC)
    assert resized(image, Size(384, 384)).tobytes() == first.tobytes()
    wide = image.transpose(Image.Transpose.ROTATE_90)
    first = wide.resize((384, 210), BICUBIC).resize((384, 384), BICUBIC)
    assert resized(wide, Size(384, 384)).tobytes() == first.tobytes()


@pytest.mark.parametrize(
    "size", [(700, 300), (300, 900), (384, 100), (50, 60), (2, 1500), (901, 901)]
)
def test_an_image_is_padded_as_a_whole_square_would_be(size):
    noise = torch.randint(256, (size[1], size[0], 3), generator=torch.Generator().manual_seed(1))
    image, side = Image.fromarray(noise.byte().numpy()), max(size)
    square = Image.new("RGB", (side, side), (127, 127, 127))
    square.paste(image, ((side - size[0]) // 2, (side - size[1]) // 2))
    (found,) = crops_of(image, PAD_LAYOUT)
    assert found.tobytes() == resized(square, Size(384, 384)).tobytes()


def test_a_long_image_is_padded_without_its_square_in_memory(monkeypatch):
    made, new = [], Image.new
    monkeypatch.setattr(
        Image, "new", lambda mode, size, *fill: made.append(size) or new(mode, size, *fill)
    )
    for size in ((8_192, 2), (2, 8_192)):
        crops_of(new("RGB", size), PAD_LAYOUT)
    assert 0 < max(width * height for width, height in made) < 10_000_000


def test_padding_is_grey_and_centred():
    crop = crops_of(plain(200, 100), PAD_LAYOUT)[0]
    assert crop.getpixel((0, 0)) == (127, 127, 127)
    assert crop.getpixel((192, 192)) == (200, 60, 60)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_formats_are_near_float64(encoder, dtype):
    exact = rows_of(encoder, plain(60, 40), "pad")
    gap = (rows_of(load(dtype=dtype), plain(60, 40), "pad").double() - exact).abs().max()
    assert gap < {torch.float32: 1e-4}.get(dtype, 0.3)


def test_a_layer_and_a_head_that_are_not_used_are_not_read(tmp_path, encoder):
    def grow(tensors):
        for name in [n for n in tensors if n.startswith(LAYER_0)]:
            tensors[name.replace("layers.0.", "layers.26.")] = tensors[name].clone()
        tensors[TOWER + "head.probe"] = torch.ones(1, 1, 64)

    folder = changed_copy(tmp_path / "m", grow)
    found = read_vision_info(read_config(folder), Checkpoint(folder).shapes, 64)
    assert found == encoder.info


def test_a_config_that_names_a_tower_without_tensors_says_text_only(tmp_path):
    def strip(tensors):
        for name in [n for n in tensors if n.startswith(TOWER)]:
            del tensors[name]

    folder = changed_copy(tmp_path / "m", strip)
    with pytest.raises(NoTowerError, match="takes text only"):
        read_vision_info(read_config(folder), Checkpoint(folder).shapes, 64)


@pytest.mark.parametrize("name", [LAYER_0 + "mlp.fc1.bias", "model.mm_projector.2.weight", NEWLINE])
def test_a_missing_tensor_is_named(tmp_path, name):
    folder = changed_copy(tmp_path / "m", lambda tensors: tensors.pop(name))
    with pytest.raises(CheckpointError, match=name):
        load(folder)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        (TOWER + "embeddings.position_embedding.weight", (196, 64)),
        (TOWER + "embeddings.patch_embedding.weight", (64, 3, 16, 16)),
        ("model.mm_projector.0.weight", (32, 64)), (NEWLINE, (32,)),
        (LAYER_0 + "self_attn.q_proj.weight", (64, 32)),
    ],
)  # fmt: skip
def test_a_wrong_size_is_named(tmp_path, name, shape):
    folder = changed_copy(tmp_path / "m", lambda tensors: tensors.update({name: torch.ones(shape)}))
    with pytest.raises(CheckpointError, match=f"{name}: shape"):
        load(folder)


def test_a_width_without_sixteen_heads_is_refused(tmp_path):
    def narrow(tensors):
        tensors[TOWER + "embeddings.patch_embedding.weight"] = torch.ones(60, 3, 14, 14)

    folder = changed_copy(tmp_path / "m", narrow)
    with pytest.raises(CheckpointError, match="16 heads"):
        load(folder)


def test_a_tower_without_layers_takes_text_only(tmp_path):
    def strip(tensors):
        for name in [n for n in tensors if ".encoder.layers." in n]:
            del tensors[name]

    folder = changed_copy(tmp_path / "m", strip)
    with pytest.raises(NoTowerError, match=f"^{LAYER_0}layer_norm1.weight: .* takes text only"):
        load(folder)


@pytest.mark.parametrize(
    "name", ["embeddings.patch_embedding.weight", "encoder.layers.0.mlp.fc1.weight"]
)
def test_a_single_number_in_place_of_a_matrix_is_named(tmp_path, name):
    folder = changed_copy(
        tmp_path / "m", lambda tensors: tensors.update({TOWER + name: torch.ones(())})
    )
    with pytest.raises(CheckpointError, match=r"vision_model\.\S*: (width 0|shape)"):
        load(folder)


class SlowEncoder:
    """Encodes two crops, each in a second of the test's clock."""

    device = torch.device("cpu")
    info = SimpleNamespace(flops=lambda crops: 0)

    def __init__(self, clock):
        self.clock = clock

    def encode_steps(self, picture, layout):
        for done in (1, 2):
            self.clock[0] += 1.0
            yield done
        return torch.zeros(layout.rows, 8)


def test_the_time_of_an_image_is_that_of_its_encoder_alone(monkeypatch):
    """Between two steps the caller may wait, for example for the page."""
    clock, ref = [0.0], ImageRef(8, 8, "0" * 32)
    monkeypatch.setattr(run_images, "synchronized_time", lambda device: clock[0])
    placed = (PlacedImage(ref, "pad", PAD_LAYOUT, 0),)
    encoding = run_images.encode_images(SlowEncoder(clock), placed, {str(ref): None}, {})
    for _ in range(2):
        next(encoding)
        clock[0] += 60.0
    with pytest.raises(StopIteration) as end:
        next(encoding)
    assert end.value.value.ms == 2000.0
