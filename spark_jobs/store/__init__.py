"""The store: documents enter, durable files leave; it owns where state, lock and progress are kept."""
