"""Models, presets, number format and device in the form; what a link or a visitor may name."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from engine.config.presets import TINY_BLOCK
from engine.config.spec import RaceSpec
from inspector.form.model_picker import model_choices, refreshed_models
from inspector.form.presets import Presets, preset_values
from inspector.handlers.page_handlers import Handlers
from tests.inspector import fake
from tests.inspector.conftest import form_values, given_values, make_form, small_race
from tests.inspector.test_handlers import values_of


@pytest.fixture(scope="module")
def big(session):
    return fake.Session(session)


@pytest.fixture(autouse=True)
def nothing_fetched(big):
    big.fetched.clear()


@pytest.fixture(scope="module")
def form(big):
    return make_form(big)


@pytest.fixture(scope="module")
def closed(session):
    """The form of a server that has one device and lets nobody name a model of their own."""
    return make_form(fake.Session(session, any_model=False, devices=["cpu"]))


def filled(form, model, name):
    """The race of a form with the default values after a preset is chosen."""
    values = dict(zip(form.widgets, form_values(form, form.catalog.default), strict=True))
    values |= {"model": model, "prompt": "Mine.", "seed": 7}
    taken = preset_values(form, model, name)
    return form.race(list((values | taken).values())), set(taken)


def test_models_say_their_size_licence_and_where_they_are(big):
    labels = dict((name, label) for label, name in model_choices(big.catalog()["models"]))
    assert labels[fake.BIG] == (
        "owner/big-8B · to be downloaded, 16.0 GB · 8.02 B parameters · MIT"
    )
    big.fetched.add(fake.BIG)
    labels = dict((name, label) for label, name in refreshed_models(big)["choices"])
    assert "big-8B · on this machine" in labels[fake.BIG]
    assert list(labels).index(fake.BIG) < list(labels).index(fake.DREAM)


def test_a_model_that_cannot_be_read_is_listed_as_such():
    broken = {"name": "x", "title": "x", "error": "config.json: not JSON"}
    rows = [fake.row("y"), fake.row("z", embedded=True, available=True) | broken]
    assert model_choices(rows)[0] == ("x · cannot be read", "x")


def test_a_model_brings_its_presets(form):
    found = json.loads(Presets(form).offer(fake.BIG))
    assert found["chosen"] == ""
    assert ["dllm_cache", "dLLM-Cache, GSM8K (paper, table 1)"] in found["choices"]
    for model in (fake.HUGE, "typed/one", None, 3):
        found = json.loads(Presets(form).offer(model))
        assert found["choices"] == []
        assert "no presets" in found["info"]


def taking(name):
    return SimpleNamespace(preset=name)


def test_a_preset_taken_is_shown_as_taken(form):
    shown, given = Presets(form).take(taking("dual"), fake.BIG)
    assert json.loads(shown)["chosen"] == "dual"
    assert given_values(form, given) == preset_values(form, fake.BIG, "dual")
    for odd in ("magic", None, ["x"], {"y": 1}, ""):
        shown, given = Presets(form).take(taking(odd), fake.BIG)
        assert json.loads(shown)["chosen"] == ""
        assert given_values(form, given) == {}


def test_a_preset_fills_both_lengths_and_lane_b(form):
    race, taken = filled(form, fake.BIG, "dllm_cache")
    for lane in (race.a, race.b):
        assert (lane.model, lane.prompt, lane.seed) == (fake.BIG, "Mine.", 7)
        assert (lane.gen_length, lane.block_length, lane.steps) == (256, 8, 256)
        assert lane.dtype == "bfloat16"
    assert (race.b.cache, race.b.knobs["dllm_cache.prompt_interval"]) == ("dllm_cache", 50)
    assert (race.a.cache, race.a.unmasker) == ("none", "quota")
    assert not taken & {"model", "prompt", "seed", "device"}


def test_a_preset_takes_back_what_another_set(form):
    race, taken = filled(form, fake.BIG, "dual")
    assert (race.b.unmasker, race.b.cache, race.b.temperature) == ("threshold", "dual", 0.2)
    assert race.b.knobs["threshold.threshold"] == 0.8
    assert (race.a.unmasker, race.a.steps, race.a.temperature) == ("quota", 64, 0.2)
    assert race.a.eos == race.b.eos == "fill_safe"
    demo, _ = filled(form, fake.BIG, "demo")
    assert (demo.b.eos, demo.b.temperature, demo.b.cache) == ("official", 0.0, "none")
    assert {"temperature", "eos", "b.cache", "b.threshold.threshold"} <= taken
    assert "dtype" not in taken


def test_lane_a_decodes_as_the_preset_does_without_its_cache(form):
    race, _ = filled(form, fake.DREAM, "cached")
    assert race.a.unmasker == race.b.unmasker == "dream"
    assert race.a.knobs["dream.alg"] == race.b.knobs["dream.alg"] == "entropy"
    assert (race.a.cache, race.b.cache) == ("none", "dllm_cache")
    assert race.a.steps == race.b.steps == 32


@pytest.mark.parametrize(("model", "name"), [
    (fake.BIG, "magic"), (fake.DREAM, "dllm_cache"), ("typed/one", "demo"), (None, None),
    (["x"], {"y": 1}),
])  # fmt: skip
def test_an_unknown_preset_changes_nothing(form, model, name):
    assert preset_values(form, model, name) == {}


def test_every_preset_of_the_real_models_fills_the_form(session):
    form = make_form(session)
    for row in form.catalog.models:
        for one in row["presets"]:
            race, taken = filled(form, row["name"], one["name"])
            for key, value in one["fields"].items():
                where = race.b.knobs if "." in key else race.b.to_dict()
                unused = key == "steps" and not form.catalog.uses_steps(race.b.unmasker)
                if key != "knobs" and not unused:
                    assert where[key] == value, (row["name"], one["name"], key)
            assert race.b.knobs.items() >= one["fields"].get("knobs", {}).items()
            assert race.a.gen_length == race.b.gen_length
            assert "prompt" not in taken


def test_links_keep_model_device_and_format(form):
    base = form.catalog.default
    shape = {"model": fake.BIG, "device": "auto", "dtype": "bfloat16"}
    race = RaceSpec(replace(base.a, **shape), replace(base.b, **shape))
    again = form.race(form_values(form, RaceSpec.from_query(race.to_query())))
    assert form.race(form_values(form, again)) == again
    assert (again.a.model, again.b.model) == (fake.BIG, fake.BIG)
    assert (again.b.device, again.b.dtype) == ("auto", "bfloat16")


def test_links_name_only_what_may_be_chosen(form, closed):
    typed = replace(form.catalog.default.a, model="/home/me/checkpoint")
    assert form_values(form, RaceSpec(typed, typed))[0] == "/home/me/checkpoint"
    with pytest.raises(ValueError, match="model: '/home/me/checkpoint' is not on this server"):
        form_values(closed, RaceSpec(typed, typed))
    moved = replace(form.catalog.default.a, device="cuda")
    with pytest.raises(ValueError, match=r"device: 'cuda' .* choose from cpu"):
        form_values(closed, RaceSpec(moved, moved))


def test_the_device_is_shown_where_there_is_a_choice(form, closed):
    def shown(form):
        return form.widgets["device"].parent.parent.visible

    assert shown(form)
    assert not shown(closed)


def test_only_an_open_server_takes_a_typed_model(form, closed):
    assert form.widgets["model"].allow_custom_value
    assert not closed.widgets["model"].allow_custom_value
    values = dict(zip(form.widgets, form_values(form, form.catalog.default), strict=True))
    race = form.race(list((values | {"model": "  owner/name\n"}).values()))
    assert race.a.model == race.b.model == "owner/name"
    with pytest.raises(ValueError, match="model"):
        form.race(list((values | {"model": "x" * 301}).values()))


def planned(big, form, request, **changes):
    values = values_of(form, small_race(big), **changes)
    return json.loads(Handlers(big, form).plan(request, values)[0])


def test_the_plan_says_memory_and_download(big, form, request_of):
    found = planned(big, form, request_of(), model=fake.BIG)
    assert found["memory"].startswith(
        "weights 16.0 GB + runs 600 MB of 80.0 GB free; 16.0 GB to download first; recording: about"
    )
    big.fetched.add(fake.BIG)
    found = planned(big, form, request_of(), model=fake.BIG)
    assert "of 80.0 GB free; recording: about" in found["memory"]


def test_what_does_not_fit_is_refused_in_the_plan(big, form, request_of):
    found = planned(big, form, request_of(), model=fake.HUGE)
    assert not found["ok"]
    assert found["error"].startswith("Model: needs 140 GB")


@pytest.fixture(scope="module")
def mixed(big):
    """A form with a model whose attention is block-causal."""
    form = make_form(big)
    row = {"attention": "block_causal", "block_sizes": [16]}
    presets = [preset.to_dict() for preset in TINY_BLOCK]
    form.catalog.models.append({"name": "blocks", "presets": presets, **row})
    form.catalog.models.append({"name": "bare", "presets": [], **row})
    return form


def chosen(form, model, values):
    """The form's values after another model is chosen, and the preset that is shown."""
    values = dict(zip(form.widgets, values, strict=True)) | {"model": model}
    shown, given = Presets(form).fit(model, list(values.values()))
    values |= given_values(form, given)
    return list(values.values()), json.loads(shown)["chosen"]


