"""Entry points: settings enter, a running merge job or a repair of its quarantine leaves; a command owns each of them."""
