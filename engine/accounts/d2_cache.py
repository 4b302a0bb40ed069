"""d2Cache and its certainty prior (arXiv 2509.23094)."""

from __future__ import annotations

from engine.accounts.account import Account, Published

D2_CACHE = Account(
    """
One forward over the whole canvas keeps the keys and values of all positions. Each step after it
recomputes three sets of rows, in every layer the same: the masks most likely to be decoded next, by
their confidence times the certainty density around them (`current_k` of them); the tokens decoded
in the last step; and of all other rows those that attention flows to most, the fewest that together
gather a share of the attention roll-out (`rollout_p`). Rows in small gaps between them may be
filled in. All others keep their keys and values.

The paper's reasons: the keys and values of a mask change fast only shortly before it is decoded and
those of a token soon settle after it, and of the rest only what much attention flows to matters to
the others. Certainty density is high where many tokens near by are known, so the candidates are
those about to be decoded.

A row outside the three sets keeps whatever it was, in the published form without any periodic
refresh; what the roll-out underrates stays stale. The roll-out needs the attention weights
themselves, which fused kernels do not give.

The released code means to renew the confidence of the rows it recomputes but writes to a copy, so
that all of them stay those of the first step; the engine does what was meant. The candidates of the
block being decoded come first. The roll-out is computed for the rows that entered, the others being
the identity. Only a position whose row was recomputed can be committed.
""",
    (
        Published(
            "2.77 → 11.39 tokens/s (4.1 times), GSM8K 77.6 → 79.2",
            "LLaDA-8B-Instruct; second-hand, hardware and decoding not stated",
            "a secondary source",
        ),
        Published(
            "GSM8K 26.9 tokens/s, score 76.4",
            "LLaDA-8B-Instruct on a B200, padding not counted as tokens; d2Cache as a rival (none: "
            "29.67 tokens/s, 78.62), so slower than no cache there",
            "supplement to SPA-Cache's review, comparison of methods",
        ),
        Published(
            "MBPP 25.1 tokens/s, score 39.6",
            "LLaDA-8B-Instruct on a B200, padding not counted as tokens; d2Cache as a rival (none: "
            "5.75 tokens/s)",
            "supplement to SPA-Cache's review, comparison of methods",
        ),
    ),
)

CERTAINTY = Account("""
LLaDA's schedule, with d2Cache's ranking: the confidence of a token times the certainty density at
its place, which is a Gaussian sum over the known tokens around it. It chooses tokens, not rows:
what is recomputed is the cache's affair.

A confident token far from everything known waits, so that the order comes near to left to right
without blocks. The authors decode the whole answer as one block this way; that keeps the
end of the text from being decided first, which is what whole-answer decoding by confidence alone
tends to.

A small sigma makes the order strict, and what the model is sure of at a distance is decided late; a
large one gives back the ranking by confidence. As with every fixed schedule, more than one token a
step takes the tokens to be independent.

The engine has it as an unmasker of its own, so that it goes with every cache and with blocks of any
length. Figures for it apart from the cache are not at hand.
""")

ACCOUNTS = {"d2_cache": D2_CACHE, "certainty": CERTAINTY}
