"""The work of a load alone, without Spark: what of a chunk it gives to the sink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.loads import LoadAnswer
from schemas.markers import LoadMarker
from schemas.overriding import override
from spark_jobs.arrow.decoder_plan import DecoderPlan
from spark_jobs.decode.record_columns import POSITION
from spark_jobs.merge.load_run import outcome
from spark_jobs.merge.worker_task import LoadDone, LoadTask, TombstonePaths
from spark_jobs.sinks.worker_writes import LoadedRows, WorkerLoad
from tests.arrow.test_arrow_decoder import PLAN, record
from tests.merge.lake import at

GIVEN: list[int] = []
LOW = at(100, 1)


class Noted(WorkerLoad):
    """A load that notes the keys of its rows."""

    @override
    def run(self, blocks: Iterator[pa.Table], version: str, kept: Path) -> LoadedRows:
        GIVEN.extend(key for rows in blocks for key in rows["id"].to_pylist())
        return LoadedRows(len(GIVEN))

    @override
    def replace_older(self, kept: Path) -> int:
        raise AssertionError

    @override
    def require_arrived(self, done: LoadedRows) -> None:
        raise AssertionError

    @override
    def has_written(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Rows:
    """A source whose chunks have these keys."""

    keys: tuple[int, ...]

    def read(self, database: str, table: str, load: LoadMarker) -> Iterator[tuple[pa.Array, pa.Array]]:
        keys, values = zip(*(record(key, "r", LOW.offset) for key in self.keys), strict=True)
        yield pa.array(keys, pa.binary()), pa.array(values, pa.binary())

    def answer(self, answers: Iterable[LoadAnswer]) -> None:
        raise AssertionError


def test_a_row_of_a_chunk_that_a_tombstone_has_overtaken_is_not_given_to_the_sink(tmp_path: Path) -> None:
    GIVEN.clear()
    dead = {"id": pa.array([1, 2], pa.int64()), POSITION: [at(150, 1).text, at(90, 1).text]}
    pq.write_table(pa.table(dead), tmp_path / "part.parquet")
    load = LoadMarker(
        position=LOW, horizon=LOW, partitions=1, table="shop.t", window="w", request="r", chunk=0, low=LOW, query="", server="", value_schema=1
    )  # fmt: skip
    tombstones = TombstonePaths((str(tmp_path),), 2, "", replaces=False)
    task = LoadTask(("shop", "t"), load, DecoderPlan.of(PLAN), PLAN.keys, tombstones, Noted(), tmp_path / "kept")
    done = outcome(task, Rows((1, 2, 3)))
    assert isinstance(done, LoadDone), done
    assert sorted(GIVEN) == [2, 3]
