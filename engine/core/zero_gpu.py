"""zero: whether this process runs on ZeroGPU, the GPU that Spaces share."""

from collections.abc import Mapping


def on_zero(environment: Mapping[str, str]) -> bool:
    """What an environment says of it."""
    return environment.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
