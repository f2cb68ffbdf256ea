"""Records to Arrow: the bytes of Kafka records enter, judged records, the newest of each key and columns leave; no session."""
