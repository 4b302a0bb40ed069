"""MMaDA, text side: LLaDA's network with image codes behind the vocabulary."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.config.spec import RunSpec
from engine.core.events import StepEvent
from engine.core.progress import run_to_end
from engine.models.base import ModelInfo
from engine.models.llada import LladaAdapter
from engine.models.loading.checkpoint import Checkpoint, CheckpointError
from engine.models.loading.families import adapter_class, read_model_info
from engine.models.loading.memory_estimate import parameters
from engine.models.loading.placement import Placement, plan_placement, weight_modules
from engine.models.loading.registry import MMADA_8B, REGISTERED
from engine.models.mmada import FIRST_IMAGE_ID, MmadaAdapter
from engine.models.tokenizer import Tokenizer
from engine.record.recorder import Recorder
from engine.serve.model_pool import ModelPool
from engine.serve.session import Session
from engine.unmask.proposals import exclude_non_text, propose
from tests.conformance.cases import GOLDENS, read_cases
from tests.conformance.runs import decode
from tests.conformance.samplers import plain_setup
from tests.engine.cache.test_forward import full
from tests.support.micro import TWO_BLOCKS, configure, full_policies, write_checkpoint

CASES = {case.id: case for case in read_cases(GOLDENS / "mmada")}
TEXT, CODES = 768, 64  # ids of text, then codes of images
SPEC = {"model": "m", "prompt": "Hello", "gen_length": 16, "block_length": 8, "steps": 16}


def written(folder):
    """A checkpoint with LLaDA's layout and tokenizer, and image codes behind the vocabulary."""
    sizes = dict.fromkeys(("vocab_size", "embedding_size", "new_vocab_size"), TEXT + CODES)
    return write_checkpoint(
        folder / "m", **sizes, architectures=["MMadaModelLM"], model_type="mmada",
        llm_vocab_size=TEXT, codebook_size=CODES, num_vq_tokens=16, num_new_special_tokens=0,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path)


def test_sizes_of_the_published_models():
    info = adapter_class(MMADA_8B).read_info(MMADA_8B, (126348,))
    assert adapter_class(MMADA_8B) is MmadaAdapter
    assert parameters(info) == 8_082_690_048
    assert (info.text_size, info.vocab_size, info.mask_id) == (126349, 134656, 126336)
    assert (info.stop_ids, info.fill_id) == ((126081, 126348), 126081)
    assert info.double_confidence
    for name in ("Gen-Verse/MMaDA-8B-Base", "Gen-Verse/MMaDA-8B-MixCoT"):
        assert REGISTERED[name].config == MMADA_8B


def test_logits_of_text_equal_those_of_llada_with_the_same_trunk():
    mmada = CASES["mmada-forward"].load_adapter()
    text, prompt = mmada.info.text_size, CASES["mmada-forward"].prompt[None]
    fields = {f: getattr(mmada.info, f) for f in ModelInfo.__dataclass_fields__}
    own = {"family": "llada", "vocab_size": text, "text_size": 0, "double_confidence": False}
    llada = LladaAdapter(ModelInfo(**fields | own))
    weights = mmada.state_dict()

    def cropped(start):
        rows = {n: weights[n][start : start + text] for n in ("embedding.weight", "head.weight")}
        llada.load_state_dict(weights | rows)
        return full(llada, prompt)

    assert text == 448
    whole = full(mmada, prompt)
    assert whole.shape[-1] == 512
    torch.testing.assert_close(cropped(0), whole[..., :text], atol=1e-5, rtol=0)
    assert (cropped(1) - whole[..., :text]).abs().max() > 1


@pytest.mark.parametrize("name", [name for name in CASES if "text" in name])
def test_image_codes_are_never_proposed_unless_asked(name):
    """In the recorded runs they are: the authors' sampler keeps nothing out."""
    case, released = CASES[name], plain_setup(CASES[name])
    assert (case.arrays["final_ids"] >= 448).any()
    adapter = case.load_adapter()
    assert adapter.info.text_only
    ids = decode(replace(released, adapter=adapter), case.prompt, Recorder()).state.ids
    assert (ids < 448).all()
    ids = decode(released, case.prompt, Recorder()).state.ids
    assert np.array_equal(ids[0], case.arrays["final_ids"])


def test_ids_behind_the_text_are_excluded_for_models_that_have_any():
    info = read_info()
    for text, only, excluded in ((0, True, {440}), (448, False, {440}),
                                 (448, True, {440, *range(448, 512)})):  # fmt: skip
        logits = torch.zeros(1, 2, 512)
        exclude_non_text(logits, replace(info, text_size=text, text_only=only))
        assert set((logits[0, 1] == -torch.inf).nonzero()[:, 0].tolist()) == excluded


def read_info():
    return read_model_info(CASES["mmada-forward"].model_folder("mmada-micro-11"))


