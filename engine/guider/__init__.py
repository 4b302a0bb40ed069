"""The autoregressive guider of guided diffusion: its judgement of drafts."""
