"""Kafka to lake: change and snapshot topics enter, Delta tables equal to the source leave."""
