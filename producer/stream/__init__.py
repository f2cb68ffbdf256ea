"""The log reader: binlog events in, Kafka transactions out, in log order, each row exactly once.

What enters: framed events of one binlog connection. What leaves: change records, markers, state documents and
notifications, in Kafka transactions that end at transaction boundaries of the source. Owner of the log offset and of the
position that every other part orders by.

Read in this order: `log_reader` (the loop), `groups` and `steps` (events become steps, pure), `publication` and `routes`
(steps become calls of handlers), `ports` (the interfaces), `handlers`, `checkpoint` (what is committed together).
"""
