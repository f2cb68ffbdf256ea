"""Changes for a person or a program in Python: committed records of the change topics, decoded, as they come.

    from tidemark.api.change_reader import ChangeReader

    with ChangeReader("tidemark.yaml", tables=["shop.orders"], begin="earliest") as reader:
        for change in reader:
            print(change.op, change.key, change.after)

Of a transaction all records are there or none, and each once: the reader sees what was committed in Kafka alone. It has no group:
a program that is to continue where it ended keeps `change.partition` and `change.offset` with what it makes of them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from kafkaio.committed_reader import CommittedReader, CommittedRecord, Partition
from kafkaio.slices import EARLIEST
from schemas import topics
from schemas.applied.registry_access import RegistryAccess
from schemas.errors import DecodeError, PublishError
from schemas.settings import Settings
from tidemark.api.observe import Observer
from tidemark.api.record_decoding import Decoder
from tidemark.api.value_text import kinds_of
from tidemark.process import config
from tidemark.status.reckoning import tables_with_topics

_POLL_S: Final = 0.2
_LOOK_FOR_TOPICS_S: Final = 5.0
_PLAIN: Final = re.compile(r"[A-Za-z0-9-]+\.[A-Za-z0-9-]+")


@dataclass(frozen=True, slots=True)
class Change:
    """One record of a change topic.

    `op` is Debezium's: c, u, d, r (a row of a snapshot), t (the table was emptied). `before` and `after` are rows as the records
    have them, None where there is none; a flat row (`records.unwrap`) is `after`. `committed_ms` is the source's time, None where
    the record has none; `position` is text that sorts as the log does, "" for a row of a snapshot and for flat rows. `kinds` has
    Connect's names of columns' types: a date or time is a number in the row (`value_text` writes it).
    """

    table: str
    op: str
    key: Mapping[str, Any] | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    committed_ms: int | None
    position: str
    topic: str
    partition: int
    offset: int
    kinds: Mapping[str, str] = field(default_factory=dict, compare=False)


class ChangeReader:
    """An endless iterator of changes; use it in a `with` block, in one thread.

    `tables` are regular expressions on `database.table`, none for all. It begins behind what is there now (`latest`), at the oldest
    record that Kafka has (`earliest`), or at a time (Unix, seconds). A table that is new begins at its first record. `next_change`
    waits for a limited time only. Raises `PublishError` where Kafka cannot be reached, `DecodeError` and `RegistryError` where a
    record cannot be decoded, `ConfigError` for a pattern that is none.
    """

    def __init__(self, settings: Settings | str | Path, tables: Collection[str] = (), begin: str | float = "latest") -> None:
        self._settings = settings if isinstance(settings, Settings) else config.load(str(settings))
        self._tables = config.patterns_of(tables, re.IGNORECASE)
        self._begin = begin
        kafka, name = self._settings.kafka, self._settings.name
        self._decoder = Decoder(self._settings.format.registry, RegistryAccess.of(self._settings.format))
        self._pattern = re.compile(topics.change_topic_pattern(name, kafka.topic_delimiter))
        self._others = _topics_that_are_none(self._settings)
        self._reader = CommittedReader(kafka, f"{name}-changes")
        self._names: dict[str, str] = {}
        self._kinds: dict[int, tuple[Any, Mapping[str, str]]] = {}
        self._looked: float | None = None
        self._answered: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection up."""
        self._reader.close()

    def __iter__(self) -> Iterator[Change]:
        while True:
            change = self.next_change(_LOOK_FOR_TOPICS_S)
            if change is not None:
                yield change

    @property
    def topics(self) -> list[str]:
        """The topics that are read."""
        return sorted({topic for topic, _ in self._reader.reached})

    @property
    def unread(self) -> int:
        """How many records there are that were not read yet, as the brokers said with their last answers: at least so many."""
        return self._reader.unread

    @property
    def answered_s(self) -> float | None:
        """When Kafka has answered last, by the monotonic clock; None before it has. It is asked for topics every five seconds."""
        return self._answered

    def next_change(self, timeout_s: float) -> Change | None:
        """Return the next change, None when none came in that time."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._look_for_topics()
            left = deadline - time.monotonic()
            record = self._reader.next_record(max(0.0, min(left, _POLL_S)))
            if record is not None:
                self._answered = time.monotonic()
                if (change := self._change(record)) is not None:
                    return change
            elif left <= 0:
                return None

    def _look_for_topics(self) -> None:
        """Read topics that are new, too."""
        now = time.monotonic()
        if self._looked is not None and now - self._looked < _LOOK_FOR_TOPICS_S:
            return
        is_first = self._looked is None
        try:
            listed = self._reader.topics()
            self._looked = self._answered = time.monotonic()
            self._read_names(listed)
            wanted = [(name, number) for name in sorted(listed) if self._is_wanted(name) for number in listed[name]]
            new = [one for one in wanted if one not in self._reader.reached]
            if new:
                self._reader.begin(self._offsets(new, self._begin if is_first else "earliest"))
        except PublishError as error:
            raise PublishError(f"{error}; check kafka.bootstrap_servers") from error

    def _offsets(self, new: Collection[Partition], begin: str | float) -> Mapping[Partition, int]:
        if begin == "earliest":
            return dict.fromkeys(new, EARLIEST)
        if begin == "latest":
            return self._reader.ends(new)
        return self._reader.offsets_since(new, int(float(begin) * 1000))

    def _is_wanted(self, topic: str) -> bool:
        if not self._pattern.fullmatch(topic) or topic in self._others:
            return False
        return not self._tables or any(pattern.fullmatch(self._table_of(topic)) for pattern in self._tables)

    def _read_names(self, listed: Iterable[str]) -> None:
        """Ask the producer's state for the tables of new topics whose names do not say it: a `_` may be another character."""
        name, delimiter = self._settings.name, self._settings.kafka.topic_delimiter
        here = [topic for topic in listed if self._pattern.fullmatch(topic) and topic not in self._others]
        is_plain = delimiter == topics.DELIMITER
        if all(topic in self._names or (is_plain and _PLAIN.fullmatch(self._table_of(topic))) for topic in here):
            return
        with Observer(self._settings) as observer:
            known = tables_with_topics(observer.state())
        self._names |= {topics.change_topic(name, *table, delimiter): plain for plain, table in known.items()}

    def _table_of(self, topic: str) -> str:
        """Return the table of a topic; if the producer's state lacks it, with `_` for characters that Kafka does not allow."""
        if topic in self._names:
            return self._names[topic]
        delimiter = self._settings.kafka.topic_delimiter
        return ".".join(topic.removeprefix(topics.sanitise(self._settings.name) + delimiter).split(delimiter, 1))

    def _change(self, message: CommittedRecord) -> Change | None:
        """Return what a message says; None for a tombstone."""
        topic, partition, offset = message.topic, message.partition, message.offset
        try:
            key = _payload(self._decoder.decode(message.key))
            record = self._decoder.decode(message.value)
        except DecodeError as broken:
            raise DecodeError(f"{topic}[{partition}] offset {offset} cannot be decoded: {broken}") from broken
        value = _payload(record)
        if not isinstance(value, Mapping):
            return None
        change = _change_of(value, key if isinstance(key, Mapping) else None, self._table_of(topic), (topic, partition, offset))
        return replace(change, kinds=self._kinds_of(record["schema"]))

    def _kinds_of(self, schema: Any) -> Mapping[str, str]:
        """Return the kinds of a schema, which is one and the same object for all its records."""
        if schema is None:
            return {}
        if id(schema) not in self._kinds:
            self._kinds[id(schema)] = schema, kinds_of(schema)
        return self._kinds[id(schema)][1]


