"""The log reader: binlog events in, Kafka transactions out, in log order, each row exactly once.

What enters: framed events of one binlog connection. What leaves: change records, markers, state documents and
notifications, cut into Kafka transactions at source transaction borders. Owner of the log offset and of the
position every other part orders by.
"""
