"""The results of a search for settings with made-up figures, as `python -m engine fronts` has."""

from engine.advise.advisor import Advice, CacheAdvice
from engine.advise.kept import kept
from engine.advise.measuring import Measured
from engine.advise.request import AdviceRequest
from engine.advise.search import CacheSearch
from engine.batch.outcome import Outcome
from engine.batch.prompts import Prompt
from engine.batch.settings import NamedSpec
from engine.config.spec import RunSpec
from engine.evaluate.fronts.criterion import method_row

TIMES = {"dual: defaults": 8.0, "preset": 6.0, "own": 4.0, "drawn": 5.0}
ALL = (True, True, True, True)


def measured(name, ms, right=ALL):
    pairs = tuple((Outcome("done", right=True, ms=12), Outcome("done", right=r, ms=ms))
                  for r in right)  # fmt: skip
    return Measured(NamedSpec(name, RunSpec(cache="dual")), pairs, kept("accuracy", pairs))


def method(runs=10, chosen="own", **changes):
    """The row of a method whose settings take TIMES, all of them accepted."""
    search = CacheSearch("dual", 20, ("dual: defaults", "preset"), runs=runs)
    search.measured = {"own": measured("own", 4)}
    held = {name: measured(name, ms) for name, ms in (TIMES | changes).items()}
    prompts = tuple(Prompt(f"p{i}", "1") for i in range(15))  # five of them for the search
    request = AdviceRequest(RunSpec(), ("dual",), prompts, kind="accuracy")
    found = CacheAdvice(search, None, held, frozenset(held), chosen)
    return method_row(Advice(request, {}, {"dual": found}, finished=True))


def document(**changes):
    """The document of fronts.json for one method that was tested on four problems."""
    return {
        "held_out": 4, "further": 0, "family": "f", "shots": 0, "model": "m", "searched": 2,
        "keep": 0.95, "environment": {"device_name": "cpu"}, "methods": [method(**changes)],
        "candidates": 12,
    }  # fmt: skip
