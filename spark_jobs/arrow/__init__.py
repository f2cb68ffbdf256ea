"""Records to Arrow: the bytes of Kafka records enter, judged records, the newest of each key and Arrow columns leave; no session."""
