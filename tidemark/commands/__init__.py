"""One module per verb: parsed arguments enter, an exit code leaves; each imports its side of Kafka lazily."""
