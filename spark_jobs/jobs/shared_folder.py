"""The folder of a sink, which driver and executors must share: looked at on each executor before a batch needs it.

Rows travel through files there: one side writes what the other reads. An executor that has another folder at the same path would
lose them. Files with a random text are written by either side, and read by the other one. An executor that joins later is asked
before the next batch; a batch that runs by then counts the rows that arrive (`Sink`).
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from schemas.errors import RetriableSinkError, SinkError
from spark_jobs.spark_errors import is_lost_executor, reason_of, was_cancelled
from spark_jobs.store.sink_layout import SinkLayout

log = structlog.get_logger()

_PACKAGES: Final = ("confluent_kafka", "deltalake", "numba", "pandas", "pyarrow")
"""What the tasks of Python workers import, besides PySpark."""
_TASKS_PER_CORE: Final = 2
_ROUNDS: Final = 10
_LEAST_S: Final = 0.15
"""A task lasts so long at least: another core takes the next one."""
_VISIBLE_S: Final = 3.0
"""A file that the other side wrote may take so long to be seen on a network file system."""
_LOOK_S: Final = 0.1
_NO_PYTHON: Final = ("port number", "pyspark.daemon", "worker_daemon", "Python worker failed to connect back", "Cannot run program")
_MOST_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Answer:
    """What an executor says: who it is, what it wrote where, why it could not, and the packages that it lacks."""

    host: str
    process: str
    problem: str | None
    written: tuple[tuple[str, str], ...] = ()
    lacks: tuple[str, ...] = ()


class SharedFolder:
    """The folders of one sink, in one session. `folders` exist at the driver. With a local master nothing is asked."""

    def __init__(self, spark: SparkSession, sink: str, folders: Sequence[Path]) -> None:
        self._context = spark.sparkContext
        self._sink = sink
        self._folders = tuple(dict.fromkeys(map(str, folders)))
        self._is_local = str(self._context.master).startswith("local")
        self._asked: frozenset[str] = frozenset()

    @classmethod
    def of(cls, spark: SparkSession, sink: str, layout: SinkLayout) -> SharedFolder:
        """Return the folders of a sink: of its tables, and of all that is beside them."""
        return cls(spark, sink, (layout.sink, layout.service))

    def require(self) -> None:
        """Raise `SinkError` if an executor has joined since the last call that does not share the folders with the driver."""
        if self._is_local or (self._asked and self._executors() <= self._asked):
            return
        name = f".probe-{secrets.token_hex(8)}"
        try:
            self._require(name)
        except (PySparkException, Py4JError) as error:
            raise self._of_spark(error) from error
        finally:
            for folder in self._folders:
                for file in (Path(folder) / name, *Path(folder).glob(f"{name}-*")):
                    file.unlink(missing_ok=True)

    def _require(self, name: str) -> None:
        text = secrets.token_hex(16)
        for folder in self._folders:
            _write(Path(folder) / name, text)
        seen: dict[tuple[str, str], Answer] = {}
        for _ in range(_ROUNDS):
            executors = self._executors()
            for answer in self._answers(name, text):
                seen.setdefault((answer.host, answer.process), answer)
            deadline = time.monotonic() + _VISIBLE_S
            problems = [(one, why) for one in seen.values() if (why := _problem(one, deadline)) is not None]
            if problems:
                raise SinkError(self._refusal(problems))
            executors = executors or self._executors()
            if executors and len(seen) >= len(executors):
                self._asked = executors
                break
        else:  # those that are busy with other sinks are asked before the next batch
            log.info("merge.executors_not_asked", executors=len(self._executors()), asked=len(seen))
        for answer in seen.values():
            if answer.lacks:
                advice = "pip install 'tidemark-cdc[spark]' there: Spark merges what needs them, exactly but many times slower"
                log.warning("merge.executor_lacks_packages", host=answer.host, packages=answer.lacks, advice=advice)

    def _answers(self, name: str, text: str) -> list[Answer]:
        count = _TASKS_PER_CORE * max(1, self._context.defaultParallelism, len(self._executors()))
        return self._context.parallelize(range(count), count).mapPartitions(_asking(self._folders, name, text)).collect()

    def _refusal(self, problems: Sequence[tuple[Answer, str]]) -> str:
        where = "; ".join(f"{one.host} ({one.process}): {why}" for one, why in problems[:_MOST_NAMED])
        more = "; ..." if len(problems) > _MOST_NAMED else ""
        return (
            f"the sink {self._sink} cannot be written to: its folder {self._folders[0]} is not the same on driver and executors, "
            f"and rows would be lost. Executor {where}{more}. Mount one file system at this path on the driver and on each "
            "machine with executors, or set spark.master to local[*]"
        )

    def _of_spark(self, error: PySparkException | Py4JError) -> Exception:
        text = str(error)
        if was_cancelled(error) or is_lost_executor(error) or not any(one in text for one in _NO_PYTHON):
            return RetriableSinkError(f"the executors cannot be asked for the folder of sink {self._sink}: {reason_of(error)}")
        python = os.environ.get("PYSPARK_PYTHON", sys.executable)
        return SinkError(
            f"the sink {self._sink} cannot be written to: an executor starts no Python worker, so whether it has the folder "
            f"{self._folders[0]} is not known. Install the driver's Python and tidemark-cdc[spark] there, at the same path "
            f"({python}): {reason_of(error)}"
        )

    def _executors(self) -> frozenset[str]:
        """Return the addresses of the executors that there are now."""
        context: Any = self._context._jsc.sc()  # noqa: SLF001 - PySpark has no other way to know of them
        known = context.getExecutorMemoryStatus().keys().mkString(" ").split()
        driver = context.env().blockManager().blockManagerId().hostPort()
        return frozenset(known) - {driver}


def _problem(answer: Answer, deadline: float) -> str | None:
    """Return why an executor does not share the folders with the driver; None if it does."""
    if answer.problem is not None:
        return answer.problem
    unseen = [path for path, text in answer.written if _read(Path(path), text, deadline) is not None]
    return f"it has written {unseen[0]}, which the driver does not see" if unseen else None


def _asking(folders: Sequence[str], name: str, text: str) -> Any:
    """Return the function that a task runs on an executor."""

    def answers(_: Iterator[int]) -> Iterator[Answer]:
        began = time.monotonic()
        yield _answer(folders, name, text)
        time.sleep(max(0.0, _LEAST_S - (time.monotonic() - began)))

    return answers


def _answer(folders: Sequence[str], name: str, text: str) -> Answer:
    host, process = socket.gethostname(), str(Path.cwd())
    lacks = tuple(one for one in _PACKAGES if not _is_there(one))
    written = []
    for folder in folders:
        problem = _read(Path(folder) / name, text, time.monotonic() + _VISIBLE_S)
        if problem is not None:
            return Answer(host, process, f"{problem}, which the driver has written")
        own, path = secrets.token_hex(16), Path(folder) / f"{name}-{secrets.token_hex(8)}"
        try:
            _write(path, own)
        except OSError as error:
            return Answer(host, process, f"{folder} cannot be written to ({error.strerror or error})")
        written.append((str(path), own))
    return Answer(host, process, None, tuple(written), lacks)


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ImportError:
        return False


def _write(file: Path, text: str) -> None:
    with file.open("w", encoding="utf-8") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())


def _read(file: Path, text: str, deadline: float) -> str | None:
    """Return why a file does not have a text; None if it has it, before the deadline."""
    while True:
        try:
            problem = None if file.read_text("utf-8") == text else f"{file} has another text"
        except OSError as error:
            problem = f"{file} cannot be read ({error.strerror or error})"
        if problem is None or time.monotonic() >= deadline:
            return problem
        time.sleep(_LOOK_S)
