"""The folder of a task with `target.type: file`: segments, and a manifest that says how much of them counts.

    <number>.segment   changes in stream order (`segments`)
    pause.json         why the task is paused, if it is
    manifest.json      the first segment, the open one with its size, and the state of each source; a checksum is on the second line
    lock               is locked by the process that writes

Replacing the manifest is the commit of changes and state: each change is there once. Its steps:

1. changes are appended to the open segment; one that is large or old enough is closed, and another opened;
2. the open segment is made durable;
3. the manifest is replaced (`replace_file`);
4. segments that retention no longer keeps, and that the manifest no longer names, are removed.

A start shortens the open segment to its size in the manifest, and removes segments that the manifest does not name.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final

import structlog

from schemas.errors import ConfigError, DecodeError, SinkError
from schemas.json_codec import Form, decode, encode
from schemas.settings.task_section import TaskTarget
from spark_jobs.archive.segments import (
    ArchivedRecord,
    SegmentFacts,
    SegmentReader,
    ending,
    framed,
    header_record,
    number_of,
    schema_record,
    segment_file,
)
from spark_jobs.store.durable_files import lock_folder, replace_file, sync_folder

log = structlog.get_logger()

_MANIFEST: Final = "manifest.json"
_LOCK_WAIT_S: Final = 60.0
_BUFFER_BYTES: Final = 1 << 20
_HOUR_US: Final = 3_600_000_000
_SECOND_US: Final = 1_000_000


@dataclass(slots=True, kw_only=True)
class ArchiveManifest:
    """The durable state of an archive: segments from `first` to the open one, of which `size` bytes count."""

    JSON: ClassVar = Form(head=lambda _: {"v": 1})

    task: str
    first: int = 1
    open: SegmentFacts = field(default_factory=lambda: SegmentFacts(number=1, opened_us=0))
    size: int = 0
    states: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def read(folder: Path) -> ArchiveManifest | None:
        """Return the manifest of a folder; None without one. `DecodeError` for a damaged one."""
        try:
            text = (folder / _MANIFEST).read_bytes()
        except FileNotFoundError:
            return None
        document, _, checksum = text.partition(b"\n")
        if checksum.strip() != b"%08x" % zlib.crc32(document):
            message = f"{folder / _MANIFEST} is damaged: put it back from a copy of the folder"
            raise DecodeError(message)
        return decode(ArchiveManifest, json.loads(document))

    def write(self, folder: Path) -> None:
        """Replace the manifest of a folder."""
        document = json.dumps(encode(self)).encode()
        replace_file(folder / _MANIFEST, b"%b\n%08x\n" % (document, zlib.crc32(document)))


class Archive:
    """The writer of an archive. Use it in one thread. `OSError` if the disk refuses."""

    def __init__(
        self, target: TaskTarget, task: str, clock: Callable[[], float] = time.time, lock_wait_s: float = _LOCK_WAIT_S
    ) -> None:
        self.task = task
        self.epoch = 0
        self._target = target
        self.folder = Path(target.path or "")
        self._clock = clock
        self._lock_wait_s = lock_wait_s
        self._locks = ExitStack()
        self._manifest: ArchiveManifest | None = None
        self._stream: BinaryIO | None = None
        self._schemas: set[int] = set()  # that the open segment has

    def close(self) -> None:
        """Give the folder up."""
        self.abandon()
        self.epoch = 0
        self._locks.close()

    def require_usable(self, source: str, server: str) -> None:  # noqa: ARG002 - as of a database
        """Raise `ConfigError` if the folder cannot be made."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"target.path: cannot make the folder {self.folder}: {error.strerror}") from error

    def take_over(self) -> None:
        """Lock the folder. `SinkError`: another process writes to it. `ConfigError`: it is of another task."""
        self._locks.enter_context(lock_folder(self.folder, self._lock_wait_s))
        manifest = ArchiveManifest.read(self.folder)
        if manifest is not None and manifest.task != self.task:
            message = f"target.path: {self.folder} has the files of task {manifest.task}; give this task another folder"
            raise ConfigError(message)
        self.epoch = 1

    def state_documents(self) -> Mapping[str, Any]:
        """Return the document of each source."""
        return dict(self._opened().states)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the changes that were appended, and the state of the block, together."""
        self._opened()
        try:
            yield
            self._commit()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Forget changes that are not committed: the next use reads the manifest again."""
        self._manifest = None
        self._schemas.clear()
        stream, self._stream = self._stream, None
        if stream is not None:
            with suppress(OSError):
                stream.close()

    def put_document(self, source: str, document: Any) -> None:
        """Write the document of a source, within a transaction."""
        self._opened().states[source] = document

    def append(self, record: ArchivedRecord) -> None:
        """Append a change; the next transaction commits it."""
        manifest = self._with_room()
        self._write(manifest, record)
        manifest.open.count(record)

    def append_row(self, record: ArchivedRecord, schema_id: int, text_of: Callable[[int], str]) -> None:
        """Append a change of a row; before the first one of its schema in a segment, also the schema."""
        manifest = self._with_room()
        if schema_id not in self._schemas:
            self._write(manifest, schema_record(schema_id, text_of(schema_id)))
            self._schemas.add(schema_id)
        self._write(manifest, record)
        manifest.open.count(record)

    # ---- segments

    def _with_room(self) -> ArchiveManifest:
        manifest = self._opened()
        if manifest.size >= self._target.segment_bytes:
            self._end_segment(manifest)
        return manifest

    def _write(self, manifest: ArchiveManifest, record: ArchivedRecord) -> None:
        stream = self._stream or self._begin_segment(manifest)
        data = framed(manifest.open.number, manifest.size, record)
        stream.write(data)
        manifest.size += len(data)

    def _begin_segment(self, manifest: ArchiveManifest) -> BinaryIO:
        file = segment_file(self.folder, manifest.open.number)
        self._stream = file.open("ab", _BUFFER_BYTES)
        if not manifest.size:
            sync_folder(self.folder)
            manifest.open.opened_us = self._now_us()
            self._write(manifest, header_record(self.task, manifest.open))
        return self._stream

    def _end_segment(self, manifest: ArchiveManifest) -> None:
        stream = self._stream or self._begin_segment(manifest)
        manifest.open.closed_us = self._now_us()
        stream.write(ending(manifest.size, manifest.open))
        self._sync()
        stream.close()
        self._stream = None
        self._schemas.clear()
        manifest.open = SegmentFacts(number=manifest.open.number + 1, opened_us=0)
        manifest.size = 0

    def _sync(self) -> None:
        if self._stream is not None:
            self._stream.flush()
            os.fsync(self._stream.fileno())

    def _now_us(self) -> int:
        return int(self._clock() * _SECOND_US)

    # ---- commit

    def _commit(self) -> None:
        manifest = self._opened()
        if manifest.size and self._now_us() - manifest.open.opened_us >= self._target.segment_s * _SECOND_US:
            self._end_segment(manifest)
        self._sync()
        expired = self._expired(manifest)
        manifest.first += len(expired)
        manifest.write(self.folder)
        for file in expired:
            file.unlink(missing_ok=True)

    def _expired(self, manifest: ArchiveManifest) -> list[Path]:
        """Return the closed segments, from the first on, that retention no longer keeps."""
        files: list[Path] = []
        if not self._target.retention_hours:
            return files
        before = self._now_us() - self._target.retention_hours * _HOUR_US
        for number in range(manifest.first, manifest.open.number):
            file = segment_file(self.folder, number)
            if file.exists() and _closed_us(file, number) > before:
                break
            files.append(file)
        return files

    # ---- start

    def _opened(self) -> ArchiveManifest:
        """Return the manifest, with the folder as it says."""
        if self._manifest is None:
            manifest = ArchiveManifest.read(self.folder) or ArchiveManifest(task=self.task)
            self._recover(manifest)
            self._manifest = manifest
        return self._manifest

    def _recover(self, manifest: ArchiveManifest) -> None:
        is_new = not (self.folder / _MANIFEST).exists()
        numbers = {number: file for file in self.folder.iterdir() if (number := number_of(file)) is not None}
        if is_new and numbers:
            message = f"{self.folder} has segments and no {_MANIFEST}: put it back from a copy, or give the task an empty folder"
            raise SinkError(message)
        for number, file in numbers.items():
            if not manifest.first <= number <= manifest.open.number or (number == manifest.open.number and not manifest.size):
                file.unlink()
        if is_new:
            manifest.write(self.folder)
        if manifest.size:
            self._shorten(segment_file(self.folder, manifest.open.number), manifest.size)

    def _shorten(self, file: Path, size: int) -> None:
        """Shorten the open segment to the size that counts. `SinkError` if it has fewer bytes."""
        actual = file.stat().st_size if file.exists() else 0
        if actual < size:
            message = f"{file} has {actual} bytes of the {size} that the manifest counts: put it back from a copy of the folder"
            raise SinkError(message)
        os.truncate(file, size)


def _closed_us(file: Path, number: int) -> int:
    facts = SegmentReader(file, number).facts()
    return facts.closed_us if facts is not None else file.stat().st_mtime_ns // 1000
