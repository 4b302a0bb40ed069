"""RunSpec and RaceSpec: round trips, and refusals that name the field and its valid values."""

import json
import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.catalog import check_knobs, make_policy, make_unmasker, policies, unmaskers
from engine.config.knobs import describe_fields
from engine.config.plan import derive
from engine.config.spec import MAX_PROMPT_CHARS, BranchStart, RaceSpec, RunSpec

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=40)
KNOBS = st.fixed_dictionaries(
    {},
    optional={
        "threshold.threshold": st.floats(0, 2),
        "dual.refresh_interval": st.none() | st.integers(1, 1024),
        "quota.score": st.sampled_from(["confidence", "margin"]),
    },
)


@st.composite
def starts(draw, taken):
    free = [i for i in range(16) if i not in taken]
    edits = draw(st.dictionaries(st.sampled_from(free), st.integers(-1, 999), max_size=3))
    name = draw(st.from_regex(r"[A-Za-z0-9_.~-]{1,64}", fullmatch=True))
    return BranchStart(name, draw(st.integers(0, 2**31 - 1)), tuple(edits.items()))


@st.composite
def specs(draw):
    block = draw(st.sampled_from([1, 2, 4, 8, 16]))
    turns = st.tuples(st.sampled_from(["system", "user", "assistant"]), TEXT)
    offsets = draw(st.lists(st.integers(0, 15), unique=True, max_size=3))
    return RunSpec(
        model=draw(NAMES),
        **draw(
            st.fixed_dictionaries({"prompt": TEXT})
            | st.fixed_dictionaries({"messages": st.lists(turns, max_size=3).map(tuple)})
        ),
        gen_length=16,
        block_length=block,
        unmasker=draw(st.sampled_from(["quota", "threshold", "factor"])),
        cache=draw(TEXT),
        knobs=draw(KNOBS),
        temperature=draw(st.just(0.0) | st.floats(1e-3, 10)),
        eos=draw(st.sampled_from(["official", "fill_safe"])),
        fixed=tuple((i, draw(st.integers(0, 999))) for i in offsets),
        start=draw(st.none() | starts(offsets)),
        seed=draw(st.integers(0, 2**31 - 1)),
        chat=draw(st.booleans()),
    )


@given(specs())
def test_round_trips_of_a_run(spec):
    assert RunSpec.from_dict(spec.to_dict()) == spec
    assert RunSpec.from_query(spec.to_query()) == spec
    assert RunSpec.from_query("?" + spec.to_query()) == spec


@given(specs(), specs())
def test_round_trips_of_a_race(a, b):
    race = RaceSpec(a, b)
    assert RaceSpec.from_dict(json.loads(json.dumps(race.to_dict()))) == race
    assert RaceSpec.from_query(race.to_query()) == race


def test_a_default_spec_has_an_empty_query():
    assert RunSpec().to_query() == ""
    assert RunSpec.from_query("") == RunSpec()


def test_dotted_keys_are_knobs():
    data = {"cache": "dual", "dual.refresh_interval": 4}
    assert RunSpec.from_dict(data).knobs == {"dual.refresh_interval": 4}
    assert RunSpec.from_query("cache=dual&dual.refresh_interval=4").knobs == {
        "dual.refresh_interval": 4
    }


def test_a_prompt_that_looks_like_json_stays_text():
    for text in ("17", "null", "[1]", '"x"', "1e3", "true"):
        assert RunSpec.from_query(RunSpec(prompt=text).to_query()).prompt == text