def _change_of(value: Mapping[str, Any], key: Mapping[str, Any] | None, table: str, where: tuple[str, int, int]) -> Change:
    source = value.get("source")
    if not isinstance(source, Mapping) or "op" not in value:
        return Change(table, str(value.get("__op") or "?"), key, None, value, _whole(value.get("__source_ts_ms")), "", *where)
    return Change(
        f"{source.get('db')}.{source.get('table')}",
        str(value["op"]),
        key,
        value.get("before"),
        value.get("after"),
        _whole(source.get("ts_ms")),
        _position(source.get("sequence")),
        *where,
    )


def _position(sequence: object) -> str:
    """Return the position in the log, as `source.sequence` has it: a text, or the JSON of a list with one."""
    return str(sequence).strip('[]"') if sequence else ""


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _payload(record: Any) -> Any:
    return record["payload"] if isinstance(record, Mapping) else record


def _topics_that_are_none(settings: Settings) -> frozenset[str]:
    """Return the topics whose names are as those of change topics, and are not."""
    name, delimiter = settings.name, settings.kafka.topic_delimiter
    found = {
        topics.state_topic(name, delimiter), topics.notifications_topic(name, delimiter), topics.transaction_topic(name, delimiter),
        topics.schema_change_topic(name),
    }  # fmt: skip
    if settings.source.signal_names is not None:
        found.add(topics.change_topic(name, *settings.source.signal_names, delimiter))
    return frozenset(found)
