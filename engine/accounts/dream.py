"""Dream's sampler (arXiv 2508.15487)."""

from __future__ import annotations

from engine.accounts.account import Account

DREAM = Account("""
Dream's own schedule: time falls evenly from 1 to a small eps, and of the M tokens still masked a
step commits the share that the fall of time asks for, rounded down; the last step commits the rest.
The measure says which: `alg` entropy takes the tokens whose distribution has the least entropy,
topk_margin those with the widest gap between the two likeliest, maskgit_plus the most probable, and
origin reveals each masked position by itself, at random. It chooses tokens, not rows: what is
recomputed is the cache's affair.

Measures are taken after the temperature and the cuts to the likeliest tokens (`top_p`, `top_k`),
other than LLaDA's, which rank by the model's own distribution. With `alg_temp` above 0 the order is
drawn too.

As with every fixed schedule, more than one token a step takes the tokens to be independent.
Rounding down has an oddity: with as many steps as tokens the released schedule commits nothing in
the first step and two tokens in the last.

By default the engine therefore counts as LLaDA's quota does (`schedule` corrected); released gives
Dream's own counts, with M of each sequence by itself where the release takes the mean of a batch.
The release decodes the whole answer as one block; here blocks of any length go with it. Figures for
the rule apart from the model are not at hand.
""")

ACCOUNTS = {"dream": DREAM}
