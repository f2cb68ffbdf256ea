"""The configured sink: settings enter, an open `Sink` leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from schemas.errors import ConfigError
from schemas.settings import Settings
from spark_jobs.merge.spark_checkpoint import SparkCheckpoint
from spark_jobs.sinks.contract import Sink
from spark_jobs.sinks.delta.delta_sink import DeltaSink
from spark_jobs.sinks.delta.writer_choice import WriterRules
from spark_jobs.sinks.files.files_sink import FilesSink
from spark_jobs.sinks.iceberg.iceberg_sink import IcebergSink
from spark_jobs.sinks.iceberg.iceberg_writes import FIXED
from spark_jobs.store.sink_layout import SinkLayout

QueryId = Callable[[], str]
"""Returns the id of the streaming query; it has one from its first batch on."""


def _delta(job: Settings, layout: SinkLayout, query_id: QueryId) -> Sink:
    sink = job.sink
    return DeltaSink(layout, query_id, WriterRules(sink.writer, sink.merge_memory_bytes, sink.deletion_vectors))


def _iceberg(job: Settings, layout: SinkLayout, query_id: QueryId) -> Sink:
    for number, transform in enumerate(job.sink.transforms):
        for key in sorted(FIXED.intersection(transform.options)):
            message = f"sinks: {job.sink.name}: transforms.{number}.options: {key} cannot be chosen, the sink depends on it"
            raise ConfigError(message)
    return IcebergSink(layout, query_id, job.sink.name)


def _relational(job: Settings, layout: SinkLayout, query_id: QueryId) -> Sink:
    with _needing_clients(job, "clients of MySQL and PostgreSQL", "spark"):
        from spark_jobs.sinks.relational.relational_sink import RelationalSink, database_of

    sink = job.sink
    database = database_of(sink.type, sink.url, sink.user, sink.password, sink.password_file, f"sinks.{sink.name}")
    return RelationalSink(layout, query_id, database, sink.name)


def _files(job: Settings, layout: SinkLayout, query_id: QueryId) -> Sink:
    return FilesSink(layout, query_id, job.sink.format or "parquet")


def _kafka(job: Settings, layout: SinkLayout, query_id: QueryId) -> Sink:
    with _needing_clients(job, "a client of Kafka", "kafka-sink"):
        from spark_jobs.sinks.kafka.kafka_sink import KafkaSink
    return KafkaSink(layout, query_id, job)


@contextmanager
def _needing_clients(job: Settings, clients: str, extra: str) -> Iterator[None]:
    """Raise `ConfigError` if the client of a server is not installed, which sinks of other types do not import."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("confluent_kafka", "psycopg", "pymysql"):
            raise
        message = f"sinks: {job.sink.name}: type: {job.sink.type} needs {clients}: pip install 'tidemark-cdc[{extra}]'"
        raise ConfigError(message) from None


OPENERS: Final[Mapping[str, Callable[[Settings, SinkLayout, QueryId], Sink]]] = {
    "delta": _delta,
    "iceberg": _iceberg,
    "postgresql": _relational,
    "mysql": _relational,
    "mariadb": _relational,
    "files": _files,
    "kafka": _kafka,
}
"""How the sink of each type is opened, by the settings of its job."""


def open_sink(job: Settings, layout: SinkLayout, checkpoint: SparkCheckpoint) -> Sink:
    """Return the only sink of the settings, for the query of this checkpoint; `ConfigError` for what its type does not have."""
    return OPENERS[job.sink.type](job, layout, lambda: checkpoint.query_id or "")
