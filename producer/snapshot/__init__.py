"""Tables, read in chunks beside the log, into the snapshot topics (DESIGN, "Snapshots").

What enters: requests for tables (signals, the first start, DDL that logged no rows). What leaves: snapshot rows in Kafka
transactions of their own, or (`merge: producer`) handed to the log reader, which writes those that the log did not change
at the end of the window; and, at each checkpoint of the log reader, its part of the Kafka transaction: window registrations,
markers, notifications, state documents and the horizon. Owner of the chunk connections and of the signal table's window
rows; nothing here reads the log. Consumers that want a single point in time have tables read in one view, whose rows the
log reader publishes while it waits at the view's position.

Read in this order: `ranges` and `scope` (which rows are a chunk's), `watermark` and `windowing` (low watermark and barrier),
`planner`, `reader` (one chunk, step by step), `buffered_chunk` (a chunk that waits for its close row), `snapshot_state` and
`ledger` (the state, pure: `requests`, `followed_rows`, `tasks`, `asked_loads`, `turns`, `window_register`, `outbox`),
`workers` (`chunk_worker`, `planning_worker`, `load_worker`, `load_guard`), `coordinator` (the threads around it, and for the log
reader: `log_windows`, `own_requests`); `view` and `blocking` (one position for all tables).
"""
