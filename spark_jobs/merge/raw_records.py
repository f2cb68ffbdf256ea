"""The raw records of one table in one batch, and what can be said of them without decoding. Read from Kafka at each use."""

from __future__ import annotations

from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from schemas.settings import KafkaSettings
from spark_jobs.decode.avro_records import framed_parts
from spark_jobs.kafka.read import read_slices
from spark_jobs.merge.table_input import TableInput


class RawRecords:
    """The records of a table input. What is asked twice is computed once."""

    def __init__(self, spark: SparkSession, kafka: KafkaSettings, table_input: TableInput) -> None:
        self._spark = spark
        self._kafka = kafka
        self._input = table_input
        self.snapshot_topic = table_input.snapshot_topic

    def __bool__(self) -> bool:
        return bool(self._input.data_slices)

    @cached_property
    def frame(self) -> DataFrame:
        """The records: topic, partition, offset, key, value, timestamp."""
        return read_slices(self._spark, self._kafka, self._input.data_slices)

    @cached_property
    def frames(self) -> tuple[frozenset[bytes], frozenset[bytes]]:
        """The first bytes of the keys, and of the values: the ids of their schemas."""
        rows = self.frame.select(F.substring("key", 1, 5), F.substring("value", 1, 5)).distinct().collect()
        keys, values = (frozenset(bytes(row[part]) for row in rows if row[part] is not None) for part in (0, 1))
        return keys, values

    @cached_property
    def framed_parts(self) -> tuple[frozenset[str], dict[int, int]]:
        """Which of key and value some record has a schema id in, and where the records of the change topic end (exclusive)."""
        return framed_parts(self.frame, self.snapshot_topic)
