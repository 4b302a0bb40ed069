"""The autoregressive guider of guided diffusion and its verification of drafts."""
