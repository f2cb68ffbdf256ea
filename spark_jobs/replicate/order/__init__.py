"""The order: commit records of the members enter, transactions leave in one order, each once."""
