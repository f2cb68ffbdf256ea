"""How far everything has come, read from the outside: the state topic, Kafka's end offsets, the sink's progress file.

Neither the producer nor the merge job need answer for this; they may be down. What enters: settings. What
leaves: `Status`, a value. Which words follow from the facts is decided in `schemas.liveness`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from producer.kafka.client import TopicAdmin, client_config, opened, watermarks
from schemas import topics
from schemas.errors import PublishError, StateError
from schemas.kafka_security import client_options
from schemas.liveness import (
    EVERY_S,
    SIGN_KEY,
    JobState,
    MergeFacts,
    ProducerFacts,
    Sign,
    Standing,
    machine,
    merge_state,
    producer_state,
)
from schemas.position import Position
from schemas.waiting import waiting

if TYPE_CHECKING:
    from schemas.settings import Settings

# Keys of the documents in the state topic, as `producer.kafka` and `producer.snapshot` write them.
OFFSET_KEY: Final = "offset"
_SCHEMAS: Final = topics.SCHEMA_DOCUMENTS.encode()
TOPICS_PREFIX: Final = "topics/"
REQUEST_PREFIX: Final = "request/"
TABLE_PREFIX: Final = "table/"
CHILDREN_PREFIX: Final = "children/"
INEXACT_KEY: Final = "inexact"
COVERAGE_KEY: Final = "coverage"
ASIDE_PREFIX: Final = "aside/"
NOT_FOLLOWED: Final = "foreign keys change its rows without logging them, and are not followed"
FOLLOWING: Final = "parents changed; their children are being read"
AUTOMATIC: Final = "automatic"
REPAIR_PREFIX: Final = "anew-"
GONE: Final = "UNKNOWN_SCHEMA"
_BROKER_S: Final = 20.0
_READ_S: Final = 60.0
_NEWS_S: Final = 0.2
_SETTLES_S: Final = 10.0
_LOOK_AGAIN_S: Final = 0.3
_NOT_DONE: Final = 0.99
_MOVED_S: Final = 15.0
_FLOCK: Final = "hhqqi4x" if struct.calcsize("l") == 8 else "hhlli"
_NO_OFFSET: Final = "the state topic of this name is missing or empty, so the tables in Kafka are not known"
_NOT_ASKED: Final = "Kafka was not asked"

_UNKNOWN: Final = Standing(JobState.UNKNOWN)

Ends = Mapping[str, Mapping[int, int]]
"""Topic → partition → offset, exclusive."""


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The log offset committed last: everything before it is in Kafka.

    A restart continues to read from `needed_file` and `needed_pos`, before that while XA transactions are prepared. `read_ms` is
    when the source committed the last transaction before it, or when we did where that is not known. `server` is whose log it is.
    """

    file: str
    pos: int
    gtid_set: str
    position: Position
    committed_ms: int
    needed_file: str
    needed_pos: int
    read_ms: int
    server: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """One table, on its way through the snapshot and in the sink.

    `snapshot` is the state of the table's newest snapshot request, None when there was none; `rows_read` of
    about `rows_estimated` have been read by it, which are not all that there are where it is `partial`: it has a
    condition. `consistent_at` is the position from which on the sink's
    table is a state the source was in, None before that. `inexact` says why the sink may differ from the source
    although it holds every change of the log, None where it does not; `skipped` why there is no mirror of it; `set_aside` why
    it is not published or not merged at the moment. `behind` counts its records in Kafka that are not merged; None: unknown.
    """

    table: str
    snapshot: str | None = None
    rows_read: int = 0
    rows_estimated: int | None = None
    error: str | None = None
    sink_rows: int | None = None
    applied: Position | None = None
    consistent_at: Position | None = None
    quarantined: int = 0
    inexact: str | None = None
    partial: bool = False
    skipped: str | None = None
    set_aside: str | None = None
    behind: int | None = None

    @property
    def is_consistent(self) -> bool:
        """Whether the sink's table is a state the source was in, and nothing says that it is not exact."""
        return self.consistent_at is not None and not (self.inexact or self.skipped or self.set_aside)

    @property
    def awaited(self) -> str:
        """Which rows of it are still on their way, though the sink has all changes of the log; "" for none."""
        if self.set_aside is not None:
            return f"it is set aside: {self.set_aside}"
        if self.snapshot in {"queued", "running", "paused"}:
            return f"its snapshot is {self.snapshot}"
        if self.inexact == FOLLOWING or (self.inexact is not None and self.snapshot == "done" and self.inexact != NOT_FOLLOWED):
            return self.inexact
        return ""

    @property
    def share(self) -> float | None:
        """The part of the snapshot that has been read, 0 to 1, and 1 when it is done only; None where the estimate says nothing."""
        if self.snapshot == "done":
            return 1.0
        if not self.rows_estimated:
            return None
        return min(_NOT_DONE, self.rows_read / self.rows_estimated)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFacts:
    """What was found out about the merge job besides its progress, as `schemas.liveness.MergeFacts` has it.

    `ends` are those of the tables' topics, `topics` the change and the snapshot topic of each table.
    """

    sign: Sign | None = None
    locked: bool | None = None
    is_moving: bool = False
    unreadable: str = ""
    topics: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    ends: Ends | None = None
    ends_unknown: str = _NOT_ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Log, tables and sink at one moment. `sign` is the producer's last liveness record, `merge` the state of the merge job."""

    read_ms: int
    log: LogStatus | None
    paused: bool
    tables: tuple[TableStatus, ...]
    sink_updated_ms: int | None
    sign: Sign | None = None
    sign_is_moving: bool = False
    merge: Standing = _UNKNOWN
    notes: tuple[str, ...] = ()
    last_batch_s: float | None = None

    @property
    def snapshot_running(self) -> bool:
        """Whether a table is queued or being read."""
        return any(table.snapshot in {"queued", "running", "paused"} for table in self.tables)

    @property
    def applied(self) -> Position | None:
        """The sink holds every change of every table up to here; None while a table has none applied."""
        positions = [table.applied for table in self.tables]
        if not positions or None in positions:
            return None
        return min(position for position in positions if position is not None)

    @property
    def behind(self) -> int | None:
        """Records in Kafka that are not merged; None where that is not known of a table, or of none."""
        counts = [table.behind for table in self.tables]
        if not counts or None in counts:
            return None
        return sum(count for count in counts if count is not None)

    def producer(self, behind_bytes: int | None = None) -> Standing:
        """Return the producer's state, given how much of the source's log is not in Kafka (None: unknown)."""
        facts = ProducerFacts(
            now_ms=self.read_ms,
            started=self.log is not None,
            sign=self.sign,
            is_moving=self.sign_is_moving,
            behind_bytes=behind_bytes,
        )
        return producer_state(facts)


