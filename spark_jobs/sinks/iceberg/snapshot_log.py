"""The metadata of an Iceberg table, read as a file: who made its snapshots, and whether the table is the one that this query left.

Each snapshot of ours carries the stamp (`sinks.stamp.Stamp`) and the step in its summary.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from schemas.errors import SinkError
from spark_jobs.sinks.contract import REMEDY
from spark_jobs.sinks.iceberg.metadata_files import newest_metadata
from spark_jobs.sinks.own_target import newest_own_commit
from spark_jobs.sinks.stamp import Stamp, is_of_batch, parsed_stamp

STAMP: Final = "tidemark"
"""The key of the stamp in the summary of a snapshot."""
STEP: Final = "tidemark.step"
"""The key of the step. A batch that is run again skips each step that it finds."""
REPLACES: Final = "tidemark.replaces"
"""The key of the snapshot that a rewritten table continues: Iceberg gives the first snapshot of a replaced table no parent."""
QUERY_PROPERTY: Final = "tidemark.query-id"
"""The property of a table that says which query made it."""

COMPACT: Final = "compact"
"""The step of a compaction, which carries on the stamp of the last batch."""

_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot: its number in the order of commits, the stamp if a merge job made it, and its step."""

    id: int
    sequence: int
    parent: int | None
    operation: str
    summary: Mapping[str, str]

    @property
    def stamp(self) -> Mapping[str, Any] | None:
        """The stamp; None if somebody else made the snapshot."""
        return parsed_stamp(self.summary.get(STAMP))

    def is_of(self, query_id: str, batch_id: int) -> bool:
        """Return whether a batch of a query made it. A write between two batches is of none."""
        return is_of_batch(self.stamp, query_id, batch_id)

    def is_step(self, stamp: Stamp, step: str) -> bool:
        """Return whether it is a step of the batch that a stamp names, also of the same write between two batches."""
        found = self.stamp if self.summary.get(STEP) == step else None
        if found is None:
            return False
        return (found["query_id"], found["batch_id"], found["table"], found.get("redrive", "")) == (
            stamp.query_id,
            stamp.batch_id,
            stamp.table,
            stamp.redrive,
        )

    @property
    def adds_files(self) -> bool:
        """Whether it adds files of rows or of deletes."""
        return any(int(self.summary.get(name, "0")) for name in ("added-data-files", "added-delete-files"))

    @property
    def leaves_no_file(self) -> bool:
        """Whether an overwrite or a delete removed every file that was there."""
        count = {name: int(self.summary.get(name, "0")) for name in ("total-data-files", "added-data-files", "deleted-data-files")}
        is_change = self.operation in ("overwrite", "delete")
        return is_change and count["deleted-data-files"] > 0 and count["total-data-files"] == count["added-data-files"]


@dataclass(frozen=True, slots=True)
class IcebergMetadata:
    """What the metadata of a table says. `current` is the snapshot of now; None for a table without one."""

    uuid: str
    current: int | None
    last_sequence: int
    properties: Mapping[str, str]
    snapshots: Mapping[int, Snapshot]

    def lineage(self) -> Iterator[Snapshot]:
        """Yield the snapshots that led to the rows of now, newest first, as far as they are kept."""
        seen: set[int] = set()
        number = self.current
        while number is not None and number in self.snapshots and number not in seen:
            seen.add(number)
            snapshot = self.snapshots[number]
            yield snapshot
            continued = snapshot.summary.get(REPLACES) if snapshot.stamp is not None else None
            number = snapshot.parent if snapshot.parent is not None or continued is None else int(continued)

    def has_step(self, stamp: Stamp, step: str) -> bool:
        """Return whether a step of the batch that a stamp names has taken effect."""
        return any(snapshot.is_step(stamp, step) for snapshot in self.lineage())


@dataclass(frozen=True, slots=True)
class SeenTable:
    """What a table was after our last step of this run."""

    uuid: str
    snapshot: int | None
    sequence: int


def table_exists(path: Path) -> bool:
    """Return whether there is an Iceberg table: a first write that was cut off leaves no metadata."""
    return newest_metadata(path) is not None


def read_metadata(path: Path) -> IcebergMetadata | None:
    """Return the newest metadata of a table; None if there is no table. `SinkError` if it cannot be read."""
    file = newest_metadata(path)
    if file is None:
        return None
    try:
        content = file.read_bytes()
        document = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
        current = document.get("current-snapshot-id", _NONE)
        snapshots = (_snapshot(item) for item in document.get("snapshots", ()))
        return IcebergMetadata(
            document["table-uuid"],
            None if current in (None, _NONE) else current,
            document.get("last-sequence-number", 0),
            document.get("properties", {}),
            {snapshot.id: snapshot for snapshot in snapshots},
        )
    except FileNotFoundError:  # removed meanwhile, with all of the table
        return None
    except (ValueError, KeyError, TypeError, EOFError) as error:
        message = f"the metadata of the table {path} cannot be read ({file.name}: {error}): {REMEDY}"
        raise SinkError(message) from error


