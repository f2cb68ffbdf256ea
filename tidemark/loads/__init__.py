"""Chunks of tables, read from the source for the merge job, with the row codec of the producer.

What enters: load markers. What leaves: records as Arrow arrays, and answers in the signal table. The merge job knows this package
by its name alone (`spark_jobs.merge.source_of_chunks`), so that it needs no client of MySQL where nobody loads tables that way.
"""
