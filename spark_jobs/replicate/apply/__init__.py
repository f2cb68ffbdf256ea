"""The apply: transactions in order enter, rows and progress of the target leave in the same transactions."""
