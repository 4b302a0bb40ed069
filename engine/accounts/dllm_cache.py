"""dLLM-Cache (arXiv 2506.06295)."""

from __future__ import annotations

from engine.accounts.account import Account, Published

WHERE = "paper, results by task"
CARD = "one RTX 4090, update ratio 0.25, tokens/s over the whole answer, TFLOPs a generated token"

DLLM_CACHE = Account(
    """
Keeps keys, values, attention outputs and feed-forward outputs of every layer, for the prompt and
the answer apart. The prompt is recomputed every K_p steps (`prompt_interval`), the answer every K_r
(`response_interval`). In between, V is computed for the whole answer and compared with the step
before by cosine (V-verify); the rows whose V moved most, as many as the update ratio ρ says
(`recompute_ratio`), get new keys, attention and feed-forward outputs. All others add their old
outputs to a fresh residual stream.

The paper finds that the prompt's features stand almost still over many steps and that most of the
answer's change slowly, a few tokens excepted, and that how far V moved tells how far attention and
feed-forward outputs did (its figure 2). V is cheap to compute, so it serves as the test.

V is compared with the step before, while the outputs that are reused may be older: a row that
drifts slowly is never found between two refreshes of the answer. `ref` last_update compares with
the row's last renewal instead. Long intervals with no update in between are the hasty settings.

The engine follows the released code where it departs from the paper: the first step is full and
both clocks count from it, layer 0 is recomputed whole in every step (a repair after the first
version of the paper, so the published TFLOPs are without it), and a refresh of the prompt alone
also updates the answer (`case2` code). It differs from the release in keeping keys after rotation,
in minding padding, and in computing only the logits that are needed.
""",
    (
        Published(
            "7.32 → 31.43 tokens/s, 16.12 → 2.76 TFLOPs, GSM8K 69.06 → 67.32",
            f"LLaDA-8B-Base, K_p 100, K_r 6; {CARD}",
            WHERE,
        ),
        Published(
            "7.32 → 23.19 tokens/s, 16.12 → 3.21 TFLOPs, GSM8K 69.06 → 70.66",
            f"LLaDA-8B-Base, K_p 25, K_r 5, the defaults here; {CARD}",
            f"{WHERE} (second configuration)",
        ),
        Published(
            "GSM8K 77.48 → 78.54",
            "LLaDA-8B-Instruct, K_p 50, K_r 7; the speeds of this row cannot be read from the text "
            "at hand",
            f"{WHERE}, intervals of the released code",
        ),
        Published(
            "5.33 → 28.01 tokens/s, 22.07 → 2.73 TFLOPs, GPQA 29.01 → 29.01",
            f"LLaDA-8B-Instruct, K_p 50, K_r 6; {CARD}",
            WHERE,
        ),
        Published(
            "7.87 → 30.74 tokens/s, 14.91 → 2.99 TFLOPs, MBPP 40.80 → 39.00",
            f"LLaDA-8B-Base, K_p 50, K_r 4; {CARD}",
            WHERE,
        ),
        Published(
            "6.36 → 32.44 tokens/s, 19.59 → 2.84 TFLOPs, GSM8K 76.95 → 76.95",
            f"Dream-7B-Base, K_p 100, K_r 8; {CARD}",
            WHERE,
        ),
        Published(
            "6.39 → 24.52 tokens/s, 19.57 → 4.24 TFLOPs, GSM8K 77.55 → 76.80",
            f"Dream-7B-Instruct, K_p 25, K_r 2; {CARD}",
            WHERE,
        ),
        Published(
            "9.1 times fewer FLOPs, F1 34.56 → 36.10",
            "HotpotQA (LongBench), long prompts, 32 tokens in 32 steps, K_p 100, K_r 8; the first "
            "version of the paper gave the factor as one of speed",
            "paper, long prompts",
        ),
        Published(
            "GSM8K 78.54 by cosine of V, 55.95 by its distance, 77.48 without a cache",
            "LLaDA-8B-Instruct, update ratio 0.25: the knob `selector`",
            "paper, ablation of selectors",
        ),
    ),
)

ACCOUNTS = {"dllm_cache": DLLM_CACHE}
