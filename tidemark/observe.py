"""How far everything has come, read from the outside: the state topic and the sink's progress file.

Neither the producer nor the merge job need answer for this; they may be down. What enters: settings. What
leaves: `Status`, a value.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from producer.kafka.client import client_config, opened, watermarks
from schemas import topics
from schemas.errors import PublishError, StateError
from schemas.kafka_security import client_options
from schemas.position import Position
from schemas.waiting import waiting

if TYPE_CHECKING:
    from schemas.settings import Settings

# Keys of the documents in the state topic, as `producer.kafka` and `producer.snapshot` write them.
OFFSET_KEY: Final = "offset"
TOPICS_PREFIX: Final = "topics/"
REQUEST_PREFIX: Final = "request/"
TABLE_PREFIX: Final = "table/"
CHILDREN_PREFIX: Final = "children/"
INEXACT_KEY: Final = "inexact"
NOT_FOLLOWED: Final = "foreign keys change its rows without logging them, and are not followed"
FOLLOWING: Final = "parents changed; their children are being read"
AUTOMATIC: Final = "automatic"
ANEW_PREFIX: Final = "anew-"
GONE: Final = "UNKNOWN_SCHEMA"
_BROKER_S: Final = 20.0
_READ_S: Final = 60.0
_NEWS_S: Final = 0.2
_STANDS_STILL_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The log offset committed last: everything before it is in Kafka.

    A restart reads on from `needed_file` and `needed_pos`, before that while XA transactions are prepared. `read_ms` is
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
    although it holds every change of the log, None where it does not; `skipped` why there is no mirror of it.
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

    @property
    def share(self) -> float | None:
        """The part of the snapshot that has been read, 0 to 1; None without an estimate."""
        if self.snapshot == "done":
            return 1.0
        if not self.rows_estimated:
            return None
        return min(1.0, self.rows_read / self.rows_estimated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Log, tables and sink at one moment."""

    read_ms: int
    log: LogStatus | None
    paused: bool
    tables: tuple[TableStatus, ...]
    sink_updated_ms: int | None
    caught_up: bool

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
    def sink_stands_still(self) -> bool:
        """Whether the log went on for more than a minute behind the sink's last batch, which has not got that.

        Every table is told of the log's position all the time, also where nothing of it changes.
        """
        if self.log is None or self.sink_updated_ms is None or self.applied is None:
            return False
        return self.applied < self.log.position and self.log.committed_ms - self.sink_updated_ms > _STANDS_STILL_MS


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
        self._partitions: set[int] = set()
        self._read_once = False

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
        """How far everything is now.

        Raises `PublishError` when Kafka cannot be reached, `StateError` when a document cannot be understood.
        """
        with waiting("kafka", self._settings.kafka.bootstrap_servers, f"records of {self._topic}"):
            self._follow()
        return status_of(self._documents, read_progress(self._settings), time.time_ns() // 1_000_000)

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
                    break  # a partition's end is told once, and again after each new record
                error = message.error()
                if error is None:
                    self._take(message.key(), message.value())
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
        if listed is None or listed.error is not None:
            return False
        places = [TopicPartition(self._topic, partition, OFFSET_BEGINNING) for partition in listed.partitions]
        for place in places:
            watermarks(self._consumer, place, _BROKER_S)  # its leader knows of it
        self._consumer.assign(places)
        self._partitions = set(listed.partitions)
        return True

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            return
        try:
            if value is None:
                self._documents.pop(key.decode(), None)
            else:
                self._documents[key.decode()] = json.loads(value)
        except ValueError as error:
            raise StateError(f"topic {self._topic} holds a record that is none of ours: {error}") from error


def read_progress(settings: Settings) -> Mapping[str, Any]:
    """The merge job's progress file; empty while there is none, or no sink."""
    if len(settings.sinks) != 1:
        return {}
    path = Path(settings.sink.progress_path.removeprefix("file://"))
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise StateError(f"{path} cannot be read: {error}") from error
    return document


def status_of(documents: Mapping[str, Any], progress: Mapping[str, Any], now_ms: int) -> Status:
    """What the documents of the state topic and the progress file say, put together."""
    try:
        return _status_of(documents, progress, now_ms)
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"the state of this name cannot be understood ({error!r}); was it written by another version?"
        ) from error


def _status_of(documents: Mapping[str, Any], progress: Mapping[str, Any], now_ms: int) -> Status:
    snapshots = _snapshots(documents)
    topics_of = [document for key, document in documents.items() if key.startswith(TOPICS_PREFIX)]
    names = {f"{document['database']}.{document['table']}" for document in topics_of}
    sink = progress.get("tables", {})
    inexact = _unread(documents, sink) | _inexact(documents)
    return Status(
        read_ms=now_ms,
        log=_log(documents.get(OFFSET_KEY)),
        paused=_paused(documents),
        tables=tuple(
            replace(
                _with_sink(snapshots.get(name, TableStatus(table=name)), sink.get(name, {})),
                inexact=inexact.get(name),
            )
            for name in sorted(names | set(snapshots) | set(sink))
        ),
        sink_updated_ms=progress.get("updated_ms"),
        caught_up=bool(progress.get("caught_up", False)),
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


def _unread(documents: Mapping[str, Any], sink: Mapping[str, Any]) -> dict[str, str]:
    """Why tables that were consistent once are to be read again, until what was read is in the sink."""
    unread: dict[str, str] = {}
    for task, request in _tasks(documents):
        table = task["table"]
        consistent_at = sink.get(table, {}).get("consistent_at")
        needed = request.get("origin") == AUTOMATIC or str(request.get("id", "")).startswith(ANEW_PREFIX)
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
    """Every table of every request, and the request, in order of arrival."""
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


def _position(text: str | None) -> Position | None:
    return None if text is None else Position.parse(text)
