"""Links: round trips of every value, refusals that name the field, links of earlier versions."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import catalog
from engine.config.knobs import describe_fields, text_knobs
from engine.config.spec import MAX_DEPTH, RaceSpec, RunSpec
from tests.support.micro import ROOT

RECORDED = json.loads((ROOT / "tests" / "data" / "links.json").read_text("utf-8"))
COMPONENTS = [row for kind in ("caches", "unmaskers") for row in catalog.describe()[kind]]
KNOBS = {f"{c['name']}.{row['name']}": row for c in COMPONENTS for row in c["knobs"]}
LOOK_ALIKES = (
    "2024", "-1", "0.5", "1e3", "007", "NaN", "Infinity", "-Infinity", "true", "True", "false",
    "null", "None", "", " ", '"x"', '"', "[1]", "[" * 1100, "{}", '{"a": 1}', "9" * 5000, "a+b&c=d",
)  # fmt: skip
TEXT = st.sampled_from(LOOK_ALIKES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def values(row):
    """Valid values of a field or knob; of text any, as the methods check its meaning."""
    if row["choices"]:
        found = st.sampled_from(row["choices"])
    elif row["type"] == "bool":
        found = st.booleans()
    elif row["type"] == "int":
        found = st.integers(row["lo"], row["hi"])
    elif row["type"] == "float":
        found = st.floats(row["lo"], row["hi"], allow_nan=False, allow_infinity=False)
    else:
        found = TEXT
    return found | st.none() if row["optional"] else found


@given(st.data(), st.sampled_from(sorted(KNOBS)))
def test_every_knob_survives_a_link(data, name):
    value = data.draw(values(KNOBS[name]))
    race = RaceSpec(RunSpec(), RunSpec(knobs={name: value}))
    for known in (set(), text_knobs(COMPONENTS)):
        again = RaceSpec.from_query(race.to_query(), known)
        assert again == race
        assert type(again.b.knobs[name]) is type(value)


@given(st.data(), st.sampled_from(describe_fields(RunSpec)))
def test_every_field_survives_a_link(data, row):
    value = data.draw(values(row))
    try:
        spec = RunSpec.from_dict({"gen_length": 1, "block_length": 1, row["name"]: value})
    except ValueError:  # not every length has its block, nor every text is a model's name
        return
    assert RunSpec.from_query(spec.to_query()) == spec
    assert RaceSpec.from_query(RaceSpec(spec, RunSpec()).to_query()).a == spec


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_text_stays_text(text):
    race = RaceSpec(RunSpec(prompt=text, knobs={"guided.guider": text}), RunSpec(cache=text))
    assert RaceSpec.from_query(race.to_query()) == race


@pytest.mark.parametrize("text", ["2024", "0.5", "true", "[1]"])
def test_a_link_written_by_hand_is_read_by_the_declared_type(text):
    query = f"b.guided.guider={text}&b.guided.k=3"
    knobs = RaceSpec.from_query(query, text_knobs(COMPONENTS)).b.knobs
    assert knobs == {"guided.guider": text, "guided.k": 3}


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 300, 900, 990, 1100, 20_000])
@pytest.mark.parametrize("end", ["", "]"])
@pytest.mark.parametrize("key", ["a.steps", "b.fixed", "a.messages", "b.start"])
def test_deep_nesting_is_refused_by_field(key, depth, end):
    with pytest.raises(ValueError, match=rf"^{key}: "):
        RaceSpec.from_query(f"{key}={'[' * depth}{end * depth}")


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 300, 900, 990, 1100])
def test_a_knob_is_a_single_value_or_text(depth):
    with pytest.raises(ValueError, match=r"^b\.guided\.guider: nested deeper than 8"):
        RaceSpec.from_query(f"b.guided.guider={'[' * depth}{']' * depth}")
    with pytest.raises(ValueError, match=r"^b\.guided\.guider: expected a single value, got list"):
        RaceSpec.from_query("b.guided.guider=[[1]]")


@pytest.mark.parametrize("row", RECORDED, ids=range(len(RECORDED)))
def test_a_link_made_by_an_earlier_version_gives_the_same_race(row):
    race = RaceSpec.from_query(row["query"], text_knobs(COMPONENTS))
    assert race == RaceSpec.from_dict(row["race"])  # fields that came later have their defaults
    assert RaceSpec.from_query(row["query"]) == race
    assert race.to_query() == row["query"]
