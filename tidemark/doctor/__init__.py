"""What is wrong with a set-up: one list of findings over source, Kafka, registry, Spark and sinks. Nothing is written."""
