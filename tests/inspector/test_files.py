"""What visitors take away and bring back, and the recorded runs that the app holds."""

import errno
import json
import time
from pathlib import Path

import pytest

from engine.config.run_card import race_of
from engine.config.spec import RunSpec
from engine.core.files import ASSETS
from inspector.files import export
from inspector.handlers.file_service import RECORDED, FileService
from inspector.run_store import RaceRecord
from inspector.server.upload_folder import STALE_S, clean
from tests.inspector.conftest import form_values, small_race


@pytest.fixture
def files(handlers):
    return FileService(handlers, ASSETS / "examples")


def run_of(handlers, values, request):
    """Run a race; its id."""
    return json.loads(list(handlers.run(request, values))[-1][0])["run"]


@pytest.fixture
def small(session, form):
    return form_values(form, small_race(session))


def test_export_then_import(files, handlers, small, request_of):
    assert files.export(request_of("new"), "") == (
        None, "Nothing to export. There is no race yet: press Run first.",
    )  # fmt: skip
    paths, note = files.export(request_of(), run_of(handlers, small, request_of()))
    assert "Ready" in note
    document, note, _ = files.import_files(
        request_of("other"), [path for path in paths if path.endswith(("a.npz", "b.npz"))]
    )
    assert json.loads(document)["state"] == "imported"
    bad = Path(paths[0]).with_name("bad.npz")
    bad.write_bytes(b"PK nonsense")
    skipped, note, left = files.import_files(request_of("other"), [str(bad)])
    assert note.startswith("Not imported. bad.npz: trace: the file is damaged")
    assert left is None
    assert skipped.get("__type__") == "update"


def test_a_run_card_runs_again(files, handlers, small, request_of, tmp_path):
    paths, _ = files.export(request_of(), run_of(handlers, small, request_of()))
    (card,) = [path for path in paths if path.endswith("run-card.json")]
    skipped, note, _ = files.import_files(request_of("other"), [card])
    assert note.startswith("A run card")
    assert skipped.get("__type__") == "update"
    *_, last = files.run_card(request_of("other"), [card])
    assert json.loads(last[0])["state"] == "done"
    first, again = (handlers.current(request_of(*who)) for who in ((), ("other",)))
    assert first.run_id != again.run_id
    for lane in "ab":
        assert first.traces[lane].meta["texts"] == again.traces[lane].meta["texts"]
        assert first.traces[lane].meta["spec"] == again.traces[lane].meta["spec"]


def test_the_single_lane_of_a_card_races_plain_decoding():
    spec = RunSpec(prompt="a", cache="dual", unmasker="threshold", chat=False)
    part = {"spec": spec.to_dict(), "model": {}, "results": {}}
    race = race_of({"lanes": {"b": part}, "summary": {}})
    assert race.b == spec
    assert (race.a.cache, race.a.unmasker, race.a.prompt) == ("none", "quota", "a")


@pytest.mark.parametrize(
    "lanes", [{}, {"c": {}}, {"a": 3}, 5, {"a": {"spec": {"steps": 0}, "model": {}, "results": {}}}]
)
def test_a_wrong_card_is_refused_in_words(files, request_of, tmp_path, lanes):
    path = tmp_path / "card.json"
    path.write_text(json.dumps({"lanes": lanes, "summary": {}}))
    assert files.import_files(request_of(), [str(path)])[1].startswith("Not imported.")
    ((message, *_),) = files.run_card(request_of(), [str(path)])
    assert "cannot run" in message


def test_other_files_start_no_race(files, request_of, tmp_path):
    path = tmp_path / "other.json"
    for text in ("{", "[1]", "[" * 90_000, "{}"):
        path.write_text(text)
        ((race, *_),) = files.run_card(request_of(), [str(path)])
        assert race.get("__type__") == "update"


def test_every_method_can_be_chosen_and_is_shown_beside_plain_decoding(files, request_of):
    caches = {"d2_cache", "dare_kv", "dkv_cache", "dllm_cache", "dual", "freecache", "prefix"}
    names = {name for _, name in files.recorded()}
    assert caches | {"dare_o", "spa_cache", "threshold", "factor", "frechet"} <= names
    shown = json.loads(files.show_recorded(request_of(), "dual"))
    assert shown["state"] == "example"
    assert [shown["lanes"][lane]["start"]["title"] for lane in "ab"] == [
        "Plain decoding", "Fast-dLLM dual cache + Quota",
    ]  # fmt: skip
    assert shown["lanes"]["b"]["start"]["record"] == "probe"
    assert shown["summary"]["speedup"] is None
    assert shown["summary"]["expected"] is not None
    paths, _ = files.export(request_of(), shown["run"])
    assert any(path.endswith("-b.npz") for path in paths)


def test_a_recorded_run_is_shown_beside_plain_decoding_by_its_end_of_text_rule(files, request_of):
    rules = {}
    for _, name in files.recorded():
        shown = json.loads(files.show_recorded(request_of(), name))
        assert shown["lanes"]["a"]["start"]["title"] == "Plain decoding"
        rules[name] = shown["summary"]["end_of_text"]
    assert rules["guided"] == ["fill_safe", "fill_safe"]
    assert rules["dual"] == ["official", "official"]
    assert all(len(set(both)) == 1 for both in rules.values())


