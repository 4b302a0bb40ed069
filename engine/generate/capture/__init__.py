"""Capture parts of a forward once and replay them: CUDA graphs on a GPU, tapes on a CPU.

`Job.capturer` switches it: None runs every forward eagerly. `make_job` sets it with
`make_capturer`; a CaseSpec or Case of engine.bench with `eager` clears it again, and the tables of
`python -m engine bench` show the eager rows beside the captured ones.
"""
