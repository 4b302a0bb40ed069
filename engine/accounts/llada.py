"""Plain decoding and its schedule (LLaDA, arXiv 2502.09992)."""

from __future__ import annotations

from engine.accounts.account import Account, Published

NONE = Account("""
Every step is one forward over the whole canvas, prompt, answer and masks, and every layer computes
every position anew. Attention runs in both directions, so each token that is committed changes the
keys and values of all positions, of those before it as well as of those after it. That is why the
KV cache of an autoregressive model is not exact here.

It risks nothing and costs the most. It is what every cache is held against: with each of them but
FreeCache there are settings at which the same tokens must come out, and the tests see to it.
""")

QUOTA = Account(
    """
LLaDA's schedule. A block that opens with M masks and has s steps commits floor(M / s) tokens in
each of them, and one more in each of the first M mod s. The score says which: confidence, the
probability of the proposed token, is the paper's low-confidence remasking; margin, entropy and a
random order are the usual others. Blocks are decoded from left to right. A committed token is never
taken back: to remask is only not to commit.

Tokens that are committed in one step are chosen apart from each other, each by its own marginal.
One a step asks nothing of that; more a step take the tokens to be independent, and the text loses
where they are not.

The confidence is of the model's own distribution, whatever the temperature, as the authors have it.
It is taken in at least float32 with ties to the lower position, where the released code works in
the model's own format. The mask token can never be committed. What a cache kept from being
committed when it was due is owed in a later step.
""",
    (
        Published(
            "GSM8K 78.6",
            "LLaDA-8B-Instruct, answer of 256 in blocks of 8, nothing done about the end of text",
            "released code, settings for the Instruct model",
        ),
    ),
)

ACCOUNTS = {"none": NONE, "quota": QUOTA}