REFUSALS = [
    ({"gen_length": 128, "block_length": 48}, "block_length: 48 .* nearest valid: 32 or 64"),
    ({"gen_length": 0}, "gen_length: 0 is outside 1 to 1024; the nearest valid value is 1"),
    ({"gen_length": 4096}, "gen_length: .* nearest valid value is 1024"),
    ({"gen_length": 12.5}, "gen_length: expected a whole number"),
    ({"gen_length": True}, "gen_length: expected a whole number"),
    ({"a" * 9_000: 1}, "a{60}: unknown field"),
    ({"knobs": {"a." + "b" * 9_000: 1}}, "knobs: .* should read method.setting"),
    ({"gen_length": "64"}, "gen_length: expected a whole number"),
    ({"steps": -3}, "steps: .* nearest valid value is 1"),
    ({"temperature": math.nan}, "temperature: must be a finite number"),
    ({"temperature": math.inf}, "temperature: must be a finite number"),
    ({"temperature": 10**400}, "temperature"),
    ({"temperature": 11}, "temperature: .* nearest valid value is 10"),
    ({"temperature": 1e-255}, "temperature: .* nearest valid value is 0"),
    ({"cfg_scale": -0.1}, "cfg_scale: .* nearest valid value is 0"),
    ({"eos": "never"}, "eos: 'never' is unknown; choose from official, fill_safe, fill_eager"),
    ({"eos_suppress": "all"}, "eos_suppress: .* choose from none, logits, confidence"),
    ({"dtype": "int8"}, "dtype: .* choose from float32"),
    ({"record": "all"}, "record: .* choose from off, steps, layers, probe"),
    ({"probe_steps": 0}, "probe_steps: 0 is outside 1 to 64"),
    ({"probe_at": "5"}, "probe_at: expected a list of steps"),
    ({"probe_at": [-1]}, "probe_at: step 0 is not a whole number from 1 to 1024"),
    ({"probe_at": [1024]}, "probe_at: step 1025 is not a whole number from 1 to 1024"),
    ({"probe_at": ["x"]}, "probe_at: step 'x' is not a whole number"),
    ({"probe_at": [*range(65)]}, "probe_at: 65 steps; at most 64 can be probed"),
    ({"seed": -1}, "seed: .* nearest valid value is 0"),
    ({"seed": None}, "seed: expected a whole number"),
    ({"chat": 1}, "chat: expected true or false"),
    ({"prompt": 7}, "prompt: expected text"),
    ({"prompt": "a \ud800 b"}, "prompt: holds half a character"),
    ({"messages": [["user", "\udfff"]]}, "prompt: holds half a character"),
    ({"model": "x" * 301}, "model: 301 characters; at most 300"),
    ({"model": "a\0b"}, r"model: 'a\\x00b' holds a control character"),
    ({"model": "a\nb"}, "model: .* holds a control character"),
    ({"model": "tiny\u200bllada"}, r"model: 'tiny\\u200bllada' holds a control character"),
    ({"model": "\u202eadall"}, "model: .* holds a control character"),
    ({"model": "a\u2028b"}, "model: .* holds a control character"),
    ({"model": "\ud800"}, "model: .* holds a control character"),
    ({"prompt": "x" * (MAX_PROMPT_CHARS + 1)}, f"prompt: .* at most {MAX_PROMPT_CHARS}"),
    ({"prompt": "x", "messages": [["user", "y"]]}, "prompt: give either"),
    ({"messages": [["robot", "x"]]}, "messages: role 'robot' should be system, user or assistant"),
    ({"messages": [["user", 3]]}, "messages"),
    ({"messages": 3}, "messages: expected pairs"),
    ({"messages": [{"user": {}, "x": 1}]}, "messages: expected pairs"),
    ({"fixed": [[16, 1]], "gen_length": 16, "block_length": 16}, "fixed: .* offset from 0 to 15"),
    ({"fixed": [[0, -1]]}, "fixed"),
    ({"fixed": [[0, 10**30]]}, "fixed: .* and a token id"),
    ({"fixed": [[0, 1], [0, 2]]}, "fixed: an offset occurs twice"),
    ({"fixed": [[0, True]]}, "fixed"),
    ({"fixed": [["a", 1], [0, 1]]}, "fixed: expected pairs"),
    ({"fixed": 5}, "fixed: expected pairs"),
    ({"knobs": {"threshold": 1}}, "knobs: 'threshold' should read method.setting"),
    ({"knobs": {"a.b": [1]}}, "a.b: expected a single value, got list"),
    ({"knobs": {"a.b": math.nan}}, "a.b"),
    ({"knobs": 3}, "knobs: expected a mapping"),
    ({"speed": 3}, "speed: unknown field; the fields are block_length, cache"),
    ({3: 3}, "3: unknown field"),
]


@pytest.mark.parametrize(("data", "message"), REFUSALS)
def test_refusals_name_the_field_and_its_valid_values(data, message):
    with pytest.raises(ValueError, match=message):
        RunSpec.from_dict(data)


