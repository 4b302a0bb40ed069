"""The API of many prompts and of the advisor, as a program uses it."""

import time

import pytest
from gradio_client.exceptions import AppError

from tests.support.web import program

pytest_plugins = ["tests.support.chromium"]


@pytest.fixture(scope="module")
def client(app):
    return program(app.url)


BATCH = {
    "prompts": "one\ntwo\nthree",
    "spec": {"gen_length": 16, "block_length": 8, "steps": 16},
    "settings": [{"name": "dual", "cache": "dual"}],
}


def test_many_prompts_estimated_cancelled_and_continued(client):
    first = client.submit(
        BATCH | {"estimate": True, "record": "layers"}, api_name="/batch"
    ).result()
    assert (first["state"], first["done"], first["total"]) == ("estimated", 2, 6)
    job = client.submit({"batch": first["batch"]}, api_name="/batch")
    while not any(update["done"] > 2 for update in job.outputs()):
        time.sleep(0.05)
    job.cancel()
    while (found := client.predict(first["batch"], 0, api_name="/batch_results"))["state"] == (
        "running"
    ):
        time.sleep(0.05)
    assert found["runs"][:2] == first["runs"]
    last = client.predict({"batch": first["batch"]}, api_name="/batch")
    assert (last["state"], last["done"]) == ("done", 6)
    assert last["runs"][: found["done"]] == found["runs"]
    assert [row["name"] for row in last["settings"]] == ["plain decoding", "dual"]
    shown = client.predict(first["batch"], api_name="/batch_aggregates")
    assert [row["runs"] for row in shown["settings"]] == [3, 3]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ([], "batch: expected an object"),
        ({}, "prompts: give either"),
        (BATCH | {"prompts": [{"prompt": "a"}, {"answer": "4"}]}, "prompts: line 2"),
        (BATCH | {"prompts": "a\n" * 10_000}, "prompts: there are more than"),
        (BATCH | {"problems": {"family": "balance"}}, "prompts: give either"),
        (BATCH | {"spec": {"gen_length": 0}}, "gen_length"),
        (BATCH | {"spec": 5}, "spec: expected an object"),
        (BATCH | {"settings": [{"name": "x", "cache": "magic"}]}, "cache"),
        (BATCH | {"settings": [{"name": "x", "model": "/etc"}]}, "config.json"),
        (BATCH | {"estimate": 1}, "estimate: expected"),
        (BATCH | {"colour": 1}, "batch: 'colour' is unknown"),
        (BATCH | {"batch": "x"}, "batch: a batch that goes on"),
        ({"batch": "gone"}, "batch: it is no longer in memory"),
        ({"batch": ["gone"]}, "batch: it is no longer in memory"),
    ],
)
def test_impossible_batches_are_refused_by_name(client, given, named):
    with pytest.raises(AppError, match=named):
        client.predict(given, api_name="/batch")


SEARCH = {
    "prompts": "\n".join(f"Ann has {i} pens." for i in range(6)), "cache": "dual", "of": "tokens",
    "keep": 0.01, "candidates": 2, "spec": {"gen_length": 8, "block_length": 4, "steps": 8},
}  # fmt: skip


def test_a_search_for_settings_is_estimated_and_continued(client):
    first = client.submit(SEARCH | {"estimate": True}, api_name="/advise").result()
    assert (first["state"], first["runs"]) == ("estimated", 0)
    last = client.submit({"search": first["search"]}, api_name="/advise").result()
    assert (last["state"], last["advice"]["finished"]) == ("done", True)
    assert last["advice"]["chosen"]["cache"] == "dual"
    assert client.predict(first["search"], api_name="/advise_results") == last


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ([], "search: expected an object"),
        ({}, "cache: choose from"),
        (SEARCH | {"cache": "none"}, "cache: none has no settings"),
        (SEARCH | {"prompts": "one"}, "prompts: 1 are too few"),
        (SEARCH | {"of": "accuracy"}, "of: 6 of 6 prompts have no answer"),
        (SEARCH | {"keep": "all"}, "keep: expected a number"),
        (SEARCH | {"estimate": 1}, "estimate: expected"),
        (SEARCH | {"colour": 1}, "search: 'colour' is unknown"),
        (SEARCH | {"search": "x"}, "search: a search that goes on"),
        ({"search": "gone"}, "search: it is no longer in memory"),
    ],
)
def test_impossible_searches_are_refused_by_name(client, given, named):
    with pytest.raises(AppError, match=named):
        client.predict(given, api_name="/advise")
