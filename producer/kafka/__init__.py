"""Records in, Kafka transactions out.

What enters: finished records of the codec, markers, notifications and state documents. What leaves: Kafka
transactions, each cut at a source transaction border and holding the log offset it stands for. Owner of the
broker connections; nothing in here knows the binlog.
"""
