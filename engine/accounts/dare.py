"""DARE in its two forms (arXiv 2605.08134)."""

from __future__ import annotations

from engine.accounts.account import Account, Published

TABLE = "paper, tables of reuse and accuracy"
FULL = (
    "LLaDA-8B, before and after on a prefix cache with parallel decoding; batch 1, answer of 256 "
    "in blocks of 32"
)
FAST = "LLaDA-8B, before and after on Fast-dLLM; batch 1, answer of 256 in blocks of 32"
SHARED = """
The paper's code was not to be had and its text has lost formulas, so the engine follows a
reconstruction: the layers share out the reuse quantile (`qbar`) by a softmax of their mean drift
(`temperature`), steady layers reusing more, and a layer's threshold is that quantile of the drifts
of a calibration run of the cache beneath. The cap of 0.95 on a layer's quantile and the floor of
0.00001 under a threshold are this engine's own. Reuse makes rows drift less, so more is reused than
the quantile says.
"""

DARE_KV = Account(
    f"""
Computes the query of every row in every layer and compares its first head with the step before. A
row whose query turned by no more than the layer's threshold keeps its keys and values; the others'
are recomputed. Attention and feed-forward are computed for all rows.

The paper finds that the activations of one token are much alike from step to step, and that the
drift of a query tells that of the keys, values and outputs beside it; it bounds the error of reuse
by the drift that is allowed and the number of times in a row that a token was reused. The query is
needed anyway, so the test costs nothing.

Each reuse is judged against the last step alone (`ref` anchor judges against the last renewal), so
small drifts can add up unseen. What is spared is two projections: at best a seventh of the FLOPs
of LLaDA-8B, by a count at 1,024 positions, and a hundredth of Dream's, whose keys and values are
narrow.

{SHARED}
""",
    (
        Published("38.7 % reused, GSM8K 77.2 → 78.2", FULL, TABLE),
        Published("29.2 % reused, GSM8K 78.2 → 78.5", FAST, TABLE),
        Published("34.5 % reused, MBPP 27.0 → 26.2", FULL, TABLE),
        Published(
            "GSM8K 74.8, 74.0, 76.6, 78.2 at 0.1, 0.2, 0.3, 0.5",
            "a sweep of one parameter, by the text the mean reuse quantile; of which form is not "
            "known here",
            "paper, Table 6",
        ),
    ),
)

DARE_O = Account(
    f"""
Computes keys and values of every row, and of its query the first head, which is compared with the
step before. A row whose query turned by no more than the layer's threshold keeps its attention
output; the other rows' queries, attention and output projection are computed. The feed-forward is
computed for all rows.

The argument is DARE-KV's: little drift of the query means little drift of what attention gives.
Outputs can be reused more often than keys and values, since no other row reads them.

Small drifts can add up unseen between renewals. In the first layer a query depends on the token
alone: if its output is reused wherever the token stands, the input of the next layer stands still
too, and so on upwards. The first layers are therefore left out of reuse; how many, the paper's text
has lost, and 2 is what the embedded model needs. Because the feed-forward stays dense, the most
that can be spared is a tenth of the FLOPs of LLaDA-8B, by a count at 1,024 positions.

{SHARED}
""",
    (
        Published("66.7 % reused, GSM8K 77.2 → 77.0", FULL, TABLE),
        Published("84.8 % reused, GSM8K 78.2 → 78.1", FAST, TABLE),
        Published("63.1 % reused, MBPP 27.0 → 25.6", FULL, TABLE),
        Published("65.7 % reused, HumanEval 36.0 → 37.2", FAST, TABLE),
        Published(
            "17.7 → 55.5 tokens/s at length 256, 17.7 → 136.6 at 512, 57.7 → 59.2 at 2,048",
            "A6000, bfloat16, batch 1, which form is not known here. Saving a tenth of the FLOPs "
            "cannot give the first two; decoding was probably unequal, so they are no target",
            "paper, Table 7",
        ),
    ),
)

ACCOUNTS = {"dare_kv": DARE_KV, "dare_o": DARE_O}
