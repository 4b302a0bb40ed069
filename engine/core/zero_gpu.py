"""Detection of ZeroGPU, the shared GPU of Hugging Face Spaces; importable without torch."""

from collections.abc import Mapping


def on_zero(environment: Mapping[str, str]) -> bool:
    """Whether environment variables are those of a Space on ZeroGPU."""
    return environment.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