def test_a_spec_without_a_mapping_of_knobs_is_refused():
    with pytest.raises(ValueError, match=r"^knobs: expected a mapping of method\.setting to value"):
        RunSpec(knobs=None)


COMPONENTS = [
    ({"cache": "dualx"}, "cache: 'dualx' is unknown; choose from none, "),
    ({"cache": "dual+"}, "cache: '' is unknown"),
    ({"cache": "+dual"}, "cache: '' is unknown"),
    ({"cache": "none+dual"}, "cache: dual cannot be stacked on none"),
    ({"cache": "dual+prefix"}, "cache: prefix cannot be stacked on dual"),
    ({"unmasker": "greedy"}, "unmasker: 'greedy' is unknown; choose from quota, "),
    ({"knobs": {"quota.speed": 1}}, "quota.speed: unknown setting; quota has score"),
    ({"knobs": {"quota.score": "best"}}, "quota.score: .* choose from confidence, margin"),
    ({"unmasker": "threshold", "knobs": {"threshold.threshold": math.nan}}, "threshold.threshold"),
    ({"unmasker": "threshold", "knobs": {"threshold.threshold": 3}}, "nearest valid value is 2.0"),
    ({"unmasker": "threshold", "knobs": {"threshold.threshold": None}}, "threshold.threshold"),
    (
        {"cache": "dual", "knobs": {"dual.refresh_interval": 0}},
        "dual.refresh_interval: 0 is outside",
    ),
    (
        {"cache": "dual", "knobs": {"dual.refresh_interval": 2.5}},
        "dual.refresh_interval: expected a whole number",
    ),
    (
        {"cache": "dual", "knobs": {"prefix.refresh_interval": 2}},
        "prefix.refresh_interval: this run does not use that method; .* leave the setting out",
    ),
]


@pytest.mark.parametrize(("data", "message"), COMPONENTS)
def test_impossible_components_are_refused_by_name(data, message):
    with pytest.raises(ValueError, match=message):
        _made(data)


def _made(data):
    spec = RunSpec.from_dict(data)
    check_knobs(spec)
    return make_policy(spec), make_unmasker(spec)


@pytest.mark.parametrize("alias", ["low_confidence", "maskgit_plus", "topk_margin"])
def test_scores_have_aliases(alias):
    score = make_unmasker(RunSpec(knobs={"quota.score": alias})).score
    assert score in ("confidence", "margin")


def test_every_component_has_a_name_a_title_and_labelled_knobs():
    for cls in (*policies().values(), *unmaskers().values()):
        assert cls.name
        assert cls.title
        assert cls.summary
        for row in describe_fields(cls):
            assert row["label"]
            assert row["help"]


def test_a_race_names_the_lane():
    with pytest.raises(ValueError, match=r"b\.gen_length"):
        RaceSpec.from_query("b.gen_length=0")
    with pytest.raises(ValueError, match=r"a\.steps"):
        RaceSpec.from_dict({"a": {"steps": 0}, "b": {}})
    for data in ({"a": {}}, {"a": {}, "b": {}, "c": {}}, [1, 2]):
        with pytest.raises(ValueError, match="exactly the two lanes"):
            RaceSpec.from_dict(data)


HOSTILE = st.text(max_size=60) | st.sampled_from(
    ["[" * 50_000, "{}" * 9, "NaN", '{"seed": 1e999}', '{"knobs": {"a.b": NaN}}', "9" * 5_000]
)


@given(HOSTILE)
def test_any_text_is_a_spec_or_a_value_error(text):
    for read in (RunSpec.from_query, RaceSpec.from_query):
        with suppress(ValueError):
            read(text)


def test_steps_that_do_not_fit_the_blocks_name_their_neighbours():
    with pytest.raises(ValueError, match=r"steps: 30 is not a multiple of the 4 blocks.* 28 or 32"):
        derive(RunSpec(steps=30), scheduled=True)
    with pytest.raises(ValueError, match=r"steps: 2 .* nearest valid: 4$"):
        derive(RunSpec(steps=2), scheduled=True)
    assert derive(RunSpec(steps=30), scheduled=False).steps_per_block is None
