"""A source of chunks for tests of the merge job: what it has, and what was read and answered, are files.

The workers of Spark read it in processes of their own.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from schemas.loads import LoadAnswer
from schemas.markers import CloseMarker, LoadMarker
from schemas.settings import Settings
from spark_jobs.jobs.merge_job import MergeJob
from tests.merge.lake import Step, at, marker
from tests.merge.topics import Row, TableTopics

BLOCK_ROWS = 3
OF = "~"
"""Between a table and its window, where jobs have windows of several tables."""


@dataclass(frozen=True)
class FileSource:
    """The twin of the source. It can be pickled."""

    folder: Path

    def read(self, database: str, table: str, load: LoadMarker) -> Iterator[tuple[pa.Array, pa.Array]]:
        path = self.folder / f"reads.{load.window.rpartition(OF)[0]}"
        before = path.read_text().splitlines().count(f"{database}.{table} {load.window}") if path.exists() else 0
        with path.open("a") as log:
            log.write(f"{database}.{table} {load.window}\n")
        states = pickle.loads((self.folder / load.window).read_bytes())  # noqa: S301 - our own
        records, error = states[min(before, len(states) - 1)]
        for first in range(0, len(records), BLOCK_ROWS):
            keys, values = zip(*records[first : first + BLOCK_ROWS], strict=True)
            yield pa.array(keys, pa.binary()), pa.array(values, pa.binary())
        if error is not None:
            raise error

    def answer(self, answers: Iterable[LoadAnswer]) -> None:
        if (self.folder / "broken").exists():
            raise ConnectionError("the source does not answer")
        for one in answers:
            row_id, _, data = one.row
            with (self.folder / f"answers.{one.window.rpartition(OF)[0]}").open("a") as log:
                log.write(f"{row_id}\t{data}\n")


class Chunks:
    """The chunks that jobs of these settings are asked to load; with `of`, those of one table, whose windows are called by it."""

    def __init__(self, spark: SparkSession, settings: Settings, folder: Path, of: str = "") -> None:
        self._spark = spark
        self.settings = settings
        self._folder = folder
        self._of, self._prefix = of, f"{of}{OF}" if of else ""
        folder.mkdir(exist_ok=bool(of))

    def merge(self, on_step: Step = lambda *_: None) -> None:
        """Run the job until it has caught up."""
        opened = self.source
        MergeJob(self.settings, spark=self._spark, on_step=on_step, open_source=lambda _: opened).run(until_caught_up=True)

    @property
    def source(self) -> FileSource:
        """The source that a job opens."""
        return FileSource(self._folder)

    def has(self, window: str, topics: TableTopics, rows: Sequence[Row], low: int, error: Exception | None = None) -> None:
        """Have a SELECT of the window's chunk return these rows, and then raise an error if one is given."""
        self.has_records(window, [(topics.key(row), topics.value("r", None, row, at(low).text)) for row in rows], error=error)

    def has_records(self, window: str, *states: Sequence[tuple[bytes | None, bytes]], error: Exception | None = None) -> None:
        """Have a SELECT return these keys and values: those of the first state at first, then those of the next."""
        (self._folder / f"{self._prefix}{window}").write_bytes(pickle.dumps([(list(records), error) for records in states]))

    def ask(
        self, window: str, topics: TableTopics, rows: Sequence[Row], low: int, *, position: int | None = None,
        horizon: int | None = None, request: str = "r", chunk: int = 0, error: Exception | None = None, generation: int = 0,
    ) -> None:  # fmt: skip
        """Write the load marker of a window, whose SELECT returns these rows."""
        self.has(window, topics, rows, low, error)
        marker(
            topics, LoadMarker, low if position is None else position, low if horizon is None else horizon, window=f"{self._prefix}{window}",
            request=request, chunk=chunk, low=at(low), query=f"SELECT {chunk}", server="uuid",
            value_schema=topics.value_id, key_schema=topics.key_id, generation=generation,
        )  # fmt: skip

    def close(self, window: str, topics: TableTopics, position: int, horizon: int, *, request: str = "r", chunk: int = 0) -> None:
        """Write the close marker of a window that was loaded."""
        window = f"{self._prefix}{window}"
        marker(topics, CloseMarker, position, horizon, window=window, request=request, chunk=chunk, loaded=True)

    def answers(self) -> list[LoadAnswer]:
        """What was answered since the last time."""
        return [LoadAnswer.parse(*line.removeprefix(self._prefix).split("\t")) for line in self._lines("answers")]

    def reads(self) -> list[str]:
        """The windows whose rows were read since the last time."""
        return sorted(line.split(" ")[1].removeprefix(self._prefix) for line in self._lines("reads"))

    def breaks(self, *, broken: bool = True) -> None:
        """Have the source take no answers, or take them again."""
        mark = self._folder / "broken"
        mark.touch() if broken else mark.unlink()

    def _lines(self, name: str) -> list[str]:
        path = self._folder / f"{name}.{self._of}"
        found = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return found
