"""The registered models: sizes of their configs, presets that can be run."""

import json

import pytest

from engine.catalog import check_model, derive_plan, make_policy
from engine.config.spec import RunSpec
from engine.models.loading.families import adapter_class, named_checkpoints
from engine.models.loading.memory_estimate import parameters
from engine.models.loading.registry import REGISTERED
from engine.serve.session import Session
from engine.vision.config import vision_info
from tests.support.hub_stub import offline
from tests.support.micro import ROOT, write_checkpoint

ON_HUB = [model for model in REGISTERED.values() if not model.embedded]
SIZES = {  # parameters, context, mask, tokens that end a text, shift
    "GSAI-ML/LLaDA-8B-Base": (8_015_581_184, 4096, 126336, 126081, 0),
    "GSAI-ML/LLaDA-8B-Instruct": (8_015_581_184, 4096, 126336, 126081, 0),
    "GSAI-ML/LLaDA-1.5": (8_015_581_184, 4096, 126336, 126081, 0),
    "Gen-Verse/MMaDA-8B-MixCoT": (8_082_690_048, 4096, 126336, 126081, 0),
    "Gen-Verse/MMaDA-8B-Base": (8_082_690_048, 4096, 126336, 126081, 0),
    "Dream-org/Dream-Coder-v0-Instruct-7B": (7_615_616_512, 2048, 151666, 151643, 1),
    "Dream-org/Dream-Coder-v0-Base-7B": (7_615_616_512, 2048, 151666, 151643, 1),
    "apple/DiffuCoder-7B-cpGRPO": (7_615_616_512, 2048, 151666, 151643, 1),
    "apple/DiffuCoder-7B-Instruct": (7_615_616_512, 2048, 151666, 151643, 1),
    "apple/DiffuCoder-7B-Base": (7_615_616_512, 2048, 151666, 151643, 1),
    "inclusionAI/LLaDA-MoE-7B-A1B-Base": (7_356_880_896, 8192, 156895, 156892, 0),
    "inclusionAI/LLaDA-MoE-7B-A1B-Instruct": (7_356_880_896, 8192, 156895, 156892, 0),
    "GSAI-ML/LLaDA-V": (8_015_581_184, 16384, 126336, 126081, 0),
    "inclusionAI/LLaDA2.0-mini": (16_255_643_392, 32768, 156895, 156892, 0),
    "Dream-org/Dream-v0-Base-7B": (7_615_616_512, 2048, 151666, 151643, 1),
    "Dream-org/Dream-v0-Instruct-7B": (7_615_616_512, 2048, 151666, 151643, 1),
    "JetLM/SDAR-8B-Chat": (16_381_470_720 // 2, 32768, 151669, 151643, 0),  # bytes of the index
    "JetLM/SDAR-4B-Chat": (8_822_848_512 // 2, 32768, 151669, 151643, 0),
    "JetLM/SDAR-1.7B-Chat": (2_031_739_904, 32768, 151669, 151643, 0),
    "Efficient-Large-Model/Fast_dLLM_v2_7B": (15_231_233_024 // 2, 32768, 151665, 151645, 1),
    "Efficient-Large-Model/Fast_dLLM_v2_1.5B": (1_543_714_304, 32768, 151665, 151645, 1),
}
LICENCES = {
    "GSAI-ML": "MIT", "Dream-org": "Apache-2.0", "inclusionAI": "Apache-2.0", "JetLM": "MIT",
    "apple": "apple-amlr", "Gen-Verse": "MIT",
    "Efficient-Large-Model": "Apache-2.0",
}  # fmt: skip
UNSTATED = {"GSAI-ML/LLaDA-V": "licence not stated"}  # its model card names none


def read_model_info(model):
    return adapter_class(model.config).read_info(model.config)


def test_sizes_of_the_models_of_the_hub():
    found = {m.name: read_model_info(m) for m in ON_HUB}
    assert {
        name: (parameters(i), i.max_length, i.mask_id, i.eos_id, i.logit_shift)
        for name, i in found.items()
    } == SIZES
    assert {m.name: m.licence for m in ON_HUB} == {
        name: UNSTATED.get(name, LICENCES[name.split("/")[0]]) for name in SIZES
    }


def test_the_vision_part_of_llada_v_is_counted():
    card = REGISTERED["GSAI-ML/LLaDA-V"]
    found = vision_info(card.config, **card.tower, d_model=4096)
    post_layernorm = 2 * 1152  # in the files, and not used
    trunk = parameters(read_model_info(card))
    assert trunk + found.parameters + post_layernorm == 8_434_837_024
    assert (len(found.grids), found.cap, found.max_prompt) == (36, 4, 8192)
    assert found.flops(1) == pytest.approx(0.673e12, rel=0.001)  # 0.642 of them in the tower


def test_the_embedded_models_are_registered_with_the_repositorys_licence():
    embedded = {name: m.licence for name, m in REGISTERED.items() if m.embedded}
    assert {"tiny-llada", "tiny-dream", "tiny-block"} == set(embedded)
    assert set(embedded.values()) == {"MIT"}
    assert (ROOT / "LICENSE").read_text().startswith("MIT")


@pytest.mark.parametrize("model", REGISTERED)
def test_the_presets_of_a_model_can_be_run(model):
    known = REGISTERED[model]
    info = None if known.embedded else read_model_info(known)
    for preset in known.presets:
        spec = RunSpec.from_dict({"model": model, "prompt": "x"} | dict(preset.fields))
        plan, _ = derive_plan(spec)
        assert plan.blocks == spec.gen_length // spec.block_length, preset.name
        if info is not None:
            check_model(spec, info)
            assert spec.gen_length < info.max_length, preset.name


def test_an_unknown_knob_of_a_preset_is_an_error():
    fields = dict(REGISTERED["tiny-llada"].presets[0].fields) | {"quota.speed": 3}
    with pytest.raises(ValueError, match=r"quota\.speed: unknown setting"):
        derive_plan(RunSpec.from_dict({"model": "tiny-llada", "prompt": "x"} | fields))


def test_presets_of_a_model_have_unique_names_and_a_source():
    for model in REGISTERED.values():
        names = [preset.name for preset in model.presets]
        assert len(set(names)) == len(names) > 0
        assert all(preset.title and preset.source for preset in model.presets)


def fields(model, preset):
    return next(p.fields for p in REGISTERED[model].presets if p.name == preset)


def test_presets_hold_the_settings_of_papers_and_demos():
    shape = ("gen_length", "block_length", "steps", "temperature")
    demo = fields("GSAI-ML/LLaDA-8B-Instruct", "demo")
    assert [demo[name] for name in shape] == [128, 32, 128, 0.0]
    dream = fields("Dream-org/Dream-v0-Instruct-7B", "demo")
    assert [dream[name] for name in shape] == [512, 512, 512, 0.2]
    assert (dream["dream.top_p"], dream["dream.alg"]) == (0.95, "entropy")
    cached = fields("GSAI-ML/LLaDA-8B-Instruct", "dllm-cache-gsm8k")
    names = ("prompt_interval", "response_interval", "recompute_ratio")
    assert [cached[f"dllm_cache.{name}"] for name in names] == [50, 7, 0.25]
    spa = fields("Dream-org/Dream-v0-Instruct-7B", "spa-cache-mbpp")
    names = ("refresh_interval", "response_interval", "rank", "peak_ratio")
    assert [spa[f"spa_cache.{name}"] for name in names] == [8, 3, 32, 0.25]
    assert not fields("GSAI-ML/LLaDA-8B-Base", "demo")["chat"]
    free = fields("GSAI-ML/LLaDA-8B-Instruct", "freecache")
    assert (free["freecache.block"], free["block_length"], free["gen_length"]) == (256, 64, 256)
    guided = fields("GSAI-ML/LLaDA-8B-Instruct", "flashdlm")
    assert (guided["freecache.block"], guided["gen_length"]) == (256, 1024)


def test_presets_of_code_models_hold_the_settings_of_their_authors():
    shape = ("gen_length", "block_length", "steps", "temperature", "dream.top_p")
    coder = "Dream-org/Dream-Coder-v0-Instruct-7B"
    example, penalty = (fields(coder, name) for name in ("demo", "penalty"))
    assert [example[name] for name in shape] == [768, 768, 768, 0.1, 0.95]
    assert "dream.padding_penalty" not in example
    assert [penalty[name] for name in shape] == [512, 512, 512, 0.1, 1.0]
    assert penalty["dream.padding_penalty"] == 3.0
    heat = {"Base": 0.2, "Instruct": 0.3, "cpGRPO": 0.3}
    for name, temperature in heat.items():
        found = fields(f"apple/DiffuCoder-7B-{name}", "demo")
        assert [found[name] for name in shape] == [256, 256, 256, temperature, 0.95]
    assert fields("apple/DiffuCoder-7B-cpGRPO", "example")["temperature"] == 0.4


def test_presets_of_mmada_hold_the_settings_of_its_scripts():
    shape = ("gen_length", "block_length", "steps", "temperature", "cfg_scale")
    for model in ("Gen-Verse/MMaDA-8B-Base", "Gen-Verse/MMaDA-8B-MixCoT"):
        example, app = (fields(model, name) for name in ("demo", "app"))
        assert [example.get(name, 0.0) for name in shape] == [128, 128, 128, 1.0, 0.0]
        assert [app.get(name, 0.0) for name in shape] == [512, 128, 256, 1.0, 0.0]
        assert example["chat"]
        assert example["unmasker"] == "quota"


def test_presets_of_spa_cache_have_the_least_ratios_of_the_released_scripts():
    """Those that a script sets, and the default of the evaluation, 2 to the power of -4."""
    own = {
        "GSAI-ML/LLaDA-8B-Instruct": {"mmlu-pro": 0.125, "humaneval": 0.2},
        "GSAI-ML/LLaDA-1.5": {"mmlu-pro": 0.125, "humaneval": 0.2},
        "Dream-org/Dream-v0-Instruct-7B": {"gsm8k": 0.125, "gpqa": 0.2, "mbpp": 0.125},
    }
    for model, least in own.items():
        for preset in REGISTERED[model].presets:
            if preset.name.startswith("spa-cache-"):
                expected = least.get(preset.name.removeprefix("spa-cache-"), 2**-4)
                assert preset.fields["spa_cache.min_update_ratio"] == expected
                policy = make_policy(RunSpec.from_dict({"prompt": "x"} | dict(preset.fields)))
                ratios = policy.ratios(read_model_info(REGISTERED[model]))
                assert ratios[0] == expected
                assert max(ratios) == pytest.approx(0.25, rel=0.01)


def test_presets_of_spa_cache_use_a_chat_template_where_the_released_scripts_do():
    """All scripts for LLaDA but that for HumanEval, and none for Dream."""
    for model in ("GSAI-ML/LLaDA-8B-Instruct", "GSAI-ML/LLaDA-1.5"):
        assert fields(model, "spa-cache-gsm8k")["chat"]
        assert not fields(model, "spa-cache-humaneval")["chat"]
    dream = REGISTERED["Dream-org/Dream-v0-Instruct-7B"].presets
    assert not any(one.fields["chat"] for one in dream if one.name.startswith("spa-cache-"))


def test_presets_of_spa_cache_end_their_text_and_warm_up_as_the_released_scripts_do():
    """LLaDA's look for an end of text after each block, Dream's in every step."""
    for model in ("GSAI-ML/LLaDA-8B-Instruct", "GSAI-ML/LLaDA-1.5"):
        of_blocks, whole = (fields(model, f"spa-cache-{task}") for task in ("gsm8k", "bbh"))
        assert (of_blocks["eos"], of_blocks["spa_cache.warm_up"]) == ("fill_safe", 0)
        assert (whole["eos"], whole["block_length"]) == ("official", whole["gen_length"])
    dream = fields("Dream-org/Dream-v0-Instruct-7B", "spa-cache-gsm8k")
    assert (dream["eos"], dream["spa_cache.warm_up"]) == ("fill_eager", 1)


def test_presets_of_freecache_end_their_text_as_the_released_code_does():
    assert fields("GSAI-ML/LLaDA-8B-Instruct", "freecache")["eos"] == "fill_eager"
    assert fields("Dream-org/Dream-v0-Instruct-7B", "freecache")["eos"] == "fill_safe"


def test_presets_of_dllm_cache_use_a_chat_template_where_the_released_scripts_do():
    templated = {
        "GSAI-ML/LLaDA-8B-Instruct": {"gsm8k", "gpqa", "math", "mmlu-pro", "bbh", "mbpp"},
        "Dream-org/Dream-v0-Instruct-7B": {"gpqa", "mmlu-pro", "mmlu"},
    }
    for model, tasks in templated.items():
        presets = [one for one in REGISTERED[model].presets if one.name.startswith("dllm-cache-")]
        found = {one.name.removeprefix("dllm-cache-") for one in presets if one.fields["chat"]}
        assert found == tasks


@pytest.mark.parametrize("name", ["GSAI-ML/LLaDA-8B-Instruct", "tiny-llada", "tiny-dream"])
def test_presets_of_dare_stand_on_a_cache_with_threshold_decoding(name):
    kv, o, skip = (fields(name, preset) for preset in ("dare-kv", "dare-o", "dare-o-skip"))
    caches = ["prefix+dare_kv", "prefix+dare_o", "dual+dare_o"]
    assert [one["cache"] for one in (kv, o, skip)] == caches
    for one in (kv, o, skip):
        rule = (one["unmasker"], one["threshold.threshold"], one["block_length"])
        assert rule == ("threshold", 0.9, 32)
        assert not any(knob.startswith(("quota.", "dream.")) for knob in one)
    knobs = ("dare_o.skip_first_layers", "dare_o.refresh_interval")
    assert [skip[knob] for knob in knobs] == [2, 2]
    assert not set(knobs) & {*kv, *o}


def rows(session):
    return {row["name"]: row for row in session.catalog()["models"]}


def test_the_catalog_lists_the_models(tmp_path):
    folder = write_checkpoint(tmp_path / "micro")
    session = Session({"micro": folder, "tiny-llada": folder}, offline(tmp_path))
    found = rows(session)
    assert list(found) == ["micro", "tiny-llada", *(model.name for model in ON_HUB)]
    assert json.loads(json.dumps(found)) == found
    kinds = {n: (r["embedded"], r["available"], r["registered"]) for n, r in found.items()}
    assert kinds["micro"] == (False, True, False)
    assert kinds["tiny-llada"] == (True, True, True)
    assert set(kinds.values()) - {kinds["micro"], kinds["tiny-llada"]} == {(False, False, True)}
    assert found["micro"]["parameters"] == 83_104
    big = found["GSAI-ML/LLaDA-8B-Instruct"]
    assert (big["parameters"], big["fetch_bytes"]) == (8_015_581_184, 16_031_162_368)
    assert big["presets"][0]["fields"]["gen_length"] == 128
    assert list(rows(Session({"micro": folder}))) == ["micro"]


def test_the_plan_of_a_registered_model_that_is_not_downloaded(tmp_path, monkeypatch):
    session = Session({}, offline(tmp_path))
    spec = RunSpec(model="GSAI-ML/LLaDA-8B-Instruct", prompt="x", dtype="bfloat16")
    monkeypatch.setattr("engine.serve.model_pool.free_bytes", lambda: {"cpu": 80 * 10**9})
    plan = session.plan(spec)
    assert (plan["weights_bytes"], plan["fetch_bytes"]) == (16_031_162_368, 16_031_162_368)
    assert (plan["prompt_tokens"], plan["context"], plan["free_bytes"]) == (None, 4096, 80 * 10**9)
    assert 0 < plan["memory_bytes"] - plan["weights_bytes"] < 2 * 10**9
    monkeypatch.setattr("engine.serve.model_pool.free_bytes", lambda: {"cpu": 10**9})
    with pytest.raises(
        ValueError, match=r"model: its 8\.02 billion parameters at bfloat16 .* 1\.0 GB"
    ):
        session.plan(spec)


def test_a_command_s_model_is_embedded_a_folder_or_any_other_name(tmp_path):
    assets = tmp_path / "assets"
    write_checkpoint(assets / "models" / "own")
    write_checkpoint(tmp_path / "other")
    folders, name = named_checkpoints("own", assets)
    assert (folders, name) == ({"own": assets / "models" / "own"}, "own")
    added, name = named_checkpoints(str(tmp_path / "other"), assets)
    assert (added, name) == (folders | {"other": tmp_path / "other"}, "other")
    assert named_checkpoints("owner/name", assets) == (folders, "owner/name")
    assert named_checkpoints(None, assets) == (folders, RunSpec().model)


def test_a_command_s_model_may_be_the_folder_where_it_runs(tmp_path, monkeypatch):
    write_checkpoint(tmp_path / "other")
    monkeypatch.chdir(tmp_path / "other")
    folders, name = named_checkpoints(".", tmp_path)
    assert (folders, name) == ({"other": tmp_path / "other"}, "other")


def test_a_name_that_is_too_long_for_a_file_is_left_to_the_session(tmp_path):
    assert named_checkpoints("a" * 300, tmp_path) == ({}, "a" * 300)