def test_settings_that_another_attention_rules_out_give_way(mixed, big):
    race = small_race(big, prompt="Mine.", cache="dual", seed=7)
    values, preset = chosen(mixed, "blocks", form_values(mixed, race))
    found = mixed.race(values)
    assert preset == TINY_BLOCK[0].name
    assert (found.a.cache, found.b.cache, found.b.block_length) == ("none", "frozen", 16)
    assert (found.a.prompt, found.a.seed) == ("Mine.", 7)

    values, preset = chosen(mixed, fake.BIG, values)
    found, usual = mixed.race(values), mixed.catalog.default
    assert preset == ""
    assert (found.b.cache, found.b.block_length) == (usual.b.cache, usual.b.block_length)
    assert (found.a.prompt, found.a.seed) == ("Mine.", 7)


@pytest.mark.parametrize("model", ["blocks", "bare", "unknown"])
def test_settings_that_the_model_takes_stay(mixed, big, model):
    race = small_race(big, cache="sub_block", block_length=16, gen_length=32, steps=32)
    values = form_values(mixed, replace(race, a=replace(race.a, cache="none")))
    kept, preset = chosen(mixed, model, values)
    assert mixed.race(kept) == replace(
        mixed.race(values), a=replace(mixed.race(values).a, model=model),
        b=replace(mixed.race(values).b, model=model),
    )  # fmt: skip
    assert preset == ""


def test_a_block_model_without_presets_keeps_the_settings_that_the_plan_refuses(mixed, big):
    values = form_values(mixed, small_race(big, cache="dual"))
    assert chosen(mixed, "bare", values) == (["bare", *values[1:]], "")
