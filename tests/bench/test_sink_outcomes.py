"""What the benchmark reads back of a sink, and that it notices one that is not as the source."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from bench import lake_rows, lake_source
from bench.benched_sinks import SINKS
from bench.lake_feed import sink_document
from bench.lake_source import FIRST_CHANGE, Sums
from bench.scene import BenchError
from bench.sink_outcomes import ChangelogOutcome, FilesOutcome, MirrorOutcome, Step, events_of
from schemas.identity import TableName
from schemas.overriding import override
from spark_jobs.sinks.files.manifest import EventFile, Manifest, ManifestPart, Manifests
from tidemark.process import config
from tidemark.verify.delta_reader import DeltaReader

NAMES = ("id", "a", "b", "c", "_tm_op", "_tm_position")
Event = tuple[int, int, str, str, str, str]


def truth(events: Sequence[Event]) -> Sums:
    texts = ["|".join(map(str, event[:4])) for event in events]
    checksum = sum(zlib.crc32(text.encode()) for text in texts)
    return Sums(len(events), sum(event[0] for event in events), sum(event[1] for event in events), checksum)


def event(key: int, number: int, op: str, position: int) -> Event:
    return key, FIRST_CHANGE + number, f"change {number}", f"{number / 4:.2f}", op, f"{position:04}"


INSERTED = [event(key, key, "+I", key) for key in range(3)]
UPDATED = [event(1, 1, "-U", 10), event(1, 3, "+U", 10), event(2, 2, "-U", 12), event(2, 4, "+U", 12), event(3, 5, "+I", 11)]
FIRST_STEP = Step(0, 0, 3, truth(INSERTED), 3, 3)
SECOND_STEP = Step(3, 2, 1, truth([UPDATED[1], UPDATED[3], UPDATED[4]]), 4, 6)


def message(one: Event) -> bytes:
    data = dict(zip(NAMES[:3], one[:3], strict=True))
    text = json.dumps({"data": data, "op": one[4], "_tm_position": one[5], "_tm_source": "bench:a.b"})
    return text.replace("}", f', "c": {one[3]}, "h": null}}', 1).encode()


class Played(ChangelogOutcome):
    """A changelog of messages that a test gives."""

    def __init__(self, *steps: Sequence[Event]) -> None:
        super().__init__()
        self._steps = list(steps)

    @override
    def events(self) -> Iterator[pa.Table]:
        yield events_of([message(one) for one in self._steps.pop(0)])


def test_events_of_a_changelog_are_folded_step_by_step() -> None:
    outcome = Played(INSERTED, UPDATED)

    assert outcome.require(FIRST_STEP) == "3 events, folded to 3 rows by their sums"
    assert outcome.require(SECOND_STEP) == "5 events, folded to 3 rows by their sums"


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (UPDATED[:4], "the row kinds of this step"),
        ([*UPDATED, UPDATED[-1]], "the row kinds of this step"),
        ([*UPDATED[:3], event(2, 5, "+U", 12), UPDATED[4]], "the folded rows of this step"),
        ([*UPDATED[:3], event(1, 4, "+U", 13), UPDATED[4]], "the rows after the changes of this step"),
        ([*UPDATED[:2], event(0, 2, "-U", 12), *UPDATED[3:]], "the rows before the updates of this step"),
        ([*UPDATED[:4], event(3, 5, "+I", 2)], "an event has the position 0002"),
    ],
    ids=["lost", "doubled", "wrong", "of another key", "wrong before", "of an old position"],
)
def test_a_changelog_that_is_not_as_the_source_is_refused(events: Sequence[Event], words: str) -> None:
    outcome = Played(INSERTED, events)
    outcome.require(FIRST_STEP)

    with pytest.raises(BenchError, match=words):
        outcome.require(SECOND_STEP)


@pytest.mark.parametrize("other", [b"null", b'{"_tm_op": "floor", "_tm_position": "0009", "_tm_source": "s"}', b"{"])
def test_a_message_that_is_no_event_of_a_row_is_refused(other: bytes) -> None:
    class Other(Played):
        @override
        def events(self) -> Iterator[pa.Table]:
            yield events_of([*map(message, INSERTED), other])

    with pytest.raises(BenchError):
        Other().require(FIRST_STEP)


def test_files_count_when_a_manifest_names_them_and_once(tmp_path: Path) -> None:
    outcome, manifests = FilesOutcome(tmp_path), Manifests(tmp_path)
    kinds = (pa.int64(), pa.int32(), pa.string(), pa.string(), pa.string(), pa.string())
    for batch, events in enumerate((INSERTED, UPDATED)):
        columns = [pa.array(column, kind) for column, kind in zip(zip(*events, strict=True), kinds, strict=True)]
        table = pa.table(dict(zip(NAMES, columns, strict=True)))
        table = table.set_column(3, "c", table["c"].cast(pa.decimal128(12, 2)))
        pq.write_table(table, tmp_path / f"{batch}.parquet")
        pq.write_table(table, tmp_path / f"{batch}-of-a-dead-attempt.parquet")
        manifests.write(Manifest("q", batch, "parquet", (ManifestPart("bench:a.b", len(events), (EventFile(f"{batch}.parquet", 1),)),)))
        outcome.require((FIRST_STEP, SECOND_STEP)[batch])


def test_a_mirror_is_compared_by_the_rows_of_the_step_and_all_keys(tmp_path: Path) -> None:
    path = tmp_path / "shop" / "bench"
    lake_rows.append_base(path, 0, 20)
    rows = DeltaTable(str(path)).to_pyarrow_table()
    is_changed = pc.greater_equal(rows["id"], 15)
    a = pc.if_else(is_changed, pc.add(rows["a"], FIRST_CHANGE), rows["a"]).cast(pa.int32())
    write_deltalake(str(path), rows.set_column(1, "a", a), mode="overwrite")
    of_step = lake_rows.sums_of(DeltaTable(str(path)).to_pyarrow_table().filter(is_changed))
    outcome = MirrorOutcome(DeltaReader(str(tmp_path)), TableName("shop", "bench"))

    assert outcome.require(Step(15, 5, 0, of_step, 20, 190)) == "20 rows, of them 5 by their sums"
    with pytest.raises(BenchError, match="the rows of this step are not as the source"):
        outcome.require(Step(16, 4, 0, of_step, 20, 190))
    with pytest.raises(BenchError, match="all rows are not as the source"):
        outcome.require(Step(15, 5, 1, of_step, 21, 210))


@pytest.mark.parametrize("name", ["delta", "iceberg", "kafka-changelog", "files"])
def test_the_settings_of_a_sink_are_accepted(name: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        opened = SINKS[name].opened(stack, tmp_path)
    document = {"name": "bench", "source": {"host": "db", "user": "u", "tables": ["a[.]b"]}}
    path = tmp_path / "tidemark.yaml"
    path.write_text(json.dumps(document | {"sinks": [sink_document(tmp_path / "sink", opened.settings)]}), encoding="utf-8")

    assert config.load(path, {}).sink.folder == str(tmp_path / "sink")


def test_a_database_has_its_folder_as_work() -> None:
    more = {"name": "postgresql", "type": "postgresql"}
    assert sink_document(Path("/w"), more) == {"name": "postgresql", "type": "postgresql", "work": "/w"}


def test_keys_of_a_step_are_all_different_and_new_ones_follow() -> None:
    rows, first, count = 490_000, 490_000, 490_000
    numbers = np.arange(first, first + count, dtype=np.int64)
    assert len(np.unique(numbers * lake_source.SPREAD % rows)) == count
    assert lake_source.following(rows, first + count, 10).key == "number + -490000"
