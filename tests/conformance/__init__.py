"""Tidemark beside the real Debezium on one server: the same changes, compared record by record.

::

    statements (golden SQL, random tables) ─→ MySQL ─┬─→ Debezium on Kafka Connect ─→ Kafka ─┐
                                                     └─→ Tidemark ──────────────────→ Kafka ─┴─→ compare

`make conformance` runs it; what may differ stands in `differences`, and nothing else may.
"""
