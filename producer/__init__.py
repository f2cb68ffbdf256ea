"""From MySQL or MariaDB to Kafka: one log, its tables and its signals enter, transactions of records leave.

::

    binlog ──▶ source ──▶ binlog ──▶ stream ──▶ kafka ──▶ change topics
    tables ──▶ source ──▶ snapshot ────────────▶ kafka ──▶ snapshot topics
    signals ─(in the log)─▶ control ──▶ snapshot        catalog, codec: what rows look like, and their bytes

`app` puts the parts together; nothing in here knows Spark.
"""
