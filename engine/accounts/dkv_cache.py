"""dKV-Cache (arXiv 2505.15781)."""

from __future__ import annotations

from engine.accounts.account import Account, Published

BY_SPA = "supplement to SPA-Cache's review, comparison of methods"

DKV_CACHE = Account(
    """
Delayed caching: a token's keys and values may be kept only after it is decoded, and one step later,
so that each decoded token is computed once more as what it became. Between reloads a step of
the variant decode computes the masks and the tokens of the last step, which attend to what is kept
of all others. Every reload interval, and in the first two steps of a block, everything is computed
anew; nothing is kept from one block to the next.

The paper finds that the representation of a token moves most around the step in which it is decoded
and settles after it, so that a cache which waits for one step is near to exact.

Kept rows still move a little with every later token, and the longer the reload interval, the more.
All masks of the canvas are computed, so the gain is small while most of it is masked; the authors
themselves report a small or negative gain for a single sequence.

The variant greedy computes only the tokens that come next, those just decoded and a few masks near
them, a constant number of rows a step. It must know the order beforehand, so it goes with the
random order of the quota only. With shifted logits a row is kept once the token that it predicts is
known. Keys are kept after rotation, which the release does anew for all of them in every step.
""",
    (
        Published(
            "GSM8K 57.0 tokens/s, score 78.0",
            "LLaDA-8B-Instruct on a B200, padding not counted as tokens; dKV-Cache as a rival "
            "(none: 29.67 tokens/s, 78.62)",
            BY_SPA,
        ),
        Published(
            "MBPP 7.8 tokens/s, score 39.2",
            "LLaDA-8B-Instruct on a B200, padding not counted as tokens; dKV-Cache as a rival "
            "(none: 5.75 tokens/s)",
            BY_SPA,
        ),
        Published(
            "reload interval of 8 on LLaDA, of 16 or 4 on Dream",
            "settings, not speeds: LLaDA with 128 tokens in 128 steps and blocks of 64",
            "released code, its description",
        ),
    ),
)

ACCOUNTS = {"dkv_cache": DKV_CACHE}
