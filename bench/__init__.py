"""The benchmark: how fast producer and merge job are, and what a row costs them. `python -m bench --help`."""
