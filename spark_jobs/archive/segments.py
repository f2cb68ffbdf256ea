"""The files of an archive: records in stream order enter, bytes leave, and the other way round.

    segment   records, the last of them a footer; then the offset of the footer, u64, and an end magic, u32
    record    magic u32, length u64, CRC-32 u32, payload of that length; all numbers are little-endian
    payload   kind, time in µs since 1970 i64, lengths of position u16 and note u32, then position, note and value

    kind      value                                                  note
    h         the first record: a byte of the version, then JSON
    a         an Avro schema: its id in the registry, u32, its text
    r         a change of a row: the value of its Kafka record       the header `tidemark.exact` of the record
    s         a statement: JSON of a `StatementEvent`
    f         JSON of a `SegmentFacts`

A schema is in each segment before the first row that needs it: a segment needs no other segment and no registry.

The checksum is the CRC-32 of zlib over the number of the segment, the offset of the record, the length and the payload. So the copy
of a record elsewhere, for example in a BLOB of a row, is never taken for a record. It is not CRC-32C, since no dependency of the
project has that in C. The version byte says which one it is.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar, Final, NamedTuple

from schemas.errors import ConfigError, DecodeError
from schemas.json_codec import Form, decode, encode

HEADER, SCHEMA, ROW, STATEMENT, FOOTER = b"h", b"a", b"r", b"s", b"f"
VERSION: Final = 1
MAGIC: Final = 0x7EA5_1DE5
_END_MAGIC: Final = 0x7EA5_0E4D
_HEAD: Final = struct.Struct("<IQI")
_FIELDS: Final = struct.Struct("<cqHI")
_COORDINATES: Final = struct.Struct("<QQQ")
_TRAILER: Final = struct.Struct("<QI")
_SCHEMA_ID: Final = struct.Struct("<I")
_MAGIC_BYTES: Final = struct.pack("<I", MAGIC)
_SEARCHED: Final = 1 << 20


class ArchivedRecord(NamedTuple):
    """A record of a segment; see the module for the value of each kind."""

    kind: bytes
    time_us: int
    position: str
    note: bytes
    value: bytes


@dataclass(slots=True, kw_only=True)
class SegmentFacts:
    """The changes of a segment: how many, and the first and last of their positions and times (µs since 1970).

    `opened_us` and `closed_us` are times of the clock of the writer.
    """

    JSON: ClassVar = Form(head=lambda _: {"v": VERSION})

    number: int
    opened_us: int
    closed_us: int = 0
    records: int = 0
    first: str = ""
    last: str = ""
    first_us: int = 0
    last_us: int = 0

    def count(self, record: ArchivedRecord) -> None:
        """Count a change."""
        position, time_us, is_first = record.position, record.time_us, not self.records
        self.records += 1
        self.first = position if is_first else min(self.first, position)
        self.first_us = time_us if is_first else min(self.first_us, time_us)
        self.last, self.last_us = max(self.last, position), time_us if is_first else max(self.last_us, time_us)


def segment_file(folder: Path, number: int) -> Path:
    """Return the file of a segment."""
    return folder / f"{number:012d}.segment"


def number_of(file: Path) -> int | None:
    """Return the number of a segment by its file; None for another file."""
    return int(file.stem) if file.suffix == ".segment" and file.stem.isdecimal() else None


def framed(number: int, offset: int, record: ArchivedRecord) -> bytes:
    """Return the bytes of a record at an offset of a segment."""
    position = record.position.encode()
    fields = _FIELDS.pack(record.kind, record.time_us, len(position), len(record.note))
    payload = b"".join((fields, position, record.note, record.value))
    return _HEAD.pack(MAGIC, len(payload), _checksum(number, offset, payload)) + payload


def header_record(task: str, facts: SegmentFacts) -> ArchivedRecord:
    """Return the first record of a segment."""
    document = {"task": task, "number": facts.number, "opened_us": facts.opened_us}
    return ArchivedRecord(HEADER, facts.opened_us, "", b"", bytes([VERSION]) + json.dumps(document).encode())


def schema_record(ident: int, text: str) -> ArchivedRecord:
    """Return the record of an Avro schema."""
    return ArchivedRecord(SCHEMA, 0, "", b"", _SCHEMA_ID.pack(ident) + text.encode())


def schema_of(record: ArchivedRecord) -> tuple[int, str]:
    """Return the id and the text of an Avro schema."""
    return _SCHEMA_ID.unpack_from(record.value)[0], record.value[_SCHEMA_ID.size :].decode()


def ending(offset: int, facts: SegmentFacts) -> bytes:
    """Return the bytes that end a segment of which the records take `offset` bytes."""
    footer = ArchivedRecord(FOOTER, facts.closed_us, "", b"", json.dumps(encode(facts)).encode())
    return framed(facts.number, offset, footer) + _TRAILER.pack(offset, _END_MAGIC)


def _checksum(number: int, offset: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(_COORDINATES.pack(number, offset, len(payload))))


class SegmentReader:
    """A reader of one segment, up to `size` bytes; None: the segment is closed. Use it in one thread, in a `with` block.

    Each record that is returned is a record that was written at its offset. `DecodeError`: a record is damaged, or the end is
    missing; with `skips_damage` they are passed over instead, and counted. `ConfigError`: a newer version wrote the segment.
    """

    def __init__(self, file: Path, number: int, size: int | None = None, *, skips_damage: bool = False) -> None:
        self._file = file
        self._number = number
        self._size = size
        self._skips_damage = skips_damage
        self.damages = 0
        """Parts of the file that were passed over."""

    def records(self) -> Iterator[tuple[int, ArchivedRecord]]:
        """Yield the records, but for the footer, each with the offset behind it."""
        try:
            stream = self._file.open("rb")
        except FileNotFoundError:
            self.note_damage(0, "the file is missing")
            return
        with stream:
            yield from self._read(stream)

    def note_damage(self, offset: int, reason: str) -> None:
        """Count a damage, or raise `DecodeError`."""
        if not self._skips_damage:
            message = f"{self._file}, offset {offset}: {reason}. To pass over it, give --skip-damaged"
            raise DecodeError(message)
        self.damages += 1

    def facts(self) -> SegmentFacts | None:
        """Return the footer of a closed segment; None if it is damaged."""
        with self._file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size < _TRAILER.size:
                return None
            stream.seek(size - _TRAILER.size)
            offset, magic = _TRAILER.unpack(stream.read(_TRAILER.size))
            record = self._record(stream, offset, size) if magic == _END_MAGIC and offset < size else None
        return decode(SegmentFacts, json.loads(record.value)) if record is not None and record.kind == FOOTER else None

    def _read(self, stream: BinaryIO) -> Iterator[tuple[int, ArchivedRecord]]:
        size = os.fstat(stream.fileno()).st_size
        end = size if self._size is None else min(self._size, size)
        offset, is_ended = 0, self._size is not None and self._size <= size
        while offset < end and not (is_ended and self._size is None):
            record = self._record(stream, offset, end)
            if record is None:
                self.note_damage(offset, "the record is damaged")
                offset = self._next_record(stream, offset + 1, end)
                continue
            offset = stream.tell()
            if record.kind == HEADER and record.value[0] > VERSION:
                raise ConfigError(f"{self._file} has version {record.value[0]}, and this one reads up to {VERSION}")
            if record.kind == FOOTER:
                is_ended = True
            else:
                yield offset, record
        if not is_ended:
            self.note_damage(end, "the file ends too early")

    def _record(self, stream: BinaryIO, offset: int, end: int) -> ArchivedRecord | None:
        """Return the record at an offset, with the stream behind it; None if it is damaged."""
        stream.seek(offset)
        head = stream.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return None
        magic, length, checksum = _HEAD.unpack(head)
        if magic != MAGIC or not _FIELDS.size <= length <= end - offset - _HEAD.size:
            return None
        payload = stream.read(length)
        if len(payload) < length or _checksum(self._number, offset, payload) != checksum:
            return None
        kind, time_us, position, note = _FIELDS.unpack_from(payload)
        at = _FIELDS.size + position
        return ArchivedRecord(
            kind, time_us, payload[_FIELDS.size : at].decode(), payload[at : at + note], payload[at + note :]
        )

    def _next_record(self, stream: BinaryIO, offset: int, end: int) -> int:
        """Return the offset of the first whole record from an offset on, else the end."""
        while offset < end:
            stream.seek(offset)
            part = stream.read(min(_SEARCHED, end - offset))
            at = part.find(_MAGIC_BYTES)
            if at < 0:
                offset += max(1, len(part) - len(_MAGIC_BYTES) + 1)
            elif self._record(stream, offset + at, end) is not None:
                return offset + at
            else:
                offset += at + 1
        return end
