"""The form gives back the race it was given, shows only what is spent, refuses the rest."""

from dataclasses import replace

import gradio as gr
import pytest

from engine.config.spec import RaceSpec, RunSpec
from inspector.form import settings
from inspector.page_data.plan import context_use, memory, sentence
from tests.inspector.conftest import form_values, make_form


def filled(form, race, **changes):
    found = dict(zip(form.widgets, form_values(form, race), strict=True)) | changes
    return list(found.values())


def test_defaults_survive_the_round_trip(form, session):
    race = session.default_race()
    again = form.race(form_values(form, race))
    assert again.a.prompt == race.a.prompt
    assert again.b.unmasker == "threshold"
    assert again.b.cache == "dual"
    assert again.b.knobs["threshold.threshold"] == 0.9
    assert form.race(form_values(form, again)) == again


def test_a_link_restores_the_settings(form, session):
    race = form.race(
        filled(
            form, session.default_race(),
            **{"gen_length": 64.0, "seed": 11, "prompt": "<b>&?=${x}`é\u202e😀\n\nq",
               "a.cache": "dual", "b.threshold.threshold": 0.55, "temperature": 0.3,
               "eos": "fill_safe"},
        )
    )  # fmt: skip
    again = RaceSpec.from_query(race.to_query())
    assert again == race
    assert form.race(form_values(form, again)) == race


def test_only_the_chosen_methods_knobs_are_in_the_spec(form, session):
    race = form.race(form_values(form, session.default_race()))
    assert all(key.split(".")[0] in ("quota", "none") for key in race.a.knobs)
    assert all(key.split(".")[0] in ("threshold", "dual") for key in race.b.knobs)


def test_unspent_steps_do_not_matter(form, session):
    race = form.race(filled(form, session.default_race(), **{"b.steps": -5}))
    assert race.b.steps == session.default_race().b.steps
    with pytest.raises(ValueError, match="steps"):
        form.race(filled(form, session.default_race(), **{"a.steps": -5}))


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("gen_length", 0, "gen_length"),
        ("gen_length", -3, "gen_length"),
        ("gen_length", None, "gen_length"),
        ("gen_length", 1.5, "gen_length"),
        ("gen_length", 10**9, "gen_length"),
        ("block_length", 7, "block_length"),
        ("temperature", float("nan"), "temperature"),
        ("prompt", "x" * 8001, "prompt"),
        ("eos", "never", "eos"),
        ("seed", -1, "seed"),
    ],
)
def test_bad_values_name_their_field(form, session, key, value, named):
    with pytest.raises(ValueError, match=named):
        form.race(filled(form, session.default_race(), **{key: value}))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 3}, "seed"),
        ({"unmasker": "magic"}, "b.unmasker"),
        ({"cache": "magic"}, "b.cache"),
        ({"prompt": "", "messages": (("user", "hi"),)}, "prompt|messages"),
    ],
)
def test_links_that_the_page_cannot_show_are_refused(form, session, change, named):
    race = session.default_race()
    with pytest.raises(ValueError, match=named):
        form_values(form, RaceSpec(race.a, replace(race.b, knobs={}, **change)))


def test_knobs_follow_the_method(form):
    owned = [key for key in form.groups if key[0] == "b"]
    *groups, steps = form.lane_updates("b", "threshold", "none")
    shown = [key[2] for key, group in zip(owned, groups, strict=True) if group["visible"]]
    assert shown == ["threshold"]
    assert steps["interactive"] is False
    assert form.lane_updates("b", "quota", "dual")[-1]["interactive"] is True


def test_every_widget_has_a_label_and_its_own_id(form):
    assert all(widget.label for widget in form.inputs)
    ids = [widget.elem_id for widget in form.inputs]
    assert len(set(ids)) == len(ids)


def test_titles(form, session):
    race = session.default_race()
    assert form.catalog.title(race.a.to_dict()) == "Plain decoding"
    assert "0.9" in form.catalog.title(race.b.to_dict())
    assert form.catalog.title({"cache": "x", "unmasker": "y", "knobs": 3}) == "x + y"
    assert form.catalog.title({}) is not None
    causal = replace(race.a, unmasker="autoregressive", knobs={"autoregressive.model": "a/b"})
    assert form.catalog.title(causal.to_dict()) == "Autoregressive decoding (a/b)"


def test_plain_decoding_in_another_order_has_a_title_of_its_own(form, session):
    plain = session.default_race().a
    scheduled = [
        name for _, name in form.catalog.choices("unmasker") if form.catalog.uses_steps(name)
    ]
    titles = [form.catalog.title(replace(plain, unmasker=name).to_dict()) for name in scheduled]
    assert titles[scheduled.index("quota")] == "Plain decoding"
    assert titles[scheduled.index("dream")] == "Plain decoding (Dream)"
    assert len(set(titles)) == len(scheduled) > 2


