"""A slice service on given records, without models."""

from types import SimpleNamespace

from engine.generate.what_if import what_if
from inspector.handlers.slice_service import SliceService
from inspector.run_store import RunStore


def service_of(*records, cache=None):
    """The service of a store that holds the records, with a catalog without methods."""
    store = RunStore()
    for record in records:
        store.pin(record)
    form = SimpleNamespace(catalog=SimpleNamespace(methods={"cache": []}))
    session = SimpleNamespace(what_if=what_if)
    return SliceService(SimpleNamespace(store=store, form=form, session=session), cache)
