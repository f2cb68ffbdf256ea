"""What a sink has after a turn, read back and compared with the source, outside of what is measured.

A mirror is read by the `SinkReader` of its type, as `tidemark verify` reads it: the rows that the step changed have the sums of the
source's table, and every key is there once. Of a changelog the events since the turn before are read. Each key of a step changes
once, so the step is folded when every key has one row after its change, and every position is above those of the step before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from bench.lake_rows import SUMMED, sums_of
from bench.lake_source import FIRST_CHANGE, Sums
from bench.scene import BenchError
from kafkaio.committed_reader import SOON, CommittedReader
from kafkaio.slices import EARLIEST
from schemas.identity import TableName
from schemas.overriding import override
from schemas.settings import KafkaSettings
from spark_jobs.sinks.files.manifest import Manifests
from tidemark.verify.sink_reader import SinkReader

_OP, _POSITION = "_tm_op", "_tm_position"
_AFTER: Final = ("+I", "+U")
_KEPT: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("a", pa.int32()),
        ("b", pa.string()),
        ("c", pa.decimal128(12, 2)),
        (_OP, pa.string()),
        (_POSITION, pa.string()),
    ]
)
"""What is read of an event."""
_ROW: Final = pa.struct([field for field in _KEPT if field.name in SUMMED])
_JSON: Final = pj.ParseOptions(
    explicit_schema=pa.schema([("data", _ROW), ("op", pa.string()), (_POSITION, pa.string())]), unexpected_field_behavior="ignore"
)
_AT_ONCE: Final = 20_000
_SILENCE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Step:
    """What a step did: the number of its first change, its updates and inserts, and what the source has of them afterwards.

    `rows` and `ids` are number and sum of all keys that a mirror has then.
    """

    first: int
    updates: int
    inserts: int
    truth: Sums
    rows: int
    ids: int


class Outcome(ABC):
    """What one sink has made of the steps so far."""

    @abstractmethod
    def require(self, step: Step) -> str:
        """Return what was compared, in a few words; `BenchError` unless the sink has exactly this step, behind those before."""


class MirrorOutcome(Outcome):
    """The rows of a target, as verification reads them."""

    def __init__(self, reader: SinkReader, target: TableName) -> None:
        self._reader, self._target = reader, target

    @override
    def require(self, step: Step) -> str:
        keys: list[Any] = []
        changed: list[pa.RecordBatch] = []
        for batch in self._reader.rows(self._target).read(SUMMED):
            rows = batch.select(list(SUMMED))
            keys.append(rows["id"].to_numpy(zero_copy_only=False))
            changed.append(rows.filter(pc.greater_equal(rows["a"], FIRST_CHANGE + step.first)))
        if not keys:
            message = f"{self._target.plain} has no row"
            raise BenchError(message)
        require_equal(asdict(step.truth), asdict(sums_of(pa.Table.from_batches(changed))), "the rows of this step")
        require_keys(np.concatenate(keys), step)
        return f"{step.rows:,} rows, of them {step.truth.rows:,} by their sums"


class ChangelogOutcome(Outcome):
    """The events of a changelog, in which an update is two rows."""

    def __init__(self) -> None:
        self._inserted: list[Any] = []
        self._newest = ""

    @abstractmethod
    def events(self) -> Iterator[pa.Table]:
        """Yield the events that were committed since the call before, with the columns of `_KEPT`."""

    @override
    def require(self, step: Step) -> str:
        events = pa.concat_tables(list(self.events())).combine_chunks()
        found = dict(Counter(events[_OP].to_pylist()))
        wanted = {"+I": step.inserts, "-U": step.updates, "+U": step.updates}
        require_equal({name: count for name, count in wanted.items() if count}, found, "the row kinds of this step")
        after = events.filter(pc.is_in(events[_OP], pa.array(_AFTER)))
        distinct = pc.count_distinct(after["id"]).as_py()
        require_equal({"keys": after.num_rows}, {"keys": distinct}, "the rows after the changes of this step")
        require_equal(asdict(step.truth), asdict(sums_of(after)), "the folded rows of this step")
        before, updated = (pc.sum(self._of(events, kind)["id"]).as_py() for kind in ("-U", "+U"))
        require_equal({"keys": updated}, {"keys": before}, "the rows before the updates of this step")
        self._require_newer(after)
        self._inserted.append(self._of(events, "+I")["id"].to_numpy())
        require_keys(np.concatenate(self._inserted), step)
        return f"{events.num_rows:,} events, folded to {step.truth.rows:,} rows by their sums"

    @staticmethod
    def _of(events: pa.Table, kind: str) -> pa.Table:
        return events.filter(pc.equal(events[_OP], kind))

    def _require_newer(self, events: pa.Table) -> None:
        """Raise `BenchError` for an event at or below a position of the step before: then the sums were no fold."""
        span = pc.min_max(events[_POSITION]).as_py()
        if span["min"] <= self._newest:
            message = f"an event has the position {span['min']}, and one of the step before has {self._newest}"
            raise BenchError(message)
        self._newest = span["max"]


class FilesOutcome(ChangelogOutcome):
    """The Parquet files that manifests name."""

    def __init__(self, target: Path) -> None:
        super().__init__()
        self._target = target
        self._seen = -1

    @override
    def events(self) -> Iterator[pa.Table]:
        for manifest in Manifests(self._target).all():
            if manifest.batch_id > self._seen:
                self._seen = manifest.batch_id
                for name in (name for part in manifest.parts for name in (file.path for file in part.files)):
                    yield pq.ParquetFile(self._target / name).read(_KEPT.names).cast(_KEPT)


class TopicOutcome(ChangelogOutcome):
    """The committed messages of a topic in `changelog-json`, read from where the call before has ended."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self._kafka, self._topic = KafkaSettings(bootstrap_servers=servers), topic
        self._next: dict[tuple[str, int], int] = {}

    @override
    def events(self) -> Iterator[pa.Table]:
        with CommittedReader(self._kafka, "bench-outcome", {**SOON, "auto.offset.reset": "error"}, _SILENCE_S) as reader:
            partitions = reader.partitions(self._topic)
            reader.begin({one: self._next.get(one, EARLIEST) for one in partitions})
            values = (record.value or b"null" for record in reader.read_to(reader.ends(partitions)))
            while block := list(islice(values, _AT_ONCE)):
                yield events_of(block)
            self._next = dict(reader.reached)


