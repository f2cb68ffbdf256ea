"""How the records of a batch come to the workers that merge them: workers read Kafka themselves, or Spark does, and moves them.

Workers read most batches: that costs less CPU, and no JVM has to compile anything for it (docs/performance.md). Spark reads where
librdkafka is not there, or failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from kafkaio.slices import NUMBER, SNAPSHOT, Slice
from schemas.settings import KafkaSettings
from spark_jobs.kafka.read import read_slices
from spark_jobs.kafka.worker_options import worker_options
from spark_jobs.merge.table_input import TableInput
from spark_jobs.merge.worker_entries import Batches, with_own_records
from spark_jobs.merge.worker_task import KafkaReads

_BIN: Final = "bin"
Work = Callable[[Batches], Batches]


class RecordReader(Protocol):
    """The records of some tables, which are numbered as they were given."""

    def by_table(self, bins: Sequence[int], work: Work, schema: str) -> DataFrame:
        """Have a task for each bin work on all records of its tables; `bins` has the bin of each table."""
        ...

    def in_parts(self, tasks: int, work: Work, schema: str) -> DataFrame:
        """Have so many tasks at most work on about as many records each, of any table."""
        ...


class SparkReader:
    """Spark's source of Kafka reads, and a shuffle moves records to the task of their table."""

    def __init__(self, spark: SparkSession, kafka: KafkaSettings, inputs: Sequence[TableInput]) -> None:
        raw = read_slices(spark, kafka, [part for one in inputs for part in one.data_slices])
        codes = F.create_map(*[F.lit(item) for pair in _codes(inputs).items() for item in pair])
        code = F.element_at(codes, F.col("topic"))
        number, is_snapshot = F.shiftright(code, 1).alias(NUMBER), (code % 2 == 1).alias(SNAPSHOT)
        self._records = raw.select(number, is_snapshot, "partition", "key", "value")

    def by_table(self, bins: Sequence[int], work: Work, schema: str) -> DataFrame:  # noqa: D102 - see `RecordReader`
        together = self._records.coalesce(1) if max(bins) == 0 else moved(self._records, bins)
        return mapped(together, work, schema)

    def in_parts(self, tasks: int, work: Work, schema: str) -> DataFrame:  # noqa: D102 - see `RecordReader`
        return mapped(self._records.coalesce(tasks), work, schema)


class WorkerReader:
    """Workers read the slices of their tasks themselves."""

    def __init__(self, spark: SparkSession, kafka: KafkaSettings, inputs: Sequence[TableInput]) -> None:
        self._spark = spark
        self._inputs = inputs
        self._codes = _codes(inputs)
        self._options = worker_options(kafka)

    def by_table(self, bins: Sequence[int], work: Work, schema: str) -> DataFrame:  # noqa: D102 - see `RecordReader`
        slices: list[list[Slice]] = [[] for _ in range(max(bins) + 1)]
        for where, one in zip(bins, self._inputs, strict=True):
            slices[where].extend(one.data_slices)
        return self._mapped(slices, work, schema)

    def in_parts(self, tasks: int, work: Work, schema: str) -> DataFrame:  # noqa: D102 - see `RecordReader`
        all_slices = [part for one in self._inputs for part in one.data_slices]
        where = bins_of([part.size for part in all_slices], tasks)
        slices: list[list[Slice]] = [[] for _ in range(max(where) + 1)]
        for number, part in zip(where, all_slices, strict=True):
            slices[number].append(part)
        return self._mapped(slices, work, schema)

    def _mapped(self, slices: Sequence[Sequence[Slice]], work: Work, schema: str) -> DataFrame:
        numbers = self._spark.range(0, len(slices), 1, len(slices))
        return mapped(numbers, with_own_records(KafkaReads(self._options, self._codes, slices), work), schema)


def mapped(rows: DataFrame, work: Work, schema: str) -> DataFrame:
    """Return what workers make of rows."""
    return rows.mapInArrow(work, schema)  # type: ignore[arg-type]


def moved(rows: DataFrame, bins: Sequence[int]) -> DataFrame:
    """Return the rows of each table in the partition of its bin."""
    where = F.element_at(F.array(*[F.lit(item) for item in bins]), F.col(NUMBER) + 1)
    return rows.withColumn(_BIN, where).repartitionById(max(bins) + 1, F.col(_BIN)).drop(_BIN)


def bins_of(sizes: Sequence[int], most: int) -> list[int]:
    """Return a bin for each size, at most so many, of about the same sum: the largest first into the least."""
    count = max(1, min(most, len(sizes)))
    sums, chosen = [0] * count, [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        chosen[index] = sums.index(min(sums))
        sums[chosen[index]] += sizes[index] + 1
    return chosen


def _codes(inputs: Sequence[TableInput]) -> dict[str, int]:
    """Return a code for each topic: twice the number of the table, and one more for its snapshot topic."""
    return {
        topic: number * 2 + side
        for number, one in enumerate(inputs)
        for side, topic in enumerate((one.change_topic, one.snapshot_topic))
    }
