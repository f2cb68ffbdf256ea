"""The Kafka side: settings and offsets enter, frames of records, schemas and facts of topics leave; the driver owns the clients."""
