"""Tidemark beside the real Debezium on one server: the same changes, compared record by record.

::

    scripts: recorded SQL, ─→ MySQL or ─┬─→ Debezium on Kafka Connect ─→ Kafka ─┐
    random tables and DDL     MariaDB   └─→ Tidemark ──────────────────→ Kafka ─┴─→ compare

A scenario is a set of options: one connector and one producer with options that correspond, both reading some of the
scripts; all of them read at once. `make conformance` runs them; what may differ is in `differences`, and nothing
else may. `python -m tests.conformance --only 'tx|avro'` runs some.
"""
