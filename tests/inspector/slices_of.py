"""A slice service on given records, without a session."""

from types import SimpleNamespace

from inspector.handlers.slice_service import SliceService
from inspector.run_store import RunStore


def service_of(*records, cache=None):
    """The service of a store that holds the records, with a catalog without methods."""
    store = RunStore()
    for record in records:
        store.pin(record)
    form = SimpleNamespace(catalog=SimpleNamespace(methods={"cache": []}))
    return SliceService(SimpleNamespace(store=store, form=form), cache)