def test_a_slider_can_stand_at_its_default(form):
    sliders = {key: one for key, one in form.widgets.items() if isinstance(one, gr.Slider)}
    assert sliders
    for key, slider in sliders.items():
        steps = (slider.value - slider.minimum) / slider.step
        assert abs(steps - round(steps)) < 1e-6, key
    eps = form.widgets["b.dream.eps"]
    assert (type(eps), eps.value) == (gr.Number, 0.001)


def test_knobs_are_called_as_the_papers_call_them(form):
    labels = [widget.label for widget in form.inputs]
    assert not {"Case2 B", "Ref B", "Eps B", "Cfg interval B"} & set(labels)
    assert {"Compared with B", "Update ratio (ρ) B", "CFG interval B"} <= set(labels)
    assert "Case 2 of the paper" in form.widgets["b.dllm_cache.case2"].info


def test_the_plan_in_words(session):
    race, shape = session.default_race(), {"gen_length": 128, "block_length": 32, "steps": 128}
    race = RaceSpec(replace(race.a, **shape), replace(race.b, **shape))
    assert sentence(race.a, session.plan(race.a)) == (
        "128 steps / 4 blocks = 32 per block, 1 token a step, 128 forwards"
    )
    assert "between 4 and 128 forwards" in sentence(race.b, session.plan(race.b))
    uneven = replace(race.a, steps=96)
    guided = replace(race.a, cfg_scale=0.5)
    words = "128 forwards, and at most as many again for guidance"
    assert sentence(guided, session.plan(guided)).endswith(words)
    assert "1 to 2 tokens a step" in sentence(uneven, session.plan(uneven))
    one = replace(race.a, gen_length=32, steps=1)
    assert "1 step / 1 block" in sentence(one, session.plan(one))
    dream = replace(race.a, unmasker="dream", knobs={"dream.schedule": "released"})
    assert "0 to 2 tokens a step, 128 forwards" in sentence(dream, session.plan(dream))
    origin = replace(dream, knobs={"dream.alg": "origin"})
    assert "chance decides: between 4 and 128 forwards" in sentence(origin, session.plan(origin))
    dynamic = replace(race.a, unmasker="dynamic")
    assert "confidence decides: between 4 and" in sentence(dynamic, session.plan(dynamic))
    few = replace(race.a, steps=32, cache="d2_cache", knobs={"d2_cache.current_k": 1})
    assert "chance or the cache decides: between" in sentence(few, session.plan(few))
    stops = replace(race.a, eos="fill_safe")
    assert "1 token a step, between 1 and 128 forwards" in sentence(stops, session.plan(stops))
    causal = replace(race.a, unmasker="autoregressive")
    said = sentence(causal, session.plan(causal))
    assert said == "one token a forward: between 1 and 128 forwards"
    assert "answer 128 of" in context_use(race.a, session.plan(race.a))
    assert context_use(race.a, {}) == ""


BLOCKS = {
    "blocks": 3, "steps_per_block": 16, "tokens_per_step": (1,) * 16, "min_forwards": 1,
    "max_forwards": 38, "prompt_tokens": 26, "context": 1024, "attention": "block_causal",
}  # fmt: skip


def test_the_steps_are_divided_by_the_blocks_of_the_answer_also_if_the_prompt_shares_one():
    spec = RunSpec(gen_length=32, block_length=16, steps=32)
    assert sentence(spec, BLOCKS).startswith(
        "32 steps / 2 blocks = 16 per block, 3 blocks with the one that the prompt shares, 1 token"
    )
    assert "at most 3 blocks" in sentence(spec, BLOCKS | {"prompt_tokens": None})
    alone = sentence(spec, BLOCKS | {"blocks": 2, "prompt_tokens": 32})
    assert alone.startswith("32 steps / 2 blocks = 16 per block, 1 token")


def test_the_context_holds_the_suffix_and_whole_blocks():
    spec = RunSpec(gen_length=32, block_length=16, steps=32)
    full = BLOCKS | {"attention": "full", "suffix_tokens": 7}
    assert context_use(spec, full) == "prompt 26 + answer 32 + suffix 7 of 1024 tokens"
    whole = "prompt 26 + answer 32, 64 in whole blocks, of 1024 tokens"
    assert context_use(spec, BLOCKS) == whole
    even = BLOCKS | {"prompt_tokens": 32}
    assert context_use(spec, even) == "prompt 32 + answer 32 of 1024 tokens"
    assert context_use(spec, BLOCKS | {"prompt_tokens": None}) == "answer 32 of 1024 tokens"


@pytest.mark.parametrize(("typed", "meant"), [("", None), (" 7 ", 7), ("3.5", "3.5"), ("x", "x")])
def test_an_optional_number_may_be_empty(typed, meant):
    row = {"optional": True, "type": "int", "default": None}
    assert settings._as_field_type(typed, row) == meant


