"""A producer under test: one database of a real server, and a producer in a thread that follows it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from producer.app import Producer
from schemas.settings import Settings, from_mapping
from tests.support.servers import unique_name
from tests.support.topics import Record, read_topic

SIGNAL = "CREATE TABLE tidemark_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"
"""The signal table of the settings of `Source`."""


class Source:
    """One database of one server, and the producer's settings for it."""

    def __init__(self, server, schema: str, bootstrap_servers: str) -> None:
        self.server = server
        self.schema = schema
        self.bootstrap_servers = bootstrap_servers
        self.name = unique_name("log")
        self.connection = server.connect(database=schema)

    def settings(self, records: dict[str, object] | None = None, **source: object) -> Settings:
        return from_mapping(self.mapping(records, **source))

    def mapping(self, records: dict[str, object] | None = None, **source: object) -> dict[str, object]:
        """As it would stand in a YAML file."""
        return {
            "name": self.name,
            "source": {
                "host": self.server.host,
                "port": self.server.port,
                "user": self.server.user,
                "password": self.server.password,
                "tables": [f"{self.schema}\\..*"],
                "signal_table": f"{self.schema}.tidemark_signal",
                "connect_timeout_s": 60,
                "tls": {"mode": "disabled"},  # a handshake with MySQL 8.0 takes longer than all else of a connection
                **source,
            },
            "kafka": {"bootstrap_servers": self.bootstrap_servers, "partitions": 2},
            "format": {"type": "json"},
            "snapshot": {"mode": "never", "readers": 1},  # each is a transactional producer, which a start makes and fences
            "records": records or {},
        }

    def execute(self, *statements: str) -> None:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def records(self, table: str) -> list[Record]:
        return read_topic(self.bootstrap_servers, f"{self.name}.{self.schema}.{table}")

    def changes(self, table: str) -> list[Record]:
        """Records that are not tombstones, in log order."""
        found = [record for record in self.records(table) if record.value is not None]
        return sorted(found, key=lambda record: record.value["source"]["sequence"])


@contextmanager
def running(settings: Settings) -> Iterator[Running]:
    with Producer(settings) as producer:
        run = Running(producer)
        run.thread.start()
        try:
            yield run
        finally:
            run.stop.set()
            run.thread.join(120)
            assert not run.thread.is_alive()


class Running:
    """A producer in a thread; `error` is what ended it."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.stop = threading.Event()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.producer.run(self.stop)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.error = error

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float = 120) -> None:
        end = time.monotonic() + timeout_s
        while not condition():
            assert self.error is None, f"the producer ended while waiting until {what}: {self.error!r}"
            assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
            time.sleep(0.05)

    def until_ended(self, timeout_s: float = 120) -> None:
        """Until the producer ended by itself; `error` says why."""
        self.thread.join(timeout_s)
        assert not self.thread.is_alive(), f"the producer still runs after {timeout_s} s"

    def caught_up(self, source: Source) -> None:
        with source.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                "SHOW BINARY LOG STATUS" if source.server.name == "mysql97" else "SHOW MASTER STATUS"
            )
            file, pos = cursor.fetchone()[:2]

        def reached() -> bool:
            committed = self.producer.reader.committed
            return (committed.file, committed.pos) >= (file, pos)

        self.until(reached, f"the log is read up to {file}:{pos}")
