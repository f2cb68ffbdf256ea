"""Records in, Kafka transactions out.

What enters: finished records of the codec, markers, notifications and state documents. What leaves: Kafka
transactions, each commit at a source transaction boundary with the log offset that it stands for. Owner of the
broker connections; nothing in here knows the binlog.
"""
