"""Training resumes exactly, and exports what the adapter reads."""

import json
import shutil
from functools import partial

import pytest
import torch
from safetensors.torch import load_file

from engine.cache.base import StepPlan
from engine.cache.forward import forward
from engine.cache.methods.none import NoCache
from engine.cache.store import ActivationStore
from engine.config.spec import RunSpec
from engine.core.device import cpu_name
from engine.core.rows import ALL
from engine.models.tokenizer import Tokenizer as EngineTokenizer
from engine.serve.model_pool import ModelPool
from engine.tiny import corpus, export, tokenizer, validation
from engine.tiny import train as training
from engine.tiny.batches import BatchStream
from engine.tiny.network import Network, NetworkShape
from engine.tiny.train import main
from engine.tiny.training_inputs import Recipe
from engine.tiny.training_state import initial_state
from tests.support.micro import ROOT

SMALL = ("--tokens", "300", "--save-every", "1", "--families", "short_problems")
FewConversations = partial(BatchStream, chunk=40)


@pytest.fixture(scope="module", autouse=True)
def short_training():
    """Few conversations at a time and validations of few tokens: the sizes have no part here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "BatchStream", FewConversations)
        patch.setattr(validation, "CHUNK", 30)
        patch.setattr(validation, "TOKENS", 500)
        yield


def train(*words):
    main(words)


def weights_of(folder):
    return torch.load(folder / "state.pt", weights_only=True)["model"]


def test_an_interrupted_run_ends_like_an_uninterrupted_one(tmp_path):
    once, twice = tmp_path / "once", tmp_path / "twice"
    train("run", "--kind", "causal", "--steps", "2", "--out", str(once), *SMALL)
    state = torch.load(once / "state.pt", weights_only=True)
    train("run", "--kind", "causal", "--steps", "1", "--out", str(twice), *SMALL)
    halfway = torch.load(twice / "state.pt", weights_only=True)
    assert any((halfway["model"][n] != t).any() for n, t in state["model"].items())
    halfway["phases"][-1]["steps"] = 2
    torch.save(halfway, twice / "state.pt")
    train("run", "--kind", "causal", "--steps", "2", "--out", str(twice), *SMALL)
    for name, tensor in weights_of(twice).items():
        torch.testing.assert_close(tensor, state["model"][name], atol=1e-5, rtol=1e-4)


def test_a_phase_that_goes_on_on_another_device_has_the_minutes_of_both(tmp_path):
    words = ("run", "--kind", "causal", "--out", str(tmp_path), *SMALL, "--steps")
    train(*words, "1")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    phase = state["phases"][-1]
    assert (phase["gpu_seconds"], phase["device_name"]) == (0, cpu_name())
    del phase["gpu_seconds"]  # as of a phase that an earlier version began
    phase |= {"steps": 2, "seconds": 600.0, "device": "cuda", "device_name": "a GPU"}
    torch.save(state, tmp_path / "state.pt")
    train(*words, "2")
    (phase,) = torch.load(tmp_path / "state.pt", weights_only=True)["phases"]
    assert phase["gpu_seconds"] == 600 < phase["seconds"]
    assert phase["device_name"] == f"a GPU and {cpu_name()}"
    phase["seconds"] = 660.0
    assert export.training_minutes([phase]) == (1, 10)


def test_rows_that_were_logged_after_the_saved_step_are_logged_again(tmp_path):
    log = tmp_path / "log.csv"
    train("run", "--kind", "causal", "--steps", "1", "--out", str(tmp_path), *SMALL)
    log.write_text("causal,20,6000,3,1.5000,0.5000\n")  # as of a run that was killed then
    train("run", "--kind", "causal", "--steps", "1", "--out", str(tmp_path), *SMALL)
    assert not log.read_text()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A masked run of two steps."""
    folder = tmp_path_factory.mktemp("trained")
    train("run", "--kind", "masked", "--steps", "2", "--out", str(folder), *SMALL)
    return folder


def test_the_time_of_the_steps_after_the_last_log_line_counts(trained):
    (phase,) = torch.load(trained / "state.pt", weights_only=True)["phases"]
    assert phase["seconds"] > 0


@pytest.fixture(scope="module")
def trained_blocks(tmp_path_factory):
    """The same of a block-causal network."""
    folder = tmp_path_factory.mktemp("blocks")
    blocks = ("--block", "16", "--shift", "1")
    train("run", "--kind", "masked", "--steps", "2", "--out", str(folder), *SMALL, *blocks)
    return folder


