"""How far Kafka and the sinks are behind, in seconds, and one word for the whole: a status enters, lags and a word leave (pure).

A *lag* is the age of the oldest change that has not arrived: 0 where everything has arrived, by the end of the log or of the
topics, as the server or the broker reports it. A number is a promise, "at most so long"; what is not known is no number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Final

from schemas.json_codec import ABSENT, INLINE, Form, encode, json_field
from schemas.liveness import Sign
from schemas.readable import duration
from tidemark.status.job_standing import JobState, Standing
from tidemark.status.reckoning import READ_AGAIN, UNMATCHED
from tidemark.status.status_tree import FOLLOWING, NOT_FOLLOWED, Status, TableStatus

BEHIND_S: Final = 30.0
"""A lag above that is worth a word of its own."""
_CLOCKS_MS: Final = 2_000
_LEAST_S: Final = 0.1
_STANDSTILL_S: Final = 120.0
_LONGER: Final = 10
"""A batch that takes so many times as long as the one before stands still."""
_NO_TOPICS: Final = "it has no topics in Kafka, or they end before what was read of them"
_NOT_READ: Final = "Kafka did not say when its oldest record was written"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Seconds since the oldest change came that has not arrived, at most; None where that is not known, for the reason `unknown`.

    `left` counts what has not arrived: bytes of the source's log, or records in Kafka; None: unknown.
    """

    seconds: float | None = json_field(None, name="lag_s")
    left: int | None = json_field(None, name="records")
    unknown: str = json_field("", empty_as_null=True)

    @property
    def text(self) -> str:
        """The seconds for a person."""
        return duration(self.seconds, unknown=f"unknown: {self.unknown}")


LOST: Final = (
    "Kafka does not have records any more that were not merged: it keeps them for too short a time, or the topic was created again"
)
NOTHING_LEFT: Final = Lag(seconds=0.0, left=0)


def lag_to_kafka(now_ms: int, left_bytes: int | None, in_kafka_ms: int | None) -> Lag:
    """Return how far Kafka is behind the source.

    `left_bytes` of the source's log are not in Kafka, by its own end now (None: it did not say). Everything that the source
    committed up to `in_kafka_ms` is there (None: nobody has said).
    """
    if left_bytes == 0:
        return NOTHING_LEFT
    if in_kafka_ms is None:
        return Lag(left=left_bytes, unknown="the producer has not said yet up to when everything is in Kafka")
    return _since(now_ms, in_kafka_ms, left_bytes)


def lag_to_sink(now_ms: int, left: int | None, oldest_ms: int | str | None, unknown: str) -> Lag:
    """Return how far a table in the sink is behind Kafka.

    `left` records of it are not merged, None where that is not known for the reason `unknown`. The oldest of them was written at
    `oldest_ms`: 0 where consumers see none of them, a text that says why it is not known, None for that reason as well.
    """
    if left is None:
        return Lag(unknown=unknown)
    if left == 0 or oldest_ms == 0:
        return Lag(seconds=0.0, left=left)
    if oldest_ms is None or isinstance(oldest_ms, str):
        return Lag(left=left, unknown=oldest_ms or unknown)
    return _since(now_ms, oldest_ms, left)


def _since(now_ms: int, at_ms: int, left: int | None) -> Lag:
    if at_ms - now_ms > _CLOCKS_MS:
        reason = f"it counts from {(at_ms - now_ms) / 1000:.0f} s in the future: compare the machines' clocks"
        return Lag(left=left, unknown=reason)
    return Lag(seconds=max(_LEAST_S, round((now_ms - at_ms) / 1000, 1)), left=left)  # something is left


def largest(lags: Sequence[tuple[str, Lag]]) -> Lag:
    """Return the lag of all tables together, each with its name: unknown where that of one is."""
    left = [lag.left for _, lag in lags]
    counted = None if None in left else sum(one for one in left if one is not None)
    for name, lag in lags:
        if lag.seconds is None:
            return Lag(left=counted, unknown=f"{name}: {lag.unknown}")
    return Lag(seconds=max((lag.seconds or 0.0 for _, lag in lags), default=0.0), left=counted)


class Word(StrEnum):
    """One word for a pipeline into one sink; the worst of them that holds."""

    RUNNING = "running"
    BEHIND = "behind"
    SNAPSHOTTING = "snapshotting"
    UNKNOWN = "unknown"
    STALLED = "stalled"
    NEEDS_A_PERSON = "needs_a_person"
    DEAD = "dead"


_WORST_LAST: Final = tuple(Word)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The word for a pipeline into one sink, and the reasons for it and for all others that hold, the worst first."""

    word: Word
    reasons: tuple[str, ...]


def verdict(
    now_ms: int,
    *,
    producer: Standing,
    merge: Standing | None,
    merge_sign: Sign | None,
    to_kafka: Lag,
    to_sink: Lag | None,
    asks: Sequence[str] = (),
    snapshots: Sequence[str] = (),
) -> Verdict:
    """Return the word for a pipeline into one sink: good ones only if nothing that is worse holds, or may hold.

    `merge_sign` is the last liveness record of the merge job, `to_sink` the lag over all tables; a pipeline into Kafka alone has no
    `merge` and no `to_sink`. `asks` are sentences that say what a person has to do, `snapshots` those that are being read.
    """
    jobs = [(name, one) for name, one in (("producer", producer), ("merge job", merge)) if one is not None]
    reasons: list[tuple[Word, str]] = [
        *((_of_job(standing), f"{name}: {standing.text}") for name, standing in jobs),
        *((Word.NEEDS_A_PERSON, one) for one in asks),
        *((Word.SNAPSHOTTING, one) for one in snapshots),
        (_of_lag(to_kafka), f"source to Kafka: {to_kafka.text}"),
    ]
    if to_sink is not None:
        reasons.append((_of_lag(to_sink), f"Kafka to sink: {to_sink.text}"))
    if merge is not None and merge.alive and merge_sign is not None and (standstill := _standstill(now_ms, merge_sign)):
        reasons.append((Word.STALLED, standstill))
    worse = [one for one in reasons if one[0] is not Word.RUNNING]
    worse.sort(key=lambda one: -_WORST_LAST.index(one[0]))
    return Verdict(worse[0][0] if worse else Word.RUNNING, tuple(reason for _, reason in worse))


def _of_job(standing: Standing) -> Word:
    if standing.alive is False:
        return Word.DEAD
    if standing.state is JobState.UNKNOWN:
        return Word.UNKNOWN
    if standing.state is JobState.WAITING:
        return Word.STALLED
    return Word.BEHIND if standing.state is JobState.STARTING else Word.RUNNING


def _of_lag(lag: Lag) -> Word:
    if lag.seconds is None:
        return Word.UNKNOWN
    return Word.BEHIND if lag.seconds > BEHIND_S else Word.RUNNING


def _standstill(now_ms: int, sign: Sign) -> str:
    """Return for how long the batch runs, if that is far longer than the one before took; else ""."""
    since_ms, last_s = sign.batch.get("since_ms"), float(sign.batch.get("last_s") or 0.0)
    runs_s = 0.0 if since_ms is None else (now_ms - int(since_ms)) / 1000
    if runs_s < max(_STANDSTILL_S, _LONGER * last_s):
        return ""
    return f"merge job: batch {sign.batch.get('number')} has run for {runs_s:.0f} s, the one before took {last_s:.0f} s"


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
