"""The rows of change records: records of Kafka enter, values and statements for the target leave."""
