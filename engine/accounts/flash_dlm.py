"""FlashDLM's FreeCache (arXiv 2505.21467)."""

from __future__ import annotations

from engine.accounts.account import Account, Published

FREECACHE = Account(
    """
One forward over the whole canvas keeps the keys and values of all positions. After it a step
recomputes the rows from the block of the first mask to the end of the canvas, which attend to all
that stands before them; the blocks are the cache's own and may be longer than those of decoding.
When a block is done it is frozen and the window shrinks: it is never computed again.

The paper's observation is that the prompt's keys and values stay much the same over the steps and
that a token's become steady once it is unmasked, so that a later refresh would give little. Unlike
Fast-dLLM's prefix cache, which renews everything at every block, it computes the prefix once.

That is also the risk: the prompt never sees a token of the answer, and no clock ever puts right
what was frozen too early. The larger the block, the later it freezes; with a single block only the
prompt is kept. No setting makes FreeCache equal to plain decoding.

The released code freezes a block with the forward before its last commits, so that the tokens
revealed in its last step stay in the cache as masks for good. Here that is `freeze` stale; the
default, clean, lets the block enter one step more. The sliding window of the paper's guided
decoding is the knob `window`, with every key kept at its own position: the release writes them off
by as much as the window's edge moved, which loses some tokens of the context and doubles others.
The guided decoding itself is a method of its own, guided diffusion.
""",
    (
        Published(
            "blocks of 64 on LLaDA, of 32 in Table 7; a block of 256 on Dream",
            "settings, not speeds: Dream's answer is 256 long, so only the prompt is frozen there; "
            "no speed of FreeCache alone is quoted, since its conditions are not at hand",
            "paper, settings and Table 7",
        ),
    ),
)

GUIDED = Account(
    """
In each step the model proposes its likeliest token at every mask, left to right, and a small
autoregressive model, the guider, reads the proposal once: its row before a token says what it
would have written there. The run of tokens that it agrees to is committed, k of them, and where it
does not agree to the first, one token is committed nonetheless: max(1, k) tokens a step. The
guider writes nothing itself and corrects nothing, unlike in speculative decoding: what is committed
is always a token of the diffusion model, and no token follows the first mismatch. By the rule rel a
token d is agreed to if it is among the guider's k likeliest and p(d) is at least tau times its
largest probability; top1, topk and rel_dlm are stricter, looser or ask how sure the model is.

The guider's judgement stands in for what parallel decoding lacks, the dependence of neighbouring
tokens on each other. It costs one forward of the guider over the draft, and pays where tokens per
step exceed 1 + cost of the guider / cost of the model. The guider's own keys and values are kept
and only cropped; prompt and all that was committed are read once. All its time, products and memory
are counted here in every total.

What it risks: the proposal is made at all masks together, so that far tokens are guesses; what the
guider would not have written is taken one token a step, however sure the model is; and a guider
that knows less than the model slows it down, while one that is agreeable (a large k, a small tau)
lets through what neither would have written token by token. A committed end of text ends the run.

The paper's algorithm counts matches, its text and its release take the unbroken run; so does this
engine. With no agreement at all the text takes a token of the guider, algorithm and release one of
the model: `fallback`, by default the model's. The appendix compares logits of the two models
(rel_dlm, here on probabilities); the release compares probabilities of the guider alone (rel).
Where the vocabularies differ the release encodes the draft anew and compares both by position,
where they no longer match; here agreement is counted in bytes, and a token of the model is
committed only if the guider agrees to the whole of it, but for the fallback.
""",
    (
        Published(
            "k 2 and tau 0.5; drafts judged in blocks of 32, answers of up to 1,024 tokens, a "
            "sliding window of 128 positions",
            "settings, not speeds: no speed is quoted, since the conditions of the published ones "
            "are not at hand",
            "appendix C.4 (k and tau), the release (the rest)",
        ),
    ),
)

ACCOUNTS = {"freecache": FREECACHE, "guided": GUIDED}
