"""The harness's command with the tasks of this repository alone.

It indexes the thousands of files of its own tasks at every start, which takes longer than a test.
"""

import runpy
from functools import partial

import pytest


def use_own_tasks(patch):
    """Leave the harness's own tasks out; `patch` is a MonkeyPatch."""
    from lm_eval import tasks

    patch.setattr(tasks, "TaskManager", partial(tasks.TaskManager, include_defaults=False))


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as own:
        use_own_tasks(own)
        runpy.run_module("engine.lm_eval", run_name="__main__", alter_sys=True)
