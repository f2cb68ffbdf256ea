"""Mirrors and changelogs in topics, exactly once: messages of a batch and the record of its commit enter one Kafka transaction."""
