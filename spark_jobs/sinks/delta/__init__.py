"""The Delta sink: rows enter, stamped commits of Delta tables leave; all that knows of Delta is in this package."""
