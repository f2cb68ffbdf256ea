"""Chaos: a seeded workload, faults at random moments, and the outcome compared row by row and event by event.

`python -m tests.chaos --rounds 20 --seed 1` plays rounds on real servers. A round is a database, a topic prefix and a
lake of its own; everything it draws comes from its seed, so that a failing round can be played alone. What happens
when is up to the machine: the same seed meets the same faults in the same order, not at the same microsecond.
"""