class Observer:
    """Reads the state topic once and keeps up with it from then on."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic = topics.state_topic(settings.name, settings.kafka.topic_delimiter)
        self._documents: dict[str, Any] = {}
        options = {
            **client_options(settings.kafka),
            "group.id": f"{settings.name}-status",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
        }
        self._consumer = opened(Consumer, client_config(settings.kafka.bootstrap_servers, options))
        self._admin = TopicAdmin(settings.kafka.bootstrap_servers, client_options(settings.kafka))
        self._partitions: set[int] = set()
        self._read_once = False
        self._moved: dict[str, tuple[int, float]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection up."""
        self._consumer.close()

    def read(self) -> Status:
        """Read how far everything is now.

        Raises `PublishError` when Kafka cannot be reached, `StateError` when a document cannot be understood.
        """
        return self._status(*self._ends())

    def settled(self) -> Status:
        """Return the same; a merge job that is behind gets a moment to merge what Kafka had when it was asked.

        While the source changes there is always a record that is some milliseconds old: that alone is not being behind. A job
        that looks silent gets a moment for its next sign: its machine may have another time.
        """
        names, ends = self._ends()
        status = self._status(names, ends)
        signs_by = time.monotonic() + EVERY_S + 1
        while _may_be_of_another_clock(status) and time.monotonic() < signs_by:
            time.sleep(_LOOK_AGAIN_S)
            self._follow()
            status = self._status(names, ends)
        patience_s = 2 * (self._settings.spark.trigger_s + (status.last_batch_s or 0.0)) + 1
        deadline = time.monotonic() + min(_SETTLES_S, patience_s)
        while status.merge.state is JobState.CATCHING_UP and time.monotonic() < deadline:
            time.sleep(_LOOK_AGAIN_S)
            status = self._status(names, ends)
        return status

    def _ends(self) -> tuple[dict[str, tuple[str, str]], Ends]:
        """Return the topics of every table, and where they end now: to be asked for before the progress is read."""
        with waiting("kafka", self._settings.kafka.bootstrap_servers, f"records of {self._topic}"):
            self._follow()
            names = {name: self._topics_of(*table) for name, table in _tables_by_name(self._documents).items()}
            return names, self._admin.readable_ends(topic for both in names.values() for topic in both)

    def _status(self, names: Mapping[str, tuple[str, str]], ends: Ends) -> Status:
        facts = replace(sink_facts(self._settings), topics=names, ends=ends, ends_unknown="")
        try:
            progress = read_progress(self._settings)
        except StateError as error:
            progress, facts = {}, replace(facts, unreadable=str(error))
        facts = replace(facts, is_moving=self._is_moving("merge", facts.sign))
        status = status_of(self._documents, progress, time.time_ns() // 1_000_000, facts)
        return replace(status, sign_is_moving=self._is_moving("producer", status.sign))

    def _is_moving(self, job: str, sign: Sign | None) -> bool:
        """Return whether a new sign of a job came while we looked, a moment ago."""
        if sign is None:
            return False
        now = time.monotonic()
        at_ms, moved_s = self._moved.get(job, (sign.at_ms, float("-inf")))
        if sign.at_ms != at_ms:
            moved_s = now
        self._moved[job] = sign.at_ms, moved_s
        return now - moved_s < _MOVED_S

    def _topics_of(self, database: str, table: str) -> tuple[str, str]:
        name, delimiter = self._settings.name, self._settings.kafka.topic_delimiter
        return topics.change_topic(name, database, table, delimiter), topics.snapshot_topic(name, database, table, delimiter)

    def _follow(self) -> None:
        """Take in the state topic up to its committed end."""
        try:
            if not self._partitions and not self._assign():
                return
            waiting = set(self._partitions)
            deadline = time.monotonic() + (_NEWS_S if self._read_once else _READ_S)
            while waiting and (left := deadline - time.monotonic()) > 0:
                message = self._consumer.poll(left)
                if message is None:
                    break  # a partition's end is reported once, and again after each new record
                error = message.error()
                if error is None:
                    self._apply(message.key(), message.value())
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    waiting.discard(message.partition())
                else:
                    raise KafkaException(error)
            if waiting and not self._read_once:
                raise StateError(f"topic {self._topic} could not be read to its end in {_READ_S:g} s")
            self._read_once = True
        except KafkaException as error:
            raise PublishError(f"topic {self._topic} cannot be read: {error.args[0].str()}") from error

    def _assign(self) -> bool:
        """Begin at the topic's start; False while there is no such topic."""
        listed = self._consumer.list_topics(self._topic, timeout=_BROKER_S).topics.get(self._topic)
        if listed is None or (listed.error is not None and listed.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART):
            return False
        if listed.error is not None:  # no right to describe it, no leader: that says nothing of what is in it
            raise KafkaException(listed.error)
        assigned = [TopicPartition(self._topic, partition, OFFSET_BEGINNING) for partition in listed.partitions]
        for topic_partition in assigned:
            watermarks(self._consumer, topic_partition, _BROKER_S)  # its leader knows of it
        self._consumer.assign(assigned)
        self._partitions = set(listed.partitions)
        return True

    def _apply(self, key: bytes | None, value: bytes | None) -> None:
        if key is None or key.startswith(_SCHEMAS):  # large, and nothing a status reports
            return
        try:
            if value is None:
                self._documents.pop(key.decode(), None)
            else:
                self._documents[key.decode()] = json.loads(value)
        except ValueError as error:
            raise StateError(f"topic {self._topic} holds a record that is none of ours: {error}") from error


def read_progress(settings: Settings) -> Mapping[str, Any]:
    """Read the merge job's progress file; empty while there is none, or no sink."""
    if len(settings.sinks) != 1:
        return {}
    path = Path(settings.sink.progress_path)
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise StateError(f"{path} cannot be read: {error}") from error
    return document


def _may_be_of_another_clock(status: Status) -> bool:
    """Return whether one more sign would prove a job alive that looks silent, or whose sign comes from the future."""
    return any(one.needs_sign for one in (status.merge, status.producer()))


def sink_facts(settings: Settings) -> SinkFacts:
    """Return the merge job's liveness record and lock, as far as this machine sees them."""
    if len(settings.sinks) != 1:
        return SinkFacts(unreadable="the settings have no sink" if not settings.sinks else "the settings have several sinks")
    service = Path(settings.sink.service_path)
    try:
        sign = Sign.from_json(json.loads((service / "alive.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        sign = None
    except (OSError, ValueError, KeyError, TypeError) as error:
        return SinkFacts(unreadable=f"{service / 'alive.json'} cannot be read: {error}")
    is_here = sign is None or sign.machine == machine()  # a lock is known to the kernel that gave it
    return SinkFacts(sign=sign, locked=is_locked(service / "lock") if is_here else None)


def is_locked(path: Path) -> bool | None:
    """Return whether another process has locked a file; None where there is none, or it cannot be opened. Locks nothing."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))[0]
    except OSError:
        return None
    finally:
        os.close(file)
    return bool(kind != fcntl.F_UNLCK)


def status_of(
    documents: Mapping[str, Any], progress: Mapping[str, Any], now_ms: int, facts: SinkFacts | None = None
) -> Status:
    """Return what the documents of the state topic, the progress file and the facts say, put together."""
    try:
        return _status_of(documents, progress, now_ms, facts or SinkFacts())
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"the state of this name cannot be understood ({error!r}); was it written by another version?"
        ) from error


def _status_of(documents: Mapping[str, Any], progress: Mapping[str, Any], now_ms: int, facts: SinkFacts) -> Status:
    snapshots = _snapshots(documents)
    sink = progress.get("tables", {})
    incomplete = {name: document["incomplete"] for name, document in sink.items() if document.get("incomplete")}
    inexact = incomplete | _unread(documents, sink) | _inexact(documents) | _lacking(sink)
    aside = {
        f"{one['database']}.{one['table']}": _reason(one, "producer")
        for key, one in documents.items()
        if key.startswith(ASIDE_PREFIX)
    }
    tables = tuple(
        replace(
            _with_sink(snapshots.get(name, TableStatus(table=name)), sink.get(name, {})),
            inexact=inexact.get(name),
            set_aside=aside.get(name) or _reason(sink.get(name, {}).get("set_aside")),
            behind=_behind(facts, name, sink.get(name, {})),
        )
        for name in sorted(set(_tables_by_name(documents)) | set(snapshots) | set(sink) | set(aside))
    )
    behind, unknown = _all_behind(documents, facts, tables)
    merge = MergeFacts(
        now_ms=now_ms,
        merged=bool(progress),
        unreadable=facts.unreadable,
        sign=facts.sign,
        locked=facts.locked,
        is_moving=facts.is_moving,
        behind=behind,
        behind_unknown=unknown,
        set_aside=tuple(table.table for table in tables if table.set_aside is not None),
    )
    return Status(
        read_ms=now_ms,
        log=_log(documents.get(OFFSET_KEY)),
        paused=_paused(documents),
        tables=tables,
        sink_updated_ms=progress.get("updated_ms"),
        sign=None if SIGN_KEY not in documents else Sign.from_json(documents[SIGN_KEY]),
        merge=merge_state(merge),
        notes=_notes(documents),
        last_batch_s=None if facts.sign is None else facts.sign.batch.get("last_s"),
    )


def _notes(documents: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the settings want captured and the source did not show at the producer's start, nor the log since."""
    known, document = _tables_by_name(documents), documents.get(COVERAGE_KEY, {})
    notes = [
        f"source.tables: {pattern!r}: {reason}"
        for pattern, reason in document.get("unmatched", {}).items()
        if not any(re.fullmatch(pattern, name, re.IGNORECASE) for name in known)
    ]
    notes += [f"{table}: may not be read: GRANT SELECT ON {table}" for table in document.get("unreadable", [])]
    if document.get("captured") == 0 and len(notes) == len(document["unmatched"]):  # and none came since
        notes.append("no table is captured: nothing is published or merged")
    return tuple(notes)


def _tables_by_name(documents: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Database and name of every table that has topics, by `database.table`."""
    found = [document for key, document in documents.items() if key.startswith(TOPICS_PREFIX)]
    return {f"{one['database']}.{one['table']}": (one["database"], one["table"]) for one in found}


def _all_behind(
    documents: Mapping[str, Any], facts: SinkFacts, tables: tuple[TableStatus, ...]
) -> tuple[dict[str, int] | None, str]:
    """Per table the records that are not merged; None with the reason where that is not known of one."""
    if facts.ends is None:
        return None, facts.ends_unknown
    if OFFSET_KEY not in documents:
        return None, _NO_OFFSET
    unknown = [table.table for table in tables if table.behind is None and table.table in _tables_by_name(documents)]
    if unknown:
        return None, f"Kafka has no topics of {', '.join(unknown[:3])}{', ...' if unknown[3:] else ''}"
    return {table.table: table.behind for table in tables if table.behind}, ""


def _behind(facts: SinkFacts, table: str, progress: Mapping[str, Any]) -> int | None:
    """Return records of a table in Kafka that are not merged; None where its topics' ends are not known."""
    both = facts.topics.get(table)
    if facts.ends is None or both is None or any(topic not in facts.ends for topic in both):
        return None
    merged = [progress.get(name) or {} for name in ("change_offsets", "snapshot_offsets")]
    return sum(
        max(0, end - int(done.get(str(partition), 0)))
        for topic, done in zip(both, merged, strict=True)
        for partition, end in facts.ends[topic].items()
    )


def _log(document: Mapping[str, Any] | None) -> LogStatus | None:
    if document is None:
        return None
    needed = document.get("resume") or document
    ts_us = (document.get("last") or {}).get("ts_us")
    return LogStatus(
        file=str(document["file"]),
        pos=int(document["pos"]),
        gtid_set=str(document["gtid_set"]),
        position=Position.parse(document["position"]),
        committed_ms=int(document["committed_ms"]),
        needed_file=str(needed["file"]),
        needed_pos=int(needed["pos"]),
        read_ms=int(document["committed_ms"]) if ts_us is None else int(ts_us) // 1000,
        server=str(document.get("server", "")),
    )


def _inexact(documents: Mapping[str, Any]) -> dict[str, str]:
    following = [document for key, document in documents.items() if key.startswith(CHILDREN_PREFIX)]
    return {
        **{document["table"]: FOLLOWING for document in following},
        **dict.fromkeys(documents.get(INEXACT_KEY, {"tables": []})["tables"], NOT_FOLLOWED),
    }


def _lacking(sink: Mapping[str, Any]) -> dict[str, str]:
    """Return tables that lack records which were read and could not be merged, and what brings them back."""
    return {name: str(document["lacks"]) for name, document in sink.items() if document.get("lacks")}


def _unread(documents: Mapping[str, Any], sink: Mapping[str, Any]) -> dict[str, str]:
    """Return why tables that were consistent once are to be read again, until what was read is in the sink."""
    unread: dict[str, str] = {}
    for task, request in _tasks(documents):
        table = task["table"]
        consistent_at = sink.get(table, {}).get("consistent_at")
        needed = request.get("origin") == AUTOMATIC or str(request.get("id", "")).startswith(REPAIR_PREFIX)
        if needed and consistent_at is not None:
            unread[table] = _why_unread(str(task["state"]), str(request.get("reason", "")))
        whole = task["state"] == "done" and task.get("condition") is None
        arrived = whole and consistent_at is not None and (task.get("last_close") or "") <= consistent_at
        if arrived or task.get("status") == GONE:
            unread.pop(table, None)
    return unread


def _why_unread(state: str, reason: str) -> str:
    if state in {"failed", "cancelled"}:
        return f"it had to be read again, which {'failed' if state == 'failed' else 'was stopped'}; ask for it: {reason}"
    return f"it is being read again: {reason}"


def _paused(documents: Mapping[str, Any]) -> bool:
    requests = (document for key, document in documents.items() if key.startswith(REQUEST_PREFIX))
    return any(document["state"] == "paused" for document in requests)


def _snapshots(documents: Mapping[str, Any]) -> dict[str, TableStatus]:
    """Per table, what its newest request has done."""
    return {document["table"]: _snapshot(document) for document, _ in _tasks(documents)}


def _tasks(documents: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return every table of every request, and the request, in order of arrival."""
    requests = {document["id"]: document for key, document in documents.items() if key.startswith(REQUEST_PREFIX)}
    tasks = [document for key, document in documents.items() if key.startswith(TABLE_PREFIX)]
    found = [(document, requests.get(document["request"], {})) for document in tasks]
    return sorted(found, key=lambda one: int(one[1].get("number", 0)))


def _snapshot(document: Mapping[str, Any]) -> TableStatus:
    estimate = document["estimate"]
    return TableStatus(
        table=document["table"],
        snapshot=str(document["state"]),
        rows_read=int(document["rows"]),
        rows_estimated=None if estimate is None else int(estimate),
        error=document["error"] or None,
        partial=document.get("condition") is not None,
    )


def _with_sink(table: TableStatus, document: Mapping[str, Any]) -> TableStatus:
    return replace(
        table,
        sink_rows=document.get("rows"),
        applied=_position(document.get("applied_position")),
        consistent_at=_position(document.get("consistent_at")),
        quarantined=int(document.get("quarantined", 0)),
        skipped=document.get("skipped"),
    )


def _reason(document: Mapping[str, Any] | None, job: str = "merge job") -> str | None:
    """Return why a job has set a table aside, and since when or from which position of the log on; None for one that is not."""
    if not document:
        return None
    since = document.get("since_ms")
    at = "" if since is None else f" since {datetime.fromtimestamp(int(since) / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"
    position = f" from position {document['position']}" if "position" in document else ""
    return f"{document['reason']} (by the {job}{at}{position})"


def _position(text: str | None) -> Position | None:
    return None if text is None else Position.parse(text)
