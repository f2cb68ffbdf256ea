"""Tables, read in chunks beside the log, into the snapshot topics (DESIGN, "Snapshots").

What enters: requests for tables (signals, the first start, DDL that logged no rows). What leaves: snapshot
rows in Kafka transactions of their own, or (`merge: producer`) handed to the log reader, which writes those
that the log did not overtake where the close row stands; and, at each cut of the log reader, what it has to
write for us: window registrations, markers, notifications, state documents and the horizon. Owner of the
chunk connections and of the signal table's window rows; nothing here reads the log. Whoever wants a single point in
time instead has tables read in one view, whose rows the log reader publishes while it stands still.

Read in this order: `ranges` (which rows are a chunk's), `watermark` (low and barrier), `planner`, `reader`
(one chunk, step by step), `held` (a chunk that waits for its close row), `documents` and `ledger` (what is
known, pure), `coordinator` (threads around it); `view` and `blocking` (one position for all tables).
"""
