"""What each column of the CSV tables of a race means."""

from __future__ import annotations

from engine.core.events import PARTS, SITES
from engine.core.regions import REGIONS

_PARTS = {
    "projections": "the projections of attention",
    "attention": "the attention of queries to keys and values",
    "ffn": "the feed-forward layers",
    "head": "the logits",
    "selection": "the selection of the rows that are recomputed",
    "guider": "the autoregressive guider",
}
_SITES = {
    "k": "keys",
    "v": "values",
    "attn": "outputs of attention",
    "ffn": "outputs of the feed-forward layers",
}
_REGIONS = {"prompt": "the prompt", "block": "the current block", "rest": "the other positions"}
_TIMED = "; empty if layers were recorded during the run"
_KIND = "full (all rows), partial (some rows), reuse (none) or frozen (none any more)"

_GUIDER = {
    "guider_drafted": "Masked positions of the step's draft",
    "guider_accepted": "Draft tokens that the guider accepted",
    "guider_judged": "Guider tokens that spell the draft and were judged",
    "guider_top1": "Judged tokens that are the guider's first choice",
    "guider_top2": "Judged tokens among its first 2 choices",
    "guider_top5": "Judged tokens among its first 5 choices",
    "guider_fell_back": "1 if nothing was accepted and the fallback committed one token",
    "guider_stopped": "1 if the guider ended the text",
    "guider_straddle_loss": "Accepted bytes that do not complete a token of the draft",
    "guider_forwards": "Forwards of the guider",
    "guider_fed": "Tokens that these forwards processed",
    "guider_prefilled": "Tokens of the prefill before them",
    "guider_nll": "Mean negative log probability of the judged tokens, in nats",
    "guider_ms": f"Time of the guider in ms, with its prefill; a part of decide_ms{_TIMED}",
    "guider_prefill_ms": f"Time of the prefill in ms{_TIMED}",
}

STEPS = {
    "step": "Number of the step, from 1; a branch counts on from the step that it starts from",
    "block": "Number of the block that the step works on, from 1",
    "block_step": "Number of the step within its block, from 1",
    "kind": f"What the step recomputes: {_KIND}",
    "rows": "Positions that entered the network",
    "forwards": "Forwards of the network",
    "masks_left": "Masks left after the step",
    "forward_ms": f"Time in the network, ms{_TIMED}",
    "decide_ms": f"Time to decide what is committed, ms{_TIMED}",
    "recomputed": "Share of the token-layers of all positions that were recomputed, from 0 to 1",
    "committed": "Tokens that the step committed",
    **{f"flops_{part}": f"Floating-point operations of {_PARTS[part]}" for part in PARTS},
    **{f"share_{site}": f"Share of the {_SITES[site]} recomputed, from 0 to 1" for site in SITES},
    **{f"done_{name}": f"What was recomputed of {_REGIONS[name]}: {_KIND}" for name in REGIONS},
    **{f"planned_{name}": f"What the method plans for {_REGIONS[name]}" for name in REGIONS},
    "probed": "1 if the step was compared with an exact forward",
    "expert_rows": "Rows with experts that were computed again in the step, summed over layers",
    "expert_changed": "Share of them with other experts than when they were last computed",
    "expert_changes": "Number of the experts of such a row that changed, on average",
    **_GUIDER,
}

TOKENS = {
    "position": "Number of the position, from 1; the prompt is in front",
    "part": "prompt, answer, or suffix: the given text after the answer",
    "block": "Number of the block, from 1; empty in the prompt and the suffix",
    "id": "Id of the token at the end of the run",
    "text": "Text of the token; what cannot be printed is written as an escape",
    "given": "1 if the token was there before the run: in the prompt or the suffix, given in the "
    "answer, or kept from the run that a branch continues",
    "step": "Number of the run's step that committed the token, as in the table of steps; empty if "
    "none did",
    "confidence": "Probability of the token when it was committed, after temperature and cuts for "
    "unmaskers whose page says so; empty if it is not known",
    **{
        f"recomputed_{site}": f"How often the position's {_SITES[site]} were recomputed, summed "
        "over steps and layers"
        for site in SITES
    },
}

SUMMARY = {
    "lane": "A or B",
    "title": "The lane's title on the page",
    "cache": "Name of the cache method; none: no cache",
    "unmasker": "Name of the unmasker",
    "knobs": "Settings of both methods that were given; the others have their defaults",
    "model": "Name of the model",
    "gen_length": "Positions of the answer",
    "block_length": "Positions of a block",
    "steps": "Number of steps that was asked for; some methods choose their own",
    "temperature": "Sampling temperature; 0 is greedy",
    "cfg_scale": "Strength of classifier-free guidance; 0 is off",
    "eos": "Rule at the end of the text",
    "seed": "Seed of the random numbers",
    "dtype": "Number format",
    "device": "Device",
    "device_name": "Name of the device",
    "reason": "How the run ended: done, stopped, failed or memory",
    "nfe": "Steps taken",
    "forwards": "Forwards of the network",
    "tokens": "Tokens that the run committed before the end of the text, so without given ones and "
    "without those that a branch keeps",
    "positions": "Positions that the run committed, with those after the end of the text",
    "total_ms": "Engine time in ms; empty if layers were recorded during the run",
    "ms_per_step": "Engine time of a step in ms, on average",
    "tokens_per_s": "Tokens before the end of the text per second of engine time",
    "rows": "Positions that entered the network, summed over the steps",
    "rows_plain": "The same without a cache: every position that the model attends to enters in "
    "every step; steps that only fill a cache are left out",
    "recomputed": "Token-layers recomputed, as a share of those of all positions in every step, "
    "from 0 to 1; a step that only fills a cache adds to the recomputed ones alone",
    "gflops": "Floating-point operations, in 1e9",
    "cache_bytes": "Size of the cache",
    "peak_memory_bytes": "Largest memory use",
    "speedup_over_a": "Engine time of lane A divided by that of this lane; empty if each lane "
    "took a single forward",
    "answer": "The answer's last number; empty if there is none, no number is asked for or the "
    "answer was cut off",
    "expected": "The right answer, if it is known",
    "right": "1 if the answer is right, 0 if it is wrong; empty if that is not known or the answer "
    "was cut off, because the run was stopped or failed",
    "agreement_with_a": "Share of equal tokens with lane A, place by place, from 0 to 1",
    "first_difference": "Number of the first answer token that differs from lane A's, from 1",
    "same_answer_as_a": "1 if both lanes give the same answer",
}
