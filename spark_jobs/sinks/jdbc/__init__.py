"""The relational sinks: rows enter, one transaction per target and batch leaves; all that knows of JDBC is in this package."""
