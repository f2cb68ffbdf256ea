"""The limits: the same bytes moved by a program that does nothing else, each in a process of its own.

`python -m bench.limits KIND DOCUMENT` is such a process; it prints rows, seconds, CPU seconds and peak memory.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from bench.bench_figures import Figure
from bench.scene import DATABASE as TABLE
from bench.scene import BenchError
from bench.stage import Position, Stage
from mysqlio.connection import connect_plainly

_COM_QUERY, _COM_BINLOG_DUMP = 3, 18
_ROOM = 1 << 20


def decode(stage: Stage, begin: Position, rows: int) -> Figure:
    """Let mysql-replication decode the rows."""
    return _run("decode", _source(stage) | {"file": begin.file, "offset": begin.offset, "rows": rows})


def dump(stage: Stage, begin: Position, end: Position, rows: int) -> Figure:
    """Read the log from the server and drop it."""
    size = end.offset - begin.offset
    return _run("dump", _source(stage) | {"file": begin.file, "offset": begin.offset, "rows": rows, "bytes": size})


def select(stage: Stage, rows: int) -> Figure:
    """Read the answer of a SELECT from the server and drop it."""
    return _run("select", _source(stage) | {"rows": rows})


def produce(stage: Stage, ends: Mapping[tuple[str, int], int], rows: int) -> Figure:
    """Let librdkafka produce the last records of the topics again, keys and values as they are."""
    begins = [[topic, number, max(0, end - rows)] for (topic, number), end in ends.items()]
    document = {"servers": stage.scene.kafka.bootstrap_servers, "begins": begins, "rows": rows}
    return _run("produce", document)


def _source(stage: Stage) -> dict[str, Any]:
    database = stage.scene.database
    return {
        "host": database.host,
        "port": database.port,
        "user": database.user,
        "password": database.password,
        "database": stage.name,
    }


def _run(kind: str, document: Mapping[str, Any]) -> Figure:
    command = [sys.executable, "-m", "bench.limits", kind, json.dumps(document)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    if answer.returncode:
        message = f"the limit {kind} failed:\n{answer.stderr[-2000:]}"
        raise BenchError(message)
    return Figure(**json.loads(answer.stdout.splitlines()[-1]))


# --- in the process of its own


class _Clock:
    """Time and CPU of this process since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def lap(self) -> tuple[float, float]:
        """Return seconds and CPU seconds until now."""
        return time.monotonic() - self._wall, time.process_time() - self._cpu


def _connect(document: Mapping[str, Any]) -> Any:
    names = ("host", "port", "user", "password", "database")
    return connect_plainly(**{name: document[name] for name in names}, ssl_disabled=True)


def _decode(document: Mapping[str, Any]) -> tuple[int, float, float]:
    from pymysqlreplication import BinLogStreamReader  # type: ignore[attr-defined]
    from pymysqlreplication.row_event import WriteRowsEvent

    names = ("host", "port", "user", "password")
    stream: Any = BinLogStreamReader(  # type: ignore[no-untyped-call]
        connection_settings={name: document[name] for name in names},
        server_id=880_001 + os.getpid() % 100_000,
        log_file=document["file"],
        log_pos=document["offset"],
        resume_stream=True,
        only_events=[WriteRowsEvent],
        only_schemas=[document["database"]],
    )
    clock, rows = None, 0
    for event in stream:
        clock = clock or _Clock()
        rows += len(event.rows)
    stream.close()
    if clock is None:
        raise SystemExit("no rows in the log")
    return rows, *clock.lap()


def _dump(document: Mapping[str, Any]) -> tuple[int, float, float]:
    connection = _connect(document)
    with connection.cursor() as cursor:
        cursor.execute("SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'")
    begin = struct.pack("<IHI", document["offset"], 0, 990_001 + os.getpid() % 100_000)
    return document["rows"], *_drain(connection, _COM_BINLOG_DUMP, begin + document["file"].encode(), document["bytes"])


def _select(document: Mapping[str, Any]) -> tuple[int, float, float]:
    connection = _connect(document)
    statement = f"SELECT * FROM {TABLE} WHERE id >= 0 LIMIT {document['rows']}"
    return document["rows"], *_drain(connection, _COM_QUERY, statement.encode(), None)


def _drain(connection: Any, command: int, body: bytes, size: int | None) -> tuple[float, float]:
    """Send a command and drop the answer, up to its size or until nothing more comes."""
    connection._execute_command(command, body)  # noqa: SLF001
    wire: socket.socket = connection._sock  # noqa: SLF001
    wire.settimeout(2.0)
    room, received, clock, lap = bytearray(_ROOM), 0, None, (0.0, 0.0)
    while size is None or received < size:
        try:
            count = wire.recv_into(room)
        except TimeoutError:
            break
        clock = clock or _Clock()
        received += count
        lap = clock.lap()
        if not count:
            break
    if size is not None and received < size:
        raise SystemExit(f"{received} of {size} bytes")
    return lap


def _produce(document: Mapping[str, Any]) -> tuple[int, float, float]:
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    servers, wanted = document["servers"], document["rows"]
    options = {"bootstrap.servers": servers, "group.id": "bench-limit", "enable.auto.commit": False}
    consumer = Consumer(options | {"isolation.level": "read_committed"})
    consumer.assign([TopicPartition(*begin) for begin in document["begins"]])
    records: list[tuple[bytes | None, bytes | None]] = []
    while len(records) < wanted:
        messages = consumer.consume(10_000, 10.0)
        if not messages:
            break
        records += [(m.key(), m.value()) for m in messages if m.error() is None and m.key() and m.value()]
    consumer.close()
    topic = f"bench-limit-{os.getpid()}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result()
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": "lz4",
            "enable.idempotence": True,
            "linger.ms": 50,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    clock = _Clock()
    for number, (key, value) in enumerate(records[:wanted]):
        try:
            producer.produce(topic, value, key)
        except BufferError:
            producer.poll(0.5)
            producer.produce(topic, value, key)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()
    return len(records[:wanted]), *clock.lap()


_KINDS: dict[str, Callable[[Mapping[str, Any]], tuple[int, float, float]]] = {
    "decode": _decode,
    "dump": _dump,
    "select": _select,
    "produce": _produce,
}


def main() -> None:
    """Run one limit and print what it took."""
    rows, seconds, cpu_s = _KINDS[sys.argv[1]](json.loads(sys.argv[2]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"rows": rows, "seconds": seconds, "cpu_s": cpu_s, "peak_mib": peak}))


if __name__ == "__main__":
    main()
