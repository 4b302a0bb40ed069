"""Which routine computes a product or attention on this machine, chosen by measurement.

An operation has several routines that compute the same: torch's own, and others that a processor
may execute faster. `Kernels` says which one serves a class of shapes, `measure` times them,
`machine` keeps the times in the user's cache. On a GPU, `fused` chooses Triton kernels that replace
several operations of a layer.
"""
