"""The Spark session of a job: settings enter, a session with UTC and quiet logs leaves, for the merge job with Delta."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from schemas.errors import SinkError
from schemas.settings import SessionSettings, SparkSettings
from spark_jobs.jobs.jvm_start import ARGUMENTS, JvmStart
from spark_jobs.spark_errors import mute_raised_errors, reason_of

_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)\])?")
_TASK_FAILURES: Final = 3

# Corrupt bytes may announce a text of two gigabytes: refuse what no Kafka record has, before memory is allocated.
_LARGEST_VALUE_BYTES: Final = 256 * 1024 * 1024
_JAVA_OPTIONS: Final = " ".join(
    (
        f"-Dorg.apache.avro.limits.string.maxLength={_LARGEST_VALUE_BYTES}",
        f"-Dorg.apache.avro.limits.bytes.maxLength={_LARGEST_VALUE_BYTES}",
        "-Duser.timezone=UTC",
        # The default of a JVM without C2 is 48 MB; when that is full nothing is compiled any more.
        "-XX:ReservedCodeCacheSize=256m",
    )
)
_JAVA_OPTIONS_BY_KEY: Final[Mapping[str, str]] = {
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_LOG_SETTINGS} {_JAVA_OPTIONS}",
    # Not the log settings: a file of this machine need not be on theirs.
    "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
}

_CLASS_PATH: Final = "spark.driver.extraClassPath"
_ESCAPES: Final = {character: f"\\{character}" for character in "\\=: #!"} | {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_OF_A_MERGE: Final[Mapping[str, str]] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""Its jars have these classes."""
_FIXED: Final[Mapping[str, str]] = {
    # Casts and dates mean the same on every machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.python.daemon.module": f"{__package__}.worker_daemon",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    # Batches are many and small: what is planned once per partition or per table must stay cheap.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.databricks.delta.snapshotPartitions": "2",
    # Executors keep the consumer of a partition from batch to batch: to make one takes longer than what it reads of a small batch.
    # A table has eight partitions, and a cache that is smaller than a batch keeps nothing of use. A consumer may keep 1 MiB.
    "spark.kafka.consumer.cache.capacity": "256",
    # Kafka is read by the source of Spark's newer interface: the older one, which Spark prefers, makes two rows of each record,
    # one of them an object of Java, and the text of a program in each task.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    # OPTIMIZE leaves files alone that are large enough, and makes none that a MERGE would be slow to rewrite.
    "spark.databricks.delta.optimize.minFileSize": str(32 * 1024 * 1024),
    "spark.databricks.delta.optimize.maxFileSize": str(128 * 1024 * 1024),
    # HotSpot compiles no method of more bytecodes: what would be one method for a wide table is split instead.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def running_session() -> SparkSession | None:
    """Return a new session of the Spark that this process has; None where it has none."""
    if SparkContext._active_spark_context is None:  # noqa: SLF001 - there is no other way to know of one
        return None
    mute_raised_errors()
    return SparkSession.builder.getOrCreate().newSession()


def build_session(settings: SessionSettings, name: str, log_file: Path | None = None) -> SparkSession:
    """Return the session of one job, with a name like `merge shop`; `settings.conf` wins over all else, Java options are added.

    Spark logs to `log_file`, in a folder that exists; to stderr where none is named.

    `settings.jars` are the Kafka source, Avro and Delta, with no other way of finding them. `settings.conf`, which may
    have keys of an object store, is kept from the JVM's command line.
    """
    mute_raised_errors()
    names = {"spark.app.name": f"tidemark {name}", "spark.master": master_with_retries(settings.master)}
    conf = names | configuration(settings)
    start = JvmStart(settings.start_timeout_s, log_file)
    try:
        if SparkContext._gateway is None:  # noqa: SLF001 - there is no other way to know of a JVM
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the first python3 of the PATH, without our packages
            private = {key: conf.pop(key) for key in settings.conf if key not in _JAVA_OPTIONS_BY_KEY}
            with _in_a_file(private), _logging_to(log_file):
                start.launch(conf)
        with _own_interrupt(), start.bounded():
            return _with(SparkSession.builder, conf).getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        logged = "" if log_file is None or not log_file.exists() else f". Its log is {log_file}"
        message = f"Spark cannot be started: {reason_of(error)}; check spark.master, spark.jars and spark.conf{logged}"
        is_lost = isinstance(error, (Py4JNetworkError, ConnectionError))  # a JVM that ends refuses the next call
        raise start.failure(is_lost=is_lost) or SinkError(message) from error


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Keep the handler of SIGINT: PySpark replaces it by one that ends Python at any point."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _logging_to(file: Path | None) -> Iterator[None]:
    """Have the JVM that is started meanwhile log to a file: `log4j2.properties` has the names of these variables."""
    if file is None:
        yield
        return
    ours = {"TIDEMARK_SPARK_APPENDER": "file", "TIDEMARK_SPARK_LOG": str(file)}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def _with(builder: SparkSession.Builder, conf: Mapping[str, str]) -> SparkSession.Builder:
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder


@contextmanager
def _in_a_file(conf: Mapping[str, str]) -> Iterator[None]:
    """Have the JVM that is started meanwhile read properties from a file that only we can: `ps` shows its arguments."""
    arguments = os.environ.get(ARGUMENTS, "pyspark-shell")
    if not conf or "--properties-file" in arguments:
        yield
        return
    with NamedTemporaryFile("w", encoding="utf-8", prefix="tidemark-", suffix=".properties") as file:
        file.writelines(f"{_escaped(key)}={_escaped(value)}\n" for key, value in conf.items())
        file.flush()
        os.environ[ARGUMENTS] = f"--load-spark-defaults --properties-file {file.name} {arguments}"
        try:
            yield
        finally:
            os.environ[ARGUMENTS] = arguments


def _escaped(text: str) -> str:
    """Return a text as a value of Java's properties."""
    return "".join(_ESCAPES.get(character, character) for character in text)


def configuration(settings: SessionSettings) -> dict[str, str]:
    """Return every Spark property of the job."""
    conf = {**_FIXED, **(_OF_A_MERGE if isinstance(settings, SparkSettings) else {})}
    conf["spark.driver.memory"] = settings.driver_memory
    conf["spark.sql.shuffle.partitions"] = str(shuffle_partitions(settings.master))
    is_local = settings.master.startswith("local")
    if settings.jars and not is_local:
        conf["spark.jars"] = ",".join(settings.jars)
    if is_local:
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
    conf |= settings.conf
    if settings.jars and is_local:  # one class path: what is beside it, Java neither archives nor finds as fast
        conf[_CLASS_PATH] = ":".join(filter(None, (*settings.jars, settings.conf.get(_CLASS_PATH))))
    for key, ours in _JAVA_OPTIONS_BY_KEY.items():
        given = settings.conf.get(key)
        conf[key] = ours if given is None else f"{ours} {given}"
    return conf


def master_with_retries(master: str) -> str:
    """Return a local master with the number of failures of one task that end a job; other masters as they are.

    Spark lets a local task fail only once. A Kafka client whose clock jumps forward gives up at once, and its task can be repeated.
    """
    found = _LOCAL.fullmatch(master)
    return master if found is None else f"local[{found[1] or 1},{_TASK_FAILURES}]"


def shuffle_partitions(master: str) -> int:
    """Return the number of cores; on a cluster a number that `spark.conf` can raise."""
    if not master.startswith("local"):
        return 16
    inside = master.partition("[")[2].rstrip("]").partition(",")[0]
    return int(inside) if inside.isdigit() else max(2, os.cpu_count() or 2)