def test_an_empty_knob_stays_empty(form, session):
    race = session.default_race()
    key = "b.dual.refresh_interval"
    assert dict(zip(form.widgets, form_values(form, race), strict=True))[key] == ""
    assert form.race(filled(form, race, **{key: "4"})).b.knobs["dual.refresh_interval"] == 4


def test_a_cache_on_another_has_the_knobs_of_both(form):
    assert ("dual+dare_o") in [name for _, name in form.catalog.choices("cache")]
    owned = [key for key in form.groups if key[0] == "b"]
    *groups, _ = form.lane_updates("b", "threshold", "dual+dare_o")
    shown = {key[2] for key, group in zip(owned, groups, strict=True) if group["visible"]}
    assert shown == {"threshold", "dual", "dare_o"}
    stacked = replace(form.catalog.default.b, cache="dual+dare_o", knobs={"dare_o.qbar": 0.25})
    race = replace(form.catalog.default, b=stacked)
    again = form.race(form_values(form, race))
    assert again.b.cache == "dual+dare_o"
    assert again.b.knobs["dare_o.qbar"] == 0.25
    assert form.catalog.parts("cache", "dual+dllm_cache") == []


@pytest.mark.parametrize("knob", ["guided.guider", "autoregressive.model"])
def test_a_causal_model_is_chosen_by_name(form, session, knob):
    chooser = form.widgets[f"b.{knob}"]
    assert [name for _, name in chooser.choices] == session.catalog()["guiders"]
    assert chooser.allow_custom_value, "here any model may be named"
    name = "Qwen/Qwen2.5-0.5B-Instruct"
    typed = {"b.unmasker": knob.split(".")[0], "b.cache": "none", f"b.{knob}": f" {name} "}
    race = form.race(filled(form, session.default_race(), **typed))
    assert race.b.knobs[knob] == name


@pytest.mark.parametrize("knob", ["guided.guider", "autoregressive.model"])
def test_a_public_page_shows_no_unknown_causal_model(session, knob):
    closed = make_form(Closed(session))
    assert not closed.widgets[f"a.{knob}"].allow_custom_value
    race = session.default_race()
    b = replace(race.b, unmasker=knob.split(".")[0], cache="none", knobs={knob: "/etc"})
    with pytest.raises(ValueError, match=rf"b\.{knob}: '/etc' is not on this server"):
        form_values(closed, RaceSpec(race.a, b))
    known = replace(b, knobs={knob: "tiny-qwen2"})
    assert form_values(closed, RaceSpec(race.a, known))


class Closed:
    """The session of a public page."""

    def __init__(self, inner):
        self.default_race = inner.default_race
        self.catalog = lambda: inner.catalog() | {"any_model": False}


def test_the_plan_says_what_a_guider_takes():
    row = {
        "weights_bytes": 7e6, "memory_bytes": 9e6, "kept_bytes": 0, "free_bytes": 8e9,
        "fetch_bytes": 0, "guider_bytes": 0,
    }  # fmt: skip
    guided = row | {"memory_bytes": 15e6, "guider_bytes": 7e6}
    assert memory([row]) == "weights 7.00 MB + runs 2.00 MB of 8.00 GB free"
    assert memory([row, guided]) == (
        "weights 7.00 MB + runs 9.00 MB (7.00 MB of it the guider) of 8.00 GB free"
    )
    assert memory([row | {"guider_bytes": None}]).endswith("; the guider to download first")


def test_the_plan_says_what_recording_keeps_and_why_it_is_refused():
    row = {"weights_bytes": None, "free_bytes": None, "fetch_bytes": 0, "guider_bytes": 0}
    fits = {"level": "layers", "bytes": 503_000_000, "problem": ""}
    refused = fits | {"bytes": 2e9, "problem": "record: too large; set record_every to 2"}
    assert memory([row | {"recording": fits}]) == "recording: about 503 MB"
    assert memory([row | {"recording": None}]) == ""
    assert memory([row | {"recording": fits}, row | {"recording": refused}]) == (
        "recording: about 2.50 GB; record: too large; set record_every to 2"
    )


def test_the_narrowing_is_part_of_the_form(form, session):
    race = form.race(filled(form, session.default_race(), record_layers=" 1-2 ", record_every=3))
    assert (race.a.record_layers, race.b.record_every) == ("1-2", 3)
    assert form.race(form_values(form, race)) == race


def test_the_plan_names_who_decides(form, session):
    plan = {"blocks": 2, "min_forwards": 1, "max_forwards": 64, "tokens_per_step": None,
            "steps_per_block": None, "confidence_decides": True}  # fmt: skip
    for unmasker, judge in (("guided", "the guider"), ("threshold", "confidence")):
        spec = replace(
            session.default_race().b, unmasker=unmasker, knobs={}, gen_length=64, block_length=32
        )
        assert sentence(spec, plan) == (
            f"2 blocks of 32, {judge} decides: between 1 and 64 forwards"
        )
