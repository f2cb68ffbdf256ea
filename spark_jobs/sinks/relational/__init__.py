"""The relational sinks: rows enter, one transaction per target and batch leaves."""