def test_confidences_are_computed_in_float64(folder):
    """In float32, both probabilities are 1, and the lower position would come first."""
    logits, real = torch.zeros(1, 2, 50), torch.ones(1, 2, dtype=torch.bool)
    logits[0, :, 7] = torch.tensor([30.0, 35.0])
    single = propose(logits, real, "confidence", 0.0, [])
    double = propose(logits, real, "confidence", 0.0, [], double=True)
    assert single.score.tolist() == [[1.0, 1.0]]
    assert double.score.dtype == torch.float64
    assert double.score[0, 0] < double.score[0, 1] < 1
    assert single.ranking().tolist() == [[0, 1]]
    assert double.ranking().tolist() == [[1, 0]]
    assert read_model_info(folder).double_confidence


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    return Session({"m": written(tmp_path_factory.mktemp("mmada"))})


@pytest.mark.parametrize(
    ("cache", "unmasker"),
    [*((cache, "quota") for cache in full_policies()), ("none", "threshold"), ("none", "dream")],
)
def test_every_cache_and_several_unmaskers_decode_text(session, cache, unmasker):
    """The ids of images are excluded before the unmasker chooses."""
    spec = RunSpec(**SPEC | TWO_BLOCKS, cache=cache, unmasker=unmasker, record="layers")
    events = list(session.run(spec))
    answer = events[-1].canvas[0, -8:]
    assert events[-1].reason == "done"
    assert ((answer < TEXT) & (answer != 2)).all()
    tops = [e.recording.top_ids for e in events if isinstance(e, StepEvent)]
    assert (np.concatenate([top.ravel() for top in tops]) < TEXT).all()


def test_the_template_of_the_authors_scripts(folder):
    tokenizer = ModelPool({"m": folder}).tokenizer("m")
    ids = tokenizer.encode_prompt("", (("system", " Be brief. "), ("user", "Hello ")))
    assert b"".join(map(tokenizer.piece, ids)).decode() == (
        "<|startoftext|><|start_header_id|>system<|end_header_id|>\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\nHello<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n"
    )
    own = Tokenizer(folder).encode_prompt("Hello")
    assert own != tokenizer.encode_prompt("Hello")  # LLaDA's has two line breaks


@pytest.mark.parametrize(
    ("change", "message"),
    [({"llm_vocab_size": ...}, "llm_vocab_size should be a whole number, got None"),
     ({"codebook_size": 65}, "codebook_size 65, num_new_special_tokens 0 add up to 833"),
     ({"codebook_size": -1}, "codebook_size is -1"),
     ({"num_new_special_tokens": 3}, "add up to 835"),
     ({"new_vocab_size": 831}, "vocab_size is 832 and new_vocab_size 831"),
     ({"vocab_size": 830}, "vocab_size is 830"),
     ({"embedding_size": 100}, "embedding_size"),
     ({"num_experts": 64}, "num_experts is 64, a field of another family than mmada"),
     ({"mask_token_id": 800}, "mask_token_id is 800, an image"),
     ({"block_type": "sequential"}, "block_type is 'sequential'")],
)  # fmt: skip
def test_a_wrong_config_names_its_field(folder, change, message):
    configure(folder, **change)
    with pytest.raises(CheckpointError, match=message):
        read_model_info(folder)


def test_a_config_of_mmada_under_lladas_name_is_refused(folder):
    configure(folder, architectures=["LLaDAModelLM"], model_type="llada")
    with pytest.raises(CheckpointError, match="llm_vocab_size is 768, a field of another family"):
        read_model_info(folder)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_weights_on_disk_and_in_half_precision_give_equal_logits(folder, dtype, tmp_path):
    files, ids = Checkpoint(folder), torch.arange(6, 20)[None]
    whole = MmadaAdapter.from_checkpoint(files, dtype, torch.device("cpu"))
    assert whole.info == read_model_info(folder)
    places = {"embedding": "disk", "blocks": "cpu", "blocks.1": "disk", "head": "disk"}
    placement = Placement(torch.device("cpu"), places, tmp_path / "offload")
    split = run_to_end(MmadaAdapter.load(files, dtype, placement))
    assert torch.equal(full(split, ids), full(whole, ids))
    exact = full(MmadaAdapter.from_checkpoint(files, torch.float64, torch.device("cpu")), ids)
    error = (full(whole, ids).double() - exact).abs().max() / exact.std()
    assert (0 < error < 0.2) == (dtype != torch.float64)


def test_the_published_model_is_split_over_devices(tmp_path):
    info, gb = MmadaAdapter.read_info(MMADA_8B), 10**9
    free = {"cuda:0": 8 * gb, "cpu": 20 * gb}
    placement = plan_placement(info, torch.bfloat16, "auto", tmp_path, gb, free)
    with torch.device("meta"):
        adapter = MmadaAdapter(info)
    assert sum(p.numel() for p in adapter.parameters()) == 8_082_690_048
    assert {place for *_, place in weight_modules(adapter, placement)} == {"cuda:0", "cpu"}


def test_image_codes_begin_behind_lladas_text():
    assert FIRST_IMAGE_ID == 126349
    assert read_info().text_size == 448
