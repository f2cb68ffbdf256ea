"""A changelog in files: `<target>/batch=<n>/<source table>/`, which a repeated attempt replaces until a manifest names it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from schemas.errors import SinkError
from schemas.identity import SourceTable, TableName, Target
from schemas.names import folder_name
from schemas.overriding import override
from spark_jobs.decode.record_columns import AFTER, POSITION
from spark_jobs.formats.event_texts import VALUE, EventSource, notice, texts
from spark_jobs.formats.row_kinds import notice_rows, table_rows
from spark_jobs.sinks.arrival import require_all
from spark_jobs.sinks.changelog_events import Appended, Events, in_order, notices_of
from spark_jobs.sinks.contract import REMEDY, ChangelogTarget, ChangelogWriter
from spark_jobs.sinks.files.manifest import FOLDER, EventFile, Manifest, ManifestPart, Manifests
from spark_jobs.sinks.own_target import OwnTarget
from spark_jobs.sinks.stamp import Stamp

PARQUET: Final = "parquet"
_EVENTS_OF_A_FILE: Final = 500_000
_BLOCK_BYTES: Final = 1 << 20
_BATCH: Final = re.compile(r"batch=\d+")


class FilesTarget(OwnTarget, ChangelogTarget):
    """The folder of one target."""

    def __init__(
        self, spark: SparkSession, path: Path, name: Target, tables: Sequence[SourceTable], query_id: str, form: str
    ) -> None:
        super().__init__(name, tables, query_id)
        self.spark = spark
        self.path = path
        self.form = form
        self._manifests = Manifests(path)

    @override
    def location(self) -> str:
        return str(self.path)

    @override
    def exists(self) -> bool:
        return self._manifests.newest() is not None

    @override
    def trust_again(self, batch_id: int) -> None:
        newest = self._newest()
        self.require_own(newest.query_id, newest.batch_id, batch_id)
        lost = next((part for part in newest.parts if part.events and not part.files), None)
        if lost is not None:  # by a version of this job that did not count what arrived
            lacks = f"has {lost.events} events of {lost.source} and no file"
            message = f"the manifest of batch {newest.batch_id} in {self.path} {lacks}"
            raise SinkError(f"{message}: {REMEDY}")
        for named in (file for part in newest.parts for file in part.files):
            file = self.path / named.path
            if not file.is_file() or file.stat().st_size != named.bytes:
                raise SinkError(f"{file}, which its manifest names, is gone or was replaced: {REMEDY}")

    @override
    def has_commit(self, batch_id: int) -> bool:
        newest = self._manifests.newest()
        return newest is not None and (newest.query_id, newest.batch_id) == (self.query_id, batch_id)

    @override
    def appended(self, table: SourceTable) -> Appended:
        newest = self._manifests.newest()
        return Appended() if newest is None else newest.appended.get(table.text, Appended())

    @override
    @contextmanager
    def commit(self, stamp: Stamp) -> Iterator[ChangelogWriter]:
        before = self._manifests.newest()
        if before is None:
            self._require_own_folder()
        writer = FilesWriter(self, before, stamp)
        yield writer
        if writer.manifest is not None:
            self._manifests.write(writer.manifest)

    def event_source(self, events: Events) -> EventSource:
        """Return what texts of events say of their source and their target."""
        is_shared = len(self.tables) > 1
        return EventSource(events.table, TableName.parse(self.name.name), events.keys, is_shared=is_shared)

    def _newest(self) -> Manifest:
        newest = self._manifests.newest()
        if newest is None:
            raise SinkError(f"there is no manifest in {self.path / FOLDER}: {REMEDY}")
        return newest

    def _require_own_folder(self) -> None:
        """Raise `SinkError` for a folder with files that are not of first batches which were cut off: nothing names those."""
        found = [one.name for one in self.path.iterdir()] if self.path.is_dir() else []
        others = sorted(name for name in found if name != FOLDER and _BATCH.fullmatch(name) is None)
        if others:
            raise SinkError(f"there is a folder {self.path} that this merge job has not written ({others[0]}): {REMEDY}")


class FilesWriter(ChangelogWriter):
    """The files of one batch in one target. `manifest` is what is to count at the end of the commit; None for nothing new."""

    def __init__(self, target: FilesTarget, before: Manifest | None, stamp: Stamp) -> None:
        self._target = target
        self._stamp = stamp
        self._batch = f"batch={stamp.batch_id}"
        self.manifest: Manifest | None = None
        fresh = Manifest(stamp.query_id, stamp.batch_id, target.form, appended={} if before is None else before.appended)
        self._so_far = before if before is not None and before.batch_id == stamp.batch_id else fresh

    @override
    def append(self, events: Events) -> None:
        so_far = self.manifest or self._so_far
        taken = sum(part.source == events.table.text for part in so_far.parts)
        folder = folder_name(events.table.text) + (f"-{taken}" if taken else "")
        path = self._target.path / self._batch / folder
        shutil.rmtree(path, ignore_errors=True)
        files = self._written(events, path)
        part = ManifestPart(events.table.text, events.count, files)
        self.manifest = replace(
            so_far,
            parts=(*so_far.parts, part),
            appended={**so_far.appended, events.table.text: events.until},
            stamp=json.loads(self._stamp.metadata),
        )

    def _written(self, events: Events, path: Path) -> tuple[EventFile, ...]:
        """Write the events, and return the files, durable, with their sizes."""
        notices = notices_of(events)
        if not events.count and not notices:
            (self._target.path / self._batch).mkdir(parents=True, exist_ok=True)
            return ()
        parts, counted = max(1, -(-events.count // _EVENTS_OF_A_FILE)), Observation()
        count = F.count(F.lit(1)).alias("count")
        if self._target.form == PARQUET:
            self._target.spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # INT96 ends in 2262 for many
            self._as_rows(events, notices, parts).observe(counted, count).write.parquet(str(path))
        else:
            lines = texts(events.rows, self._target.form, self._target.event_source(events)).select(VALUE, POSITION)
            if notices:
                more = [(notice(op, position, events.table.text, text), position) for op, position, text in notices]
                lines = in_order(lines, self._target.spark.createDataFrame(more, f"{VALUE} string, {POSITION} string"), parts)
            measured = lines.select(VALUE).coalesce(parts).observe(counted, count)
            measured.write.option("compression", "none").option("lineSep", "\n").text(str(path))
        files = [file for file in sorted(path.iterdir()) if file.name.startswith("part-")] if path.is_dir() else []
        written, found = int(counted.get.get("count", 0)), sum(map(_events_in, files))
        require_all(f"events to {path}", max(written, events.count + len(notices)), found)  # a change has one or two
        return tuple(_durable(file, self._target.path) for file in files)

    def _as_rows(self, events: Events, notices: Sequence[tuple[str, str, str | None]], parts: int) -> DataFrame:
        rows = table_rows(events.rows, events.table.text)
        if not notices:
            return rows.coalesce(parts)
        image = events.rows.schema[AFTER].dataType
        return in_order(rows, notice_rows(self._target.spark, image, notices, events.table.text), parts)


def _events_in(file: Path) -> int:
    """Return how many events a file has."""
    if file.suffix == f".{PARQUET}":
        return int(pq.read_metadata(file).num_rows)
    with file.open("rb") as opened:
        return sum(block.count(b"\n") for block in iter(partial(opened.read, _BLOCK_BYTES), b""))


def _durable(file: Path, root: Path) -> EventFile:
    """Have a file outlast a crash of the machine; return its path below the root and its size."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        return EventFile(file.relative_to(root).as_posix(), os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)