@pytest.mark.parametrize("name", ["plain", "none", "../a", "", None, 3, ["dual"], {"a": 1}])
def test_only_names_of_the_list_are_read(files, request_of, name):
    assert files.show_recorded(request_of(), name).get("__type__") == "update"


def test_without_recorded_runs_there_is_no_choice(handlers, tmp_path):
    assert FileService(handlers).recorded() == []
    assert FileService(handlers, tmp_path).recorded() == []


def test_a_visitors_exports_are_dropped_and_not_those_of_another(files):
    other = files._new_folder("a")
    own = [files._new_folder("b") for _ in range(4)]
    assert [folder.exists() for folder in own] == [False, False, True, True]
    assert other.exists()


def test_the_oldest_exports_are_dropped_beyond_a_number_of_bytes(files):
    folders = [files._new_folder(who) for who in "abcd"]
    for folder in folders:
        (folder / "trace.npz").write_bytes(bytes(100))
    files._drop_beyond(250, folders[-1])
    assert [folder.exists() for folder in folders] == [False, False, True, True]
    files._drop_beyond(0, folders[2])
    assert [folder.exists() for folder in folders] == [False, False, True, False]


def test_an_export_drops_older_ones_that_have_too_many_bytes_but_not_itself(
    handlers, traces, request_of, monkeypatch
):
    handlers.store.put(record := RaceRecord(traces=traces, state="done"))
    files = FileService(handlers)
    monkeypatch.setattr("inspector.handlers.file_service.MOST_EXPORTED", 0)
    first, second = (files.export(request_of(who), record.run_id)[0] for who in ("a", "b"))
    assert not Path(first[0]).exists()
    assert all(Path(path).exists() for path in second)


def test_exports_lie_where_gradio_serves_them_and_are_no_uploads(
    handlers, traces, request_of, monkeypatch, tmp_path
):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    handlers.store.put(record := RaceRecord(traces=traces, state="done"))
    files = FileService(handlers)
    paths, _ = files.export(request_of(), record.run_id)
    assert all(Path(path).is_relative_to(tmp_path) for path in paths)
    assert clean(tmp_path, time.time(), own=True) == 0
    clean(tmp_path, time.time() + STALE_S + 9, own=True)
    assert not files.folder.exists()
    assert files.export(request_of(), record.run_id)[0]  # the folder is made again


def test_an_export_that_is_too_large_says_so(handlers, traces, request_of, monkeypatch):
    handlers.store.put(record := RaceRecord(traces=traces, state="done"))
    monkeypatch.setattr(handlers.form.catalog, "trace_bytes", 1_000_000)
    paths, note = (files := FileService(handlers)).export(request_of(), record.run_id)
    assert paths is None
    assert note.startswith("Not exported. Lane A, trace: ")
    assert not any(files.folder.iterdir())


def test_an_export_to_a_full_disk_says_so(files, handlers, traces, request_of, monkeypatch):
    handlers.store.put(record := RaceRecord(traces=traces, state="done"))

    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(export, "write_race", full)
    assert files.export(request_of(), record.run_id) == (
        None,
        "Not exported. The files cannot be written (No space left on device). Try again later.",
    )
    assert not any(files.folder.iterdir())


def test_an_export_that_fails_leaves_nothing(files, handlers, traces, request_of, monkeypatch):
    handlers.store.put(record := RaceRecord(traces=traces, state="done"))

    def deep(*given):
        raise RecursionError

    monkeypatch.setattr(export, "write_race", deep)
    path, said = files.export(request_of(), record.run_id)
    assert path is None
    assert said.startswith("Not exported. Unexpected error")
    assert not any(files.folder.iterdir())


def test_what_is_exported_is_the_race_that_is_shown(files, handlers, small, request_of):
    """Not the last one, and no other in its place once it is forgotten."""
    handlers.first_view(ASSETS / "examples")
    run = run_of(handlers, small, request_of())
    files.show_recorded(request_of(), "dual")
    paths, _ = files.export(request_of(), run)
    (card,) = [Path(path) for path in paths if path.endswith("run-card.json")]
    length = json.loads(card.read_text("utf-8"))["lanes"]["b"]["spec"]["gen_length"]
    assert length == 16 != handlers.session.default_race().b.gen_length
    handlers.leave(request_of())
    assert files.export(request_of(), run) == (
        None, "Nothing to export. This run is no longer in memory. Run it again.",
    )  # fmt: skip


def test_nothing_else_is_shown_while_a_run_goes_on(files, handlers, small, request_of):
    stream = handlers.run(request_of(), small)
    next(stream)
    race, choice = files.choose_recorded(request_of(), "dual")
    assert race.get("__type__") == "update"
    assert choice["value"] == ""
    assert choice["info"].startswith("A run is going on")
    _, note, _ = files.import_files(request_of(), ["a.npz"])
    assert note.startswith("Not imported. A run is going on")
    ((race, *_),) = files.run_card(request_of(), ["card.json"])
    assert race.get("__type__") == "update"
    stream.close()
    race, choice = files.choose_recorded(request_of(), "dual")
    assert json.loads(race)["state"] == "example"
    assert choice["info"] == RECORDED
