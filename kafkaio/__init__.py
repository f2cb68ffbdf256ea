"""Kafka, the one client of it: settings enter, committed records, topics and transactions leave.

Each module takes `KafkaSettings` or brokers and options of librdkafka, owns its connection, and raises errors of `schemas.errors`.
Nothing here knows what is in a record.
"""
