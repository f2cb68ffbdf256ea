"""Changelogs in topics, exactly once: events of a batch and the record of its commit enter one Kafka transaction."""
