"""How far behind everything is, of a status: what `status`, `lag`, the endpoint and the metrics say in the same words (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from schemas.json_codec import ABSENT, INLINE, Form, encode, json_field
from tidemark.status.job_standing import JobState
from tidemark.status.pipeline_lag import (
    LOST,
    Lag,
    Verdict,
    Word,
    lag_to_kafka,
    lag_to_sink,
    largest,
    verdict,
)
from tidemark.status.reckoning import READ_AGAIN, UNMATCHED
from tidemark.status.tree import FOLLOWING, NOT_FOLLOWED, Status, TableStatus

_NO_TOPICS: Final = "it has no topics in Kafka, or they end before what was read of them"
_NOT_READ: Final = "Kafka did not say when its oldest record was written"


@dataclass(frozen=True, slots=True)
class Lags:
    """How far one sink is behind the source: `to_kafka` of all tables together, `tables` each from Kafka to the sink.

    `to_sink` is over all tables that are captured and go into the sink, None without a sink. The two do not add up: a record that
    came late into Kafka is as old there as its stay. `left_out` are tables that do not go into the sink, or are captured no longer.
    """

    JSON: ClassVar = Form(head=lambda lags: {"to_kafka": _in_bytes(lags.to_kafka)})

    to_kafka: Lag = field(metadata=ABSENT)
    to_sink: Lag | None
    tables: dict[str, Lag] = field(metadata=ABSENT)
    verdict: Verdict = field(metadata=INLINE)
    left_out: frozenset[str] = json_field(frozenset(), absent=True)

    def as_unknown(self, reason: str) -> Lags:
        """Return what these lags say of a later moment: nothing, for that reason."""
        nothing = Lag(unknown=reason)
        return replace(
            self,
            to_kafka=nothing,
            to_sink=None if self.to_sink is None else nothing,
            tables=dict.fromkeys(self.tables, nothing),
            verdict=Verdict(Word.UNKNOWN, (reason,)),
        )


def _in_bytes(lag: Lag) -> dict[str, Any]:
    """Return the JSON form of a lag of the source's log, whose rest is counted in bytes."""
    document = encode(lag)
    return {**{key: one for key, one in document.items() if key != "records"}, "bytes": lag.left}


def lags_of(status: Status, left_bytes: int | None = None, problem: str = "") -> Lags:
    """Return the lags of a status into one sink.

    `left_bytes` of the source's log are not in Kafka, as the source says now (None: unknown); `problem` is what it needs.
    """
    known = [one for one in (status.sign and status.sign.in_kafka_ms, status.log and status.log.last_ms) if one]
    to_kafka = lag_to_kafka(status.read_ms, left_bytes, max(known, default=None))
    tables = {table.table: table_lag(status, table) for table in status.tables}
    counted = [(table.table, tables[table.table]) for table in status.tables if not (table.released or table.skipped)]
    to_sink = largest(counted) if counted else Lag(unknown=_unseen(status) or "no table has topics yet")
    has_sink = status.has_sink
    word = verdict(
        status.read_ms,
        producer=status.producer(left_bytes),
        merge=status.merge if has_sink else None,
        merge_sign=status.merge_sign,
        to_kafka=to_kafka,
        to_sink=to_sink if has_sink else None,
        asks=(
            *([f"source: {problem}"] if problem else []),
            *(note for note in status.notes if not note.startswith(UNMATCHED)),  # a table may come that a pattern waits for
            *(ask for one in status.tables for ask in _asks(one)),
        ),
        snapshots=tuple(_reading(table) for table in status.tables if table.is_snapshotting),
    )
    left_out = frozenset(table.table for table in status.tables if table.released or table.skipped)
    return Lags(to_kafka, to_sink if has_sink else None, tables, word, left_out)


def table_lag(status: Status, table: TableStatus) -> Lag:
    """Return how far a table in the sink is behind Kafka."""
    if table.set_aside is not None:
        return Lag(left=table.behind, unknown=f"it is set aside: {table.set_aside}")
    if table.skipped is not None:
        return Lag(unknown=f"it does not go into this sink: {table.skipped}")
    if unseen := _unseen(status):
        return Lag(unknown=unseen)
    why = _NO_TOPICS if table.behind is None else _NOT_READ
    return lag_to_sink(status.read_ms, table.behind, table.oldest_ms, why)


def _unseen(status: Status) -> str:
    """Return why nothing is known of what is merged; "" where that is known."""
    return status.merge.reason if status.merge.state is JobState.UNKNOWN and status.merge.alive is None else ""


def _asks(table: TableStatus) -> list[str]:
    """Return what of a table needs a person."""
    if table.released:
        return []
    asks = []
    if table.set_aside is not None:
        asks.append(f"{table.table} is set aside: {table.set_aside}")
    if table.quarantined:
        asks.append(f"{table.table}: {table.quarantined:,} records are in quarantine: tidemark quarantine list")
    if table.inexact is not None and not _mends_itself(table, table.inexact):
        asks.append(f"{table.table} is inexact: {table.inexact}")
    if isinstance(table.oldest_ms, str) and LOST in table.oldest_ms:
        asks.append(f"{table.table}: {table.oldest_ms}")
    if table.snapshot == "failed" and not (table.gone or table.keyless):
        asks.append(f"{table.table}: its snapshot failed: {table.error}")
    return asks


def _mends_itself(table: TableStatus, inexact: str) -> bool:
    """Return whether rows that are on their way make the table exact, or nothing is expected to."""
    return table.is_snapshotting or inexact in (FOLLOWING, NOT_FOLLOWED) or inexact.startswith(READ_AGAIN)


def _reading(table: TableStatus) -> str:
    says_something = table.rows_estimated and table.rows_read <= table.rows_estimated
    of = f" of about {table.rows_estimated:,}" if says_something else ""
    return f"{table.table}: {table.snapshot}, {table.rows_read:,}{of} rows read"
