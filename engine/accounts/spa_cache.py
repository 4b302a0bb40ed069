"""SPA-Cache (arXiv 2602.02544)."""

from __future__ import annotations

from engine.accounts.account import Account, Published

WHERE = "paper, comparison of methods"
CARD = "LLaDA-8B-Instruct on a B200, batch 16, padding not counted as tokens"

SPA_CACHE = Account(
    """
In every layer and step a singular proxy tells which rows moved: the input of V's projection,
projected on the few strongest right singular directions of its weight and scaled by their singular
values (`rank`). The proxy is compared with the step before by cosine, and the rows that moved most
are recomputed, as many as the layer's budget allows; all others keep what they added to the
residual stream.

At full rank the proxy's cosine is V's own, so it tells as much as dLLM-Cache's V-verify at a part
of the cost; the paper bounds the error at a lower rank by the ratio of the singular values at the
cut. The budget is a piecewise Gaussian over the layers, low at both ends and highest at about three
quarters of LLaDA's depth, because the share of rows that drift differs from layer to layer (the
paper's figure 2).

A row that was not chosen is wrong by as much as it moved, and the proxy, like V-verify, sees only
the last step. With the released intervals every row is renewed every 50 steps and the answer every
7, so SPA-Cache as evaluated does refresh, about as dLLM-Cache does.

Where the paper and the release differ the engine starts from the release: keys and values of the
whole answer are computed in every step (`kv_mode` sparse is the paper's), layer 0 is recomputed
whole, and what is kept of a row is the sum of its branches, not its hidden state, so that an
unchosen row still moves with its stream. The budget is the paper's curve, counted from layer 1; the
release counts from 0 and never reaches its last value. With shifted logits the row that predicts
the first answer token is computed in every step, which the release leaves out.
""",
    (
        Published(
            "GSM8K 29.67 → 190.73 tokens/s",
            f"{CARD}; dLLM-Cache 68.62, Fast-dLLM 93.86",
            WHERE,
        ),
        Published("MATH 33.35 → 172.19 tokens/s", f"{CARD}; dLLM-Cache 74.26", WHERE),
        Published("MMLU-pro 20.68 → 124.06 tokens/s", f"{CARD}; dLLM-Cache 52.71", WHERE),
        Published("HumanEval 37.48 → 132.91 tokens/s", f"{CARD}; dLLM-Cache 40.29", WHERE),
        Published(
            "MBPP 5.75 → 46.12 tokens/s",
            f"{CARD}, hence the low baseline; dLLM-Cache 8.38",
            WHERE,
        ),
        Published(
            "GSM8K 78.62 without a cache, 78.59 by all of V and 25 % in each layer, 78.23 at rank "
            "128, 78.24 with the Gaussian budget too (16 % on average), 75.65 with an even 16 %",
            "LLaDA-8B-Instruct on a B200; 29.67, 164.88, 179.43, 189.13 and 190.06 tokens/s",
            "paper, ablation step by step",
        ),
        Published(
            "GSM8K 78.59 by the value, 73.92 by the attention output",
            "LLaDA-8B-Instruct: the knob `identifier`; the others' scores are not at hand",
            "paper, Table 1",
        ),
        Published(
            "GSM8K 276.4, MMLU-pro 225.0, MBPP 143.3, BBH 694.0 tokens/s (27.9 times)",
            "with parallel decoding beside it, so not the cache's own gain; B200",
            "paper, with parallel decoding",
        ),
    ),
)

ACCOUNTS = {"spa_cache": SPA_CACHE}
