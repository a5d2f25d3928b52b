"""Measures what a machine or cluster gives: collective communication, by this project's algorithms and others'.

An algorithm is data: for each rank, rounds of messages (`rounds.py`). Algorithms are pure functions in files of
their own (`ring.py`, `tree.py`, `halving_doubling.py`, `hierarchical.py`, `pairwise.py`), `algorithms.py` names
them, `execution.py` carries them out on point-to-point messages. `measurement.py` times them, `fitting.py` and
`choice.py` draw conclusions, `results.py` is the file they are kept in. `traffic.py` counts what any program sends.
"""
