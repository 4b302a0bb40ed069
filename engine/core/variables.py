"""Environment variables that several packages read; importable without torch."""

from collections.abc import Mapping

KERNELS = "DRIFTSCOPE_KERNELS"


def on_zero(environment: Mapping[str, str]) -> bool:
    """Whether environment variables are those of a Space on ZeroGPU, a shared GPU."""
    return environment.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


def only_torch_kernels(environment: Mapping[str, str]) -> bool:
    """Whether KERNELS asks for torch's own routines, so that nothing is timed.

    Raises ValueError naming it if it has another value.
    """
    given = environment.get(KERNELS, "")
    if given not in ("", "torch"):
        raise ValueError(
            f"{KERNELS}: {given[:20]!r} is unknown; set it to torch for torch's own routines, or "
            "unset it for the fastest ones of this machine"
        )
    return given == "torch"