def events_of(values: Sequence[bytes]) -> pa.Table:
    """Return messages of `changelog-json` as events, those of no row with NULLs; `BenchError` for what is no JSON of them."""
    options = pj.ReadOptions(block_size=16 << 20)
    try:
        read = pj.read_json(pa.BufferReader(b"\n".join(values)), parse_options=_JSON, read_options=options)
    except pa.ArrowInvalid as error:
        message = f"messages are no events of rows: {error}"
        raise BenchError(message) from error
    row = read["data"].combine_chunks()
    columns = [*(row.field(name) for name in SUMMED), read["op"], read[_POSITION]]
    return pa.table(dict(zip(_KEPT.names, columns, strict=True)), schema=_KEPT)


def require_keys(keys: np.ndarray[Any, Any], step: Step) -> None:
    """Raise `BenchError` unless there are as many keys as the step says, each once, with that sum."""
    found = {"rows": len(keys), "keys": len(np.unique(keys)), "sum of keys": int(keys.sum())}
    require_equal({"rows": step.rows, "keys": step.rows, "sum of keys": step.ids}, found, "all rows")


def require_equal(wanted: Any, found: Any, what: str) -> None:
    """Raise `BenchError` where a sink has something else than the source."""
    if wanted != found:
        message = f"{what} are not as the source: {found} instead of {wanted}"
        raise BenchError(message)
