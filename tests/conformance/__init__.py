"""Compare the engine with recorded runs of public implementations.

`python -m tests.conformance DIR` runs every case of a folder with the layout of tests/goldens, and
without DIR all folders of this repository; `--kernels NAME` with another routine than torch's, for
example `packed` or `by_head`, where it can be used, and `--device cuda` on a GPU. It prints one
line a case, with the widest difference of its logits, and ends with `N passed, M failed, K
unknown`.

Each case runs twice. The observed run computes the logits of all recorded rows, so that rows,
caches and logits of every kind are compared. The shipped run is the one that users get: the last
layer leaves out rows, and forwards are captured; of its logits those are compared that it computes.
"""
