"""Narrowing: fields of a spec as indices, and refusals that name the field and a remedy."""

import pytest

from engine.config.spec import RunSpec


def cells(layers=8, length=40, **fields):
    spec = RunSpec(gen_length=16, block_length=16, **fields)
    found = spec.narrowing.cells(layers, length, spec.gen_length)
    return found.layers.tolist(), found.quantities.tolist(), found.positions.tolist()


def test_by_default_everything_is_recorded():
    assert cells() == (list(range(8)), list(range(5)), list(range(40)))


@pytest.mark.parametrize(
    ("fields", "part", "indices"),
    [
        ({"record_layers": "1-3,8, 2"}, 0, [0, 1, 2, 7]),
        ({"record_quantities": "q0, k"}, 1, [0, 4]),
        ({"record_positions": "3-5"}, 2, [2, 3, 4]),
        ({"record_positions": "answer"}, 2, list(range(24, 40))),
    ],
)
def test_fields_are_read_as_numbers_from_1(fields, part, indices):
    assert cells(**fields)[part] == indices


def test_the_answer_ends_where_the_text_after_it_begins():
    narrowing = RunSpec(record_positions="answer").narrowing
    assert narrowing.cells(8, 46, 22, suffix=6).positions.tolist() == list(range(24, 40))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"record_layers": "0-3"}, "record_layers: '0-3' is not .* write for example 1-4,32"),
        ({"record_layers": "3-1"}, "record_layers: '3-1'"),
        ({"record_layers": ""}, "record_layers: ''"),
        ({"record_layers": [1]}, "record_layers: expected text"),
        ({"record_positions": "1-2,5"}, "record_positions: '1-2,5'"),
        ({"record_quantities": "k,w"}, "record_quantities: 'w' is unknown; choose from k, v"),
        ({"record_every": 0}, "record_every: 0 is outside 1 to 1024"),
        ({"record_quantities": "q0", "record": "probe"}, "record_quantities: level probe compares"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(fields, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        RunSpec(**fields)


def test_a_long_range_is_refused_without_being_counted():
    with pytest.raises(ValueError, match="record_layers: layer 999999 is beyond the model's 8"):
        cells(record_layers="1-999999")


def test_a_link_keeps_the_narrowing():
    spec = RunSpec(record_layers="1-4,32", record_quantities="k,v", record_positions="answer")
    assert RunSpec.from_query(spec.to_query()) == spec
