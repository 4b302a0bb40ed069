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
The guided decoding itself is not part of this method.
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

ACCOUNTS = {"freecache": FREECACHE}
