"""Fast-dLLM's caches and rules for decoding in parallel (arXiv 2505.22618)."""

from __future__ import annotations

from engine.accounts.account import Account, Published

BY_SPA = Published(
    "GSM8K 29.67 → 93.86 tokens/s, MATH 33.35 → 85.94, MBPP 5.75 → 12.49, HumanEval 37.48 → 81.90",
    "LLaDA-8B-Instruct on a B200, padding not counted as tokens; Fast-dLLM as a rival, with which "
    "of its caches is not known here",
    "SPA-Cache's paper, comparison of methods",
)

PREFIX = Account(
    """
Every block begins with a forward over the whole canvas, which keeps the keys and values of all
positions and whose logits decode the block's first step. The steps after it recompute the block and
everything behind it, and attend to what is kept of the prefix: the prompt and the finished blocks.
The forward that begins the next block renews everything.

It is thought safe because the keys and values of the prefix hardly change from step to step within
a block (the paper's maps of similarity, its figure 3): its tokens stand, and only the block's new
tokens move them. Keys and values of the first layer are even exact, since they depend on the token
alone; staleness enters from the second layer on.

The prefix is as old as its block's first step, so long blocks with many steps are at risk. The
refresh interval, which LLaDA-V added, repeats the full forward inside a block; at 1 this is plain
decoding.

The released loop runs one forward too many where a block is done with its first step; here that is
tested before the forward. With a model whose logits are shifted by one the window begins one row
earlier and the block's first token obeys the same rule as all others, where the release commits it
whatever its confidence.
""",
    (
        Published(
            "GSM8K 77.6 → 77.2, HumanEval 42.1 → 42.7, Minerva 7.92 → 6.94, MBPP 30.4 → 27.0",
            "scores of LLaDA-8B, prefix cache with threshold decoding; batch 1, answer of 256 in "
            "blocks of 32",
            "DARE's paper, baselines of its tables",
        ),
        BY_SPA,
        Published(
            "15.9 → 28.2 tokens/s from a refresh interval of 2 to 32, accuracy at least 56.6",
            "LLaDA-V, one block of 96, with the factor rule; blocks of 8 or 4 lose more than 8 "
            "points",
            "LLaDA-V's paper and code",
        ),
    ),
)

DUAL = Account(
    """
As the prefix cache, but what stands behind the block, masks that nobody decodes yet, is kept too.
After a block's first forward the steps recompute the block alone: its new keys and values are put
in place among those that are kept, and its queries attend to all positions.

The argument is the prefix cache's, and the masks of the suffix change even less from step to step
than it does. What is kept is as old as the block's first step on both sides, so more is stale than
with the prefix cache, and the forward that begins a block cannot be left out without a loss of
quality. On short texts the dual cache can be the slower of the two, as users of the release found:
its gain is the suffix, which is short then.

The rows of each sequence of a batch are put in place by their own positions; the released code
fails there on more than one sequence. Keys are kept after rotation, since positions never move.
""",
    (
        BY_SPA,
        Published(
            "GSM8K 77.6 → 78.2, HumanEval 42.1 → 36.0, Minerva 7.92 → 8.06, MBPP 30.4 → 25.8",
            "scores of LLaDA-8B, the whole of Fast-dLLM with threshold decoding, which of its "
            "caches is not known here; batch 1, answer of 256 in blocks of 32",
            "DARE's paper, baselines of its tables",
        ),
    ),
)

THRESHOLD = Account(
    """
Confidence-aware parallel decoding: a step commits every masked token of the block whose
confidence reaches the threshold, and the surest one in any case. It chooses tokens, not rows: what
is recomputed is the cache's affair. Steps are not spent; a block lasts until it is full.

Tokens committed together are the best of their own marginals, not of their joint distribution. With
high confidences the two agree (the paper's Theorem 1, section 3.3); with a low threshold tokens
that depend on each other are decided apart, and the text begins to contradict itself. The paper
explores 0.5 to 1.0 and works with 0.9.

An early release without the rule of the surest looped for ever. A threshold of 1 is not one token a
step, since a rounded probability can reach 1; above 1 is. Without a cache the release takes Dream's
threshold over the whole answer and not over the block; here it is always the block's.
""",
    (
        Published(
            "HumanEval 5.5 in place of 55.5",
            "Dream-Instruct with threshold decoding and no cache, over the whole answer: what the "
            "rule does where nothing keeps it to a block",
            "issue 43 of the released code, a user's report",
        ),
    ),
)

FACTOR = Account("""
Sorts the masked tokens of the block by confidence and commits the first k, for the largest k with
(k + 1)(1 - c_k) below the factor, at least one: the more tokens are taken, the surer the last of
them must be.

At factor 1 this is the hypothesis of the paper's Theorem 1: if every one of k tokens has a marginal
above 1 - ε and (k + 1)ε is at most 1, then the best of the product of the marginals is the best of
the joint distribution too, so that decoding them at once equals decoding them one by one. Above 1
nothing is promised. Even at 1 the theorem asks that the marginals come from one joint distribution,
which those of a real model only come near to.

The released loop also accepts equality, and the last candidate where only it fails: of confidences
0.99 and 0.2 it takes both, this engine one.
""")

FRECHET = Account("""
Commits the longest run of the confidence order whose doubts add up: the sum of 1 - c over the run,
plus that of its last token once more, stays below 1; at least one token.

It is this engine's own, from the proof of Fast-dLLM's Theorem 1: the probability that all k tokens
are right together is at least 1 minus the sum of their doubts (Fréchet's bound), and it is the best
of the joint as soon as that exceeds the least sure token's doubt, which bounds every other outcome.
It takes every run that factor 1 takes, and longer ones where the confidences differ, with the same
promise and the same caveat: the marginals must come from one joint distribution. No paper reports
figures for it.
""")

ACCOUNTS = {
    "prefix": PREFIX, "dual": DUAL, "threshold": THRESHOLD, "factor": FACTOR, "frechet": FRECHET,
}  # fmt: skip
