"""Chunks of tables, read from the source for the merge job, with the client and the row codec of the producer.

What enters: load markers. What leaves: records as Arrow arrays, and answers in the signal table. The merge job imports this package
when it opens its source, so that it needs no client of MySQL if nobody loads tables that way.
"""