def require_own_table(path: Path, metadata: IcebergMetadata, query_id: str, last_commit: int, batch_id: int) -> None:
    """Raise `SinkError` if another query has written a table, or if it was put back or forward, or replaced.

    Snapshots of others (a compaction, a change of a person) are looked through, unless they put back or replaced the whole table.
    """

    def stamped() -> Iterator[tuple[Snapshot, Mapping[str, Any] | None]]:
        for snapshot in metadata.lineage():
            stamp = snapshot.stamp
            if stamp is None:
                _require_no_replacement(path, metadata, snapshot)
            yield snapshot, stamp

    own = (query_id, last_commit, batch_id)
    newest_own_commit(str(path), stamped(), own, lambda: _is_ours_with_expired_snapshots(metadata, query_id))


def require_nothing_put_back(path: Path, metadata: IcebergMetadata, seen: SeenTable) -> None:
    """Raise `SinkError` if others put a table back, or replaced it, since a step of ours in this run."""
    if metadata.uuid != seen.uuid:
        message = f"another table replaced the table {path}: {REMEDY}"
        raise SinkError(message)
    lineage, known = list(metadata.lineage()), seen.snapshot
    if any(snapshot.sequence == seen.sequence and snapshot.id != known for snapshot in lineage):
        # A file system without a lock over processes lets one of two commits replace the other.
        message = f"a commit of somebody else replaced a commit of this job in the table {path}: {REMEDY}"
        raise SinkError(message)
    is_left = known in metadata.snapshots and all(snapshot.id != known for snapshot in lineage)
    if metadata.last_sequence < seen.sequence or is_left:
        newest = next((snapshot for snapshot in lineage if snapshot.stamp is None), None)
        if newest is not None:
            _require_no_replacement(path, metadata, newest)
        message = f"the table {path} was put back to an earlier snapshot while the merge job ran: {REMEDY}"
        raise SinkError(message)


def has_commit_of(metadata: IcebergMetadata, query_id: str, batch_id: int) -> bool:
    """Return whether a step of a batch is, or may be, in a table. A compaction is of the batch whose stamp it carries on.

    It may be where others have expired all snapshots of this query.
    """
    return is_forgotten(metadata, query_id) or any(snapshot.is_of(query_id, batch_id) for snapshot in metadata.lineage())


def is_forgotten(metadata: IcebergMetadata, query_id: str) -> bool:
    """Return whether others have expired all snapshots that say which steps of this query are in its table."""
    if any(snapshot.stamp is not None for snapshot in metadata.lineage()):
        return False
    return _is_ours_with_expired_snapshots(metadata, query_id)


def newest_stamp(metadata: IcebergMetadata) -> str | None:
    """Return the text of the newest stamp of a batch in a table; else that of a write between two batches, else None."""
    between: str | None = None
    for snapshot in metadata.lineage():
        stamp, text = snapshot.stamp, snapshot.summary.get(STAMP)
        if stamp is not None and "redrive" not in stamp:
            return text
        between = between or (None if stamp is None else text)
    return between


def _require_no_replacement(path: Path, metadata: IcebergMetadata, snapshot: Snapshot) -> None:
    is_new_table = snapshot.parent is None and len(metadata.snapshots) > 1 and snapshot.sequence > 1
    if is_new_table or snapshot.leaves_no_file:
        message = f"{snapshot.operation} replaced the table {path} (snapshot {snapshot.id}): {REMEDY}"
        raise SinkError(message)


def _is_ours_with_expired_snapshots(metadata: IcebergMetadata, query_id: str) -> bool:
    """Return whether this query made a table from whose history others have removed our snapshots."""
    oldest = None
    for snapshot in metadata.lineage():
        oldest = snapshot
    is_shortened = oldest is not None and oldest.parent is not None
    return is_shortened and metadata.properties.get(QUERY_PROPERTY) == query_id


def _snapshot(item: Mapping[str, Any]) -> Snapshot:
    summary = dict(item.get("summary", {}))
    return Snapshot(
        item["snapshot-id"], item.get("sequence-number", 0), item.get("parent-snapshot-id"), summary.pop("operation", ""), summary
    )
