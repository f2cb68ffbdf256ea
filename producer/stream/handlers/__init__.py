"""Handlers of what the log says: rows events, DDL statements and checkpoints enter, records and state documents leave.

Each module is one concern behind the protocols of `producer.stream.ports`. The log reader's thread owns all of them.
"""
