"""Whether the metadata of an Iceberg table is what this query left, on documents written by hand: no JVM."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import SinkError
from spark_jobs.sinks.iceberg.snapshot_log import (
    QUERY_PROPERTY,
    REPLACES,
    STAMP,
    STEP,
    IcebergMetadata,
    SeenTable,
    has_commit_of,
    newest_stamp,
    read_metadata,
    require_nothing_put_back,
    require_own_table,
    table_exists,
)
from spark_jobs.sinks.stamp import Stamp


def stamp(batch: int, redrive: str = "", query: str = "q") -> Stamp:
    return Stamp(query, batch, "shop.t", {"rows": 1}, redrive)


def snapshot(number: int, of: Stamp | None, step: str = "merge", *, parent: int | None = -1, **summary: str) -> dict[str, Any]:
    """A snapshot whose id is ten times its number; its parent is the one before."""
    found = {"operation": "append", **summary} | ({} if of is None else {STAMP: of.metadata, STEP: step})
    document = {"snapshot-id": 10 * number, "sequence-number": number, "summary": found}
    before = 10 * (number - 1) if parent == -1 else parent
    return document if not before else document | {"parent-snapshot-id": before}


def written(path: Path, snapshots: Sequence[dict[str, Any]], current: int | None = None, **more: Any) -> IcebergMetadata:
    (path / "metadata").mkdir(parents=True, exist_ok=True)
    newest = snapshots[-1] if snapshots else {"snapshot-id": -1, "sequence-number": 0}
    document = {
        "table-uuid": "u",
        "current-snapshot-id": newest["snapshot-id"] if current is None else current,
        "last-sequence-number": newest["sequence-number"],
        "snapshots": list(snapshots),
        "properties": {QUERY_PROPERTY: "q"},
    }
    number = len(list((path / "metadata").glob("v*.metadata.json"))) + 1
    (path / "metadata" / f"v{number}.metadata.json").write_text(json.dumps(document | more), encoding="utf-8")
    found = read_metadata(path)
    assert found is not None
    return found


OURS = (snapshot(1, stamp(0)), snapshot(2, stamp(1)), snapshot(3, stamp(1), "floor"))
OTHER = {"operation": "replace"}
WHOLE = {"operation": "overwrite", "total-data-files": "1", "added-data-files": "1", "deleted-data-files": "4"}


def test_the_newest_metadata_counts_also_where_it_is_compressed(tmp_path: Path) -> None:
    assert not table_exists(tmp_path)
    assert read_metadata(tmp_path) is None
    written(tmp_path, OURS[:1])
    file = tmp_path / "metadata" / "v10.gz.metadata.json"
    text = json.dumps({"table-uuid": "z", "current-snapshot-id": -1})
    file.write_bytes(gzip.compress(text.encode()))
    (tmp_path / "metadata" / "5f5c.metadata.json").write_text("{", encoding="utf-8")  # of a commit that was cut off
    found = read_metadata(tmp_path)
    assert found == IcebergMetadata("z", None, 0, {}, {})
    file.write_bytes(b"{")
    with pytest.raises(SinkError, match=r"cannot be read \(v10\.gz"):
        read_metadata(tmp_path)


@pytest.mark.parametrize(
    ("snapshots", "last", "batch", "reason"),
    [
        (OURS, 1, 2, None),
        (OURS, 0, 1, None),
        (OURS, 2, 3, "last written by batch 1 of query q"),
        ((snapshot(1, stamp(1, query="p")),), 1, 2, "of query p"),
        ((snapshot(1, None),), -1, 0, "no merge job has written"),
        ((snapshot(1, None),), 3, 4, "is not the one this merge job wrote to in batch 3"),
        ((*OURS, snapshot(4, None, **OTHER)), 1, 2, None),
        ((*OURS, snapshot(4, None, **WHOLE)), 1, 2, "overwrite replaced the table"),
        ((*OURS, snapshot(4, None, parent=None)), 1, 2, "replaced the table"),
        ((*OURS, snapshot(4, stamp(2), "fill", parent=None, **{REPLACES: "30"})), 2, 3, None),
        ((*OURS, snapshot(4, stamp(1, "again"))), 1, 2, None),
        ((snapshot(9, None, **OTHER),), 3, 4, None),
    ],
    ids=[
        "as it was left", "an attempt at this batch", "put back", "another query", "foreign", "another table", "compacted", "emptied",
        "made again", "rewritten by us", "redriven", "our snapshots expired",
    ],
)  # fmt: skip
def test_a_table_is_trusted_or_refused_by_its_snapshots(
    tmp_path: Path, snapshots: Sequence[dict[str, Any]], last: int, batch: int, reason: str | None
) -> None:
    metadata = written(tmp_path, snapshots)
    if reason is None:
        require_own_table(tmp_path, metadata, "q", last, batch)
        return
    with pytest.raises(SinkError, match=reason):
        require_own_table(tmp_path, metadata, "q", last, batch)


def test_a_table_whose_snapshots_expired_is_nobody_elses(tmp_path: Path) -> None:
    metadata = written(tmp_path, (snapshot(9, None, **OTHER),))
    with pytest.raises(SinkError, match="is not the one"):
        require_own_table(tmp_path, metadata, "p", 3, 4)


SEEN = SeenTable("u", 30, 3)


@pytest.mark.parametrize(
    ("snapshots", "current", "uuid", "reason"),
    [
        (OURS, None, "u", None),
        ((*OURS, snapshot(4, None, **OTHER)), None, "u", None),
        ((snapshot(7, None, **OTHER),), None, "u", None),
        (OURS, None, "v", "another table replaced"),
        (OURS, 20, "u", "put back to an earlier snapshot"),
        (OURS[:2], None, "u", "put back to an earlier snapshot"),
        ((*OURS[:2], {**snapshot(3, None), "snapshot-id": 31}), None, "u", "replaced a commit of this job"),
        ((*OURS, snapshot(4, None, parent=None)), None, "u", "append replaced the table"),
    ],
    ids=["untouched", "compacted", "expired", "another", "rolled back", "an old copy", "overwritten", "made again"],
)
def test_what_happens_while_the_job_runs_is_seen(
    tmp_path: Path, snapshots: Sequence[dict[str, Any]], current: int | None, uuid: str, reason: str | None
) -> None:
    metadata = written(tmp_path, snapshots, current, **{"table-uuid": uuid})
    if reason is None:
        require_nothing_put_back(tmp_path, metadata, SEEN)
        return
    with pytest.raises(SinkError, match=reason):
        require_nothing_put_back(tmp_path, metadata, SEEN)


def test_a_batch_may_be_in_a_table_whose_snapshots_of_ours_were_all_expired(tmp_path: Path) -> None:
    """Without it a repeat would take the table for one that it has not written to."""
    expired = written(tmp_path, [snapshot(4, None, **OTHER)])
    assert has_commit_of(expired, "q", 1)
    assert not has_commit_of(expired, "another", 1)
    assert not has_commit_of(written(tmp_path, [snapshot(1, None, parent=None)]), "q", 1), "it has its first snapshot"


def test_a_step_is_done_where_the_rows_of_now_come_from_it(tmp_path: Path) -> None:
    rewritten = (*OURS, snapshot(4, stamp(1), "columns", parent=None, **{REPLACES: "30"}), snapshot(5, stamp(2, "again")))
    metadata = written(tmp_path, rewritten)
    assert [metadata.has_step(stamp(1), step) for step in ("merge", "floor", "columns", "sweep/id")] == [True, True, True, False]
    assert [metadata.has_step(stamp(2, redrive), "merge") for redrive in ("", "again", "other")] == [False, True, False]
    assert [has_commit_of(metadata, "q", batch) for batch in (0, 1, 2)] == [True, True, False]
    assert newest_stamp(metadata) == stamp(1).metadata
    rolled_back = written(tmp_path, OURS, 20)
    assert [rolled_back.has_step(stamp(1), step) for step in ("merge", "floor")] == [True, False]
