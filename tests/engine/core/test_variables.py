"""Environment variables that several packages read."""

import pytest

from engine.core.variables import KERNELS, only_torch_kernels


@pytest.mark.parametrize(
    ("environment", "only"), [({KERNELS: "torch"}, True), ({KERNELS: ""}, False), ({}, False)]
)
def test_only_torchs_routines_are_used_if_the_variable_says_so(environment, only):
    assert only_torch_kernels(environment) == only


@pytest.mark.parametrize("given", ["onednn", "Torch", "1"])
def test_another_value_of_the_variable_is_refused(given):
    with pytest.raises(ValueError, match=rf"^{KERNELS}: '{given}' is unknown; set it to torch"):
        only_torch_kernels({KERNELS: given})
