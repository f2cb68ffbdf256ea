"""Mirrors in Kafka as verification reads them: the rows that the committed messages of a topic say, folded in their order.

The last message of each key counts: it is the row, or its delete. `MirrorRows` are those up to the ends that the partitions had
when they were opened. The topic is read once to find the last messages, and again for each scan. The keys of the rows are in memory
while it is opened, then eight bytes for each row. Names and types of the columns are those of the table that the sink keeps; its
rows are not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from kafkaio.committed_reader import CommittedReader, CommittedRecord, Partition
from kafkaio.slices import EARLIEST, Slice
from schemas.errors import KafkaAccessError, PublishError, SinkError, StateError
from schemas.overriding import override
from schemas.topics import target_topic
from tidemark.verify.column_rule import IncomparableError
from tidemark.verify.delta_reader import DeltaReader
from tidemark.verify.message_rows import Document, array_of, image_of
from tidemark.verify.sink_reader import POSITION_COLUMN, SOURCE_COLUMN, KeySpan, Near, SinkReader, TargetRows

if TYPE_CHECKING:
    from schemas.identity import TableName
    from schemas.settings import KafkaSettings, Settings

_BATCH_ROWS: Final = 8_192
_OFFSET_BITS: Final = 48
_LARGEST_ANSWER: Final = 1 << 30
"""Bytes of an answer of a broker: the sink writes messages of up to 192 MiB."""


class TopicUnreadableError(SinkError, OSError):
    """Kafka does not answer, refuses, or no longer has what the topic had when it was opened."""


class MirrorReader(SinkReader):
    """The mirrors of a sink of type kafka."""

    def __init__(self, settings: Settings) -> None:
        sink = settings.sink
        self._kafka, self._template = settings.kafka, sink.topic
        self._form = sink.format or "changelog-json"
        self._tables = DeltaReader(sink.path)

    @override
    def rows(self, target: TableName, source: str | None = None) -> MirrorRows:
        schema = self._tables.rows(target).schema
        topic = _Topic(self._kafka, target_topic(self._template, target.database, target.table))
        return MirrorRows(topic, self._form, schema, source)

    @override
    def targets(self) -> Iterator[TableName]:
        return self._tables.targets()


class MirrorRows(TargetRows):
    """The rows that one topic said when it was opened."""

    def __init__(self, topic: _Topic, form: str, schema: pa.Schema, source: str | None) -> None:
        super().__init__(source)
        self._topic, self._form, self._schema = topic, form, schema
        last: dict[bytes, int] = {}
        try:
            for message in topic.messages():
                key, value = message.key or b"", message.value
                if value is None or image_of(form, _document(value)) is None:
                    last.pop(key, None)
                else:
                    last[key] = _number(message)
        except ValueError as error:
            raise IncomparableError(f"topic {topic.name} has a message that is not of a mirror: {error}") from error
        self._last = np.sort(np.fromiter(last.values(), np.int64, len(last)))

    @property
    @override
    def schema(self) -> pa.Schema:
        return self._schema

    @override
    def total(self) -> int:
        return len(self._last)

    @override
    def scan(self, columns: Sequence[str], near: Near | None = None) -> Iterator[pa.RecordBatch]:
        documents: list[Document] = []
        found = 0
        for message in self._topic.messages():
            number = _number(message)
            at = int(np.searchsorted(self._last, number))
            if at == len(self._last) or int(self._last[at]) != number:
                continue
            found += 1
            document = _document(message.value or b"null")
            if near is None or _is_near(image_of(self._form, document) or {}, near):
                documents.append(document)
            if len(documents) == _BATCH_ROWS:
                yield self._batch(documents, columns)
                documents = []
        if documents:
            yield self._batch(documents, columns)
        if found != self.total():
            reason = f"topic {self._topic.name} had {self.total()} rows when it was opened, and {found} of them are still there"
            raise TopicUnreadableError(reason)

    def _batch(self, documents: Sequence[Document], columns: Sequence[str]) -> pa.RecordBatch:
        rows = [image_of(self._form, document) or {} for document in documents]
        own = {POSITION_COLUMN, SOURCE_COLUMN}
        fields = [self._schema.field(name) for name in columns]
        arrays = []
        for field in fields:
            values = [one.get(field.name) for one in (documents if field.name in own else rows)]
            try:
                arrays.append(array_of(values, field.type))
            except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, pa.ArrowException) as error:
                raise pa.ArrowInvalid(f"column {field.name} in topic {self._topic.name}: {error!r}") from error
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


class _Topic:
    """The committed messages of a topic up to the ends of its partitions, which are those of the first reading."""

    def __init__(self, kafka: KafkaSettings, name: str) -> None:
        self._kafka, self.name = kafka, name
        self._ends: dict[Partition, int] = {}

    def messages(self) -> Iterator[CommittedRecord]:
        """Yield the messages, those of each partition in their order.

        Raises `TopicUnreadableError`; `IncomparableError` if there is no topic, `KafkaAccessError` for wrong settings of TLS.
        """
        try:
            with CommittedReader(self._kafka, "tidemark-verify", {"receive.message.max.bytes": _LARGEST_ANSWER}) as reader:
                partitions = reader.partitions(self.name)
                if not partitions:
                    raise IncomparableError(f"there is no topic {self.name} yet")
                self._ends = self._ends or reader.ends(partitions)
                yield from reader.read_slices([Slice(*one, EARLIEST, end) for one, end in self._ends.items() if end > 0])
        except KafkaAccessError:
            raise
        except (PublishError, StateError) as error:
            raise TopicUnreadableError(str(error)) from error


def _document(value: bytes) -> Document:
    """Return a message, with all digits of its numbers. Raises `ValueError`."""
    found = json.loads(value, parse_float=Decimal)
    if not isinstance(found, dict):
        raise ValueError(f"it is {value[:100]!r}, no object")  # noqa: TRY004 - as for no JSON
    return found


def _number(message: CommittedRecord) -> int:
    """Return partition and offset as one number."""
    return (message.partition << _OFFSET_BITS) + message.offset


def _is_near(row: Mapping[str, Any], near: Near) -> bool:
    """Return whether a row may be one of those; one with another value than an integer is."""
    try:
        value = int(row[near.name])
    except (KeyError, TypeError, ValueError):
        return True
    if isinstance(near, KeySpan):
        return (near.first is None or value >= near.first) and (near.end is None or value < near.end)
    return value in near.values
