"""Traces of runs of a small model and of branches of them."""

from dataclasses import replace

from engine.config.spec import BranchStart, RunSpec
from engine.core.events import RunFinished
from engine.generate.branch import branch_point
from engine.serve.lane import Lane
from engine.serve.loaded_model import LoadedModel
from engine.trace.trace import Trace
from tests.support.fake_guiders import make_fake_guider
from tests.support.micro import make_prompts, model_of, profiles_of

PROMPT = make_prompts(6)[0]
WIDTH = len(PROMPT)
RANDOM = {"quota.score": "random"}


class Words:
    """A tokenizer whose tokens are numbers, with a single prompt."""

    vocabulary = "words"

    def encode_prompt(self, *prompt):
        return PROMPT

    def encode(self, text):
        return [int(word) for word in text.split()]

    def pieces(self, ids):
        return {int(i): b"%d" % i for i in ids}

    def decode(self, ids):
        return " ".join(map(str, ids))


def make(**changes):
    size = {"gen_length": 16, "block_length": 8, "steps": 8, "dtype": "float64"}
    return RunSpec(**(size | changes))


def loaded(family="mha"):
    """The model of a family, or the model given in place of one."""
    model = model_of(family) if isinstance(family, str) else family
    profiles, guider = dict(profiles_of(model.info.layers)), make_fake_guider(model.info)
    return LoadedModel(model, Words(), "", profiles=profiles, make_run_guider=guider)


def record(spec, parent=None, family="mha", most=99):
    """The trace of a run, stopped after `most` steps."""
    lane = Lane(loaded(family), spec, branch_point(spec, {"p": parent}, PROMPT))
    trace, event = Trace(), lane.start()
    trace.append(event)
    while not isinstance(event, RunFinished):
        event = lane.advance() if trace.steps < most else lane.finish("stopped")
        trace.append(event)
    return trace


def branch(parent, step, *edits, family="mha", most=99, **changes):
    """The trace of a branch with the parent's settings and `changes`."""
    spec = RunSpec.from_dict(parent.meta["spec"])
    spec = replace(spec, start=BranchStart("p", step, edits), **changes)
    return record(spec, parent, family, most)


def tail(trace, step=0):
    """Block, positions and ids of each step from `step` on."""
    arrays = trace.arrays()
    out = []
    for i in range(step, trace.steps):
        own = arrays["commit_step"] == i
        commits = zip(arrays["commit_position"][own], arrays["commit_id"][own], strict=True)
        out.append((int(arrays["block"][i]), sorted((int(p), int(t)) for p, t in commits)))
    return out


def tokens_per_step(trace, step=0):
    return [len(commits) for _, commits in tail(trace, step)]
