"""Run the Language Model Evaluation Harness with the engine as its model `driftscope`.

    python -m engine.lm_eval --model driftscope --model_args pretrained=tiny-llada,cache=dual \
        --tasks TASK

All flags are the harness's own (0.4.10 to 0.4.13; 0.4.9 does not import with transformers 5).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

INSTALL = 'error: lm_eval is not installed; run pip install "lm_eval>=0.4.10,<0.5"'


def main(arguments: Sequence[str] | None = None) -> None:
    """Register the model and run the harness's command line."""
    if arguments is not None:
        sys.argv = ["lm_eval", *arguments]
    try:
        from lm_eval.__main__ import cli_evaluate
        from lm_eval.api.registry import register_model
    except ModuleNotFoundError as error:
        if error.name != "lm_eval":
            raise
        raise SystemExit(INSTALL) from None
    from engine.lm_eval.model import DriftscopeLM

    register_model("driftscope")(DriftscopeLM)
    try:
        cli_evaluate()
    except (ValueError, NotImplementedError) as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