@pytest.fixture(scope="module")
def shifted(trained, tmp_path_factory):
    """The masked run, as if its rows had been trained to predict the next position."""
    folder = tmp_path_factory.mktemp("shifted") / "run"
    shutil.copytree(trained, folder)
    state = torch.load(folder / "state.pt", weights_only=True)
    state["phases"][-1]["recipe"]["shift"] = 1
    torch.save(state, folder / "state.pt")
    return folder


@pytest.mark.parametrize("family", ["llada", "dream", "fast_dllm_v2"])
def test_an_export_gives_the_logits_of_the_network(
    trained, shifted, trained_blocks, tmp_path, family
):
    folder, block = tmp_path / "tiny", 16 if family == "fast_dllm_v2" else 0
    run = {"llada": trained, "dream": shifted, "fast_dllm_v2": trained_blocks}[family]
    train("export", "--run", str(run), "--folder", str(folder), "--family", family)
    adapter = ModelPool({"tiny": folder}).load(RunSpec(model="tiny")).adapter
    network = Network(NetworkShape(vocab=tokenizer.VOCAB))
    best = torch.load(run / "best.pt", weights_only=True)
    network.load_state_dict({k: v.bfloat16().float() for k, v in best.items()})
    ids = torch.randint(0, 700, (1, 20), generator=torch.Generator().manual_seed(1))
    store = ActivationStore(adapter.info, (), 1, 20, adapter.dtype, adapter.device)
    ours = forward(adapter, store, NoCache(), StepPlan(), ids, None, ALL)[0]
    place = torch.arange(20)
    seen = (place // block <= place[:, None] // block)[None] if block else None
    with torch.no_grad():
        theirs = network(ids, place, place, seen, False)
    torch.testing.assert_close(ours, theirs[:, : ours.shape[-1]], atol=2e-4, rtol=1e-4)
    info = adapter.info
    assert (info.family, info.logit_shift) == (family, int(family != "llada"))
    assert (info.mask_id, info.eos_id) == (tokenizer.MASK, tokenizer.EOS)
    assert (info.block_size, info.block_causal) == (block, block > 0)


def test_an_export_that_is_interrupted_leaves_no_checkpoint(trained, tmp_path, monkeypatch):
    def full(*given, **more):
        raise OSError("No space left on device")

    monkeypatch.setattr(export, "save", full)  # the weights
    with pytest.raises(SystemExit, match="No space left"):
        train("export", "--run", str(trained), "--folder", str(tmp_path), "--family", "llada")
    assert not (tmp_path / "config.json").exists()


def test_an_export_leaves_no_exam_of_earlier_weights(trained, tmp_path):
    (tmp_path / "exam.json").write_text('{"rows": []}')
    train("export", "--run", str(trained), "--folder", str(tmp_path), "--family", "llada")
    assert not (tmp_path / "exam.json").exists()


def test_a_network_is_exported_in_the_layouts_it_was_trained_for(
    trained, shifted, trained_blocks, tmp_path
):
    for run, family in (
        (trained, "fast_dllm_v2"), (trained_blocks, "dream"), (trained, "qwen2"),
        (trained, "dream"), (shifted, "llada"),
    ):  # fmt: skip
        with pytest.raises(SystemExit, match=r"^error: family: "):
            train("export", "--run", str(run), "--folder", str(tmp_path / "n"), "--family", family)
    assert not (tmp_path / "n").exists()


@pytest.mark.parametrize("family", ["llada", "dream", "qwen2", "fast_dllm_v2"])
@pytest.mark.parametrize("vocabulary", tokenizer.ROWS)
def test_a_vocabulary_is_the_same_in_every_family_but_for_the_special_tokens(family, vocabulary):
    words = tokenizer.build("llada", vocabulary)
    found = tokenizer.as_family(words, family)
    assert found.to_str() == tokenizer.build(family, vocabulary).to_str()


def test_an_export_has_the_tokens_of_its_run_and_not_those_of_todays_corpus(trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    data = json.loads((run / "tokenizer.json").read_text("utf-8"))
    data["model"]["vocab"]["Ġthe"], data["model"]["vocab"]["Ġhas"] = (
        data["model"]["vocab"]["Ġhas"], data["model"]["vocab"]["Ġthe"],
    )  # fmt: skip
    (run / "tokenizer.json").write_text(json.dumps(data), "utf-8")
    train("export", "--run", str(run), "--folder", str(tmp_path / "out"), "--family", "llada")
    written = json.loads((tmp_path / "out" / "tokenizer.json").read_text("utf-8"))
    assert written["model"]["vocab"] == data["model"]["vocab"]


def test_a_dream_export_encodes_prompts_as_the_shifted_training(tmp_path):
    tokenizer.write(tmp_path, "dream", tokenizer.build("dream"))
    exported = EngineTokenizer(tmp_path)
    problem = corpus.draw(3, 1)[0]
    prompt = exported.encode_prompt(problem.question)
    source = FewConversations(tokenizer.build("qwen2"), Recipe(shift=1), "qwen2", 3)
    chat = [*corpus.chat(problem), {"role": "assistant", "content": problem.solution}]
    sample = source._encode([chat])[0]
    assert prompt == sample.ids[: sample.spans[-1][0]]
    assert exported.stop_ids == (tokenizer.EOS, tokenizer.EOT)
    special = [exported.piece(i).decode() for i in range(6)]
    assert special == list(tokenizer.SPECIALS["dream"])


@pytest.mark.parametrize(("name", "family"), [("tiny-llada", "llada"), ("tiny-qwen2", "qwen2")])
def test_a_shipped_model_is_read_and_written_unchanged(name, family):
    folder, shape = ROOT / "assets" / "models" / name, NetworkShape(vocab=tokenizer.VOCAB)
    shipped = load_file(folder / "model.safetensors")
    back = export.checkpoint_tensors(export.read_weights(folder, shape), shape, family)
    assert set(back) == set(shipped)
    assert all((back[n].to(torch.bfloat16) == shipped[n]).all() for n in shipped)


def test_the_weights_with_the_lowest_validation_loss_are_kept(tmp_path):
    words = ("--kind", "causal", "--check-every", "1", "--lr", "0.5", "--matrix-lr", "0.5", *SMALL)
    train("run", "--steps", "3", "--out", str(tmp_path), *words)
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    losses = dict(state["phases"][-1]["checks"])
    assert list(losses) == [1, 2, 3]
    best = torch.load(tmp_path / "best.pt", weights_only=True)
    last = min(losses, key=losses.get) == 3
    assert torch.equal(best["head"], state["model"]["head"]) == last


@pytest.mark.parametrize(("every", "what"), [(9, "loss"), (1, "norm of the weights")])
def test_a_training_that_diverged_says_so_and_keeps_no_weights(every, what, tmp_path):
    words = ("--steps", "2", "--lr", "1e30", "--tokens", "300", "--families", "short_problems")
    with pytest.raises(SystemExit, match=rf"^error: the {what} is \w+ at step \d; give lower --lr"):
        train("run", "--out", str(tmp_path), "--save-every", str(every), *words)
    assert not list(tmp_path.glob("*.pt"))


def test_known_tokens_keep_their_rows_in_a_larger_vocabulary(tmp_path):
    folder = ROOT / "assets" / "models" / "tiny-llada"
    state = initial_state(tmp_path, folder, 1, "words")
    shipped = export.read_weights(folder, NetworkShape())
    written = EngineTokenizer(folder)
    for word in (" apples", " 12", "."):
        (old,), (new,) = written.encode(word), tokenizer.build("llada").encode(word).ids
        assert torch.equal(state["model"]["embed"][new], shipped["embed"][old])
    assert torch.equal(state["model"]["blocks.3.q"], shipped["blocks.3.q"])


def test_a_run_with_an_earlier_vocabulary_is_not_continued_but_starts_another(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    train("run", "--kind", "causal", "--steps", "1", "--out", str(old), *SMALL)
    words = json.loads((old / "tokenizer.json").read_text("utf-8"))
    rows = words["model"]["vocab"]
    rows["Ġapples"], rows["Ġpears"] = rows["Ġpears"], rows["Ġapples"]
    (old / "tokenizer.json").write_text(json.dumps(words), "utf-8")
    with pytest.raises(SystemExit, match=r"the vocabulary has changed; .* --init"):
        train("run", "--kind", "causal", "--steps", "1", "--out", str(old), *SMALL)
    best = torch.load(old / "best.pt", weights_only=True)["embed"]
    taken = initial_state(new, old, 1, "words")["model"]["embed"]
    assert torch.equal(taken[rows["Ġpears"]], best[rows["Ġapples"]])
