"""How long each view may need to see a change, in seconds, with the reason of each. Nothing else in this package allows time."""

from __future__ import annotations

from typing import Final

EVERY_S: Final = 5.0
"""Each reader asks that often."""

# --- how old an answer may be: it counts as given for any moment since then

CLI_LATE_S: Final = 0.0
"""`tidemark lag` and `tidemark status` look when they are asked."""
PAGE_LATE_S: Final = 10.0
"""The page looks every 2 s, and says that it does not know after 10 s without a look."""
METRICS_LATE_S: Final = 15.0
"""The producer looks every 5 s, and gives no figure after 15 s without a look."""
BATCH_LATE_S: Final = 15.0
"""The merge job counts what is in quarantine and set aside at the end of a batch: trigger 2 s, and the batch."""

# --- when a fault is visible, from its beginning

SILENT_S: Final = 15.0
"""A job is called silent 15 s after its last liveness record; one is written every 2 s."""
SEEN_S: Final = 8.0
"""A liveness record proves life for 15 s from when a reader sees it first: 5 s between looks, and what a look takes."""
DEAD_AFTER_S: Final = SILENT_S + SEEN_S
WAITING_AFTER_S: Final = 15.0 + 2.0 + SEEN_S
"""The log reader says that it waits after 15 s without an event; the next liveness record comes within 2 s."""
LOCK_AFTER_S: Final = 4.0
"""A killed merge job loses the lock of its sink at once; Spark's JVM may live for a moment."""
BEHIND_AFTER_S: Final = 30.0 + 6.0
"""`behind` means more than 30 s; the load writes a row every second or two, and one may have been merged just before."""
UNREACHABLE_AFTER_S: Final = 1.0
"""A reader that asks a broker that does not answer knows nothing at once."""
QUARANTINED_AFTER_S: Final = 20.0
"""A record is counted after the batch that reads it."""
SET_ASIDE_AFTER_S: Final = 12.0
"""The log reader sets a table aside in the transaction that it cannot publish, and waits for Kafka's commit."""

# --- when all is well again

RECOVERS_S: Final = 240.0
"""A merge job starts a JVM and its first batch on a machine that is busy; longer is a failure, not a slow answer."""
CALM_S: Final = 6.0
"""From where the harness knows that all is well: a liveness record (2 s), the next look of a reader that stays open (2 to 5 s)."""
UNKNOWN_S: Final = 20.0
"""A reader that could not reach Kafka makes a new client, which needs some seconds for its first look."""
UNKNOWN_FOR_S: Final = 25.0
"""A view that cannot look in time on a busy machine says `unknown`, which is true; for longer than some looks it is of no use."""
HEALTHY_S: Final = 8.0
"""All is well where no row is missing for that long: trigger 2 s, a batch, and a busy machine."""

# --- numbers

CLOCK_S: Final = 0.3
"""One machine, one clock: rounding to 0.1 s, and what passes between a statement and a look at the clock."""
TO_KAFKA_OVER_S: Final = 12.0
"""What a lag to Kafka may say too much: a heartbeat of the source (10 s at most between two that count), the liveness record (2 s)."""
TO_SINK_OVER_S: Final = 12.0
"""What a lag to the sink may say too much: markers and heartbeats are records, too, and are merged with the next batch."""
