"""`python -m tests.fuzz [SECONDS [SEED [TARGET]]]`: damaged bytes and nonsense at every door, for so long at each, or at one of them.

Events of a real server's log, events of foreign tables, signals, configuration, task files, HTTP, properties of Debezium's connectors, files of an archive, records of a group's members. What may come
of it is the error meant for it; anything else is a crash, printed with what caused it. `clauses` are DDL statements with one token more, on each of
three servers, for a third of the time: a statement that is accepted is understood as the server does, or is said to be unclear; else it is a misreading.
"""

from __future__ import annotations

import copy
import json
import random
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import structlog

from devservers import start_database
from producer.binlog import events
from producer.binlog.framing import frame_events
from producer.binlog.rowcount import cell_sizes, count_rows
from producer.control.command_registry import CommandRegistry
from producer.control.signal_row import SignalRow, decode_signal_row
from producer.snapshot.ledger import SnapshotLedger
from producer.snapshot.signal_commands import SnapshotCommands
from schemas.errors import ConfigError, DecodeError, UnknownEventError
from schemas.members import (
    Acknowledgement,
    MemberRecord,
    Members,
    ReaderEntry,
    ReaderPhase,
    Revocation,
    SourceEntry,
    SourcePhase,
    closing_step,
    next_step,
    parse,
    to_bytes,
)
from schemas.position import Position
from schemas.settings import ServiceSettings
from schemas.stream_order import StreamPosition
from spark_jobs.archive.archive_folder import ArchiveManifest
from spark_jobs.archive.segments import (
    ROW,
    STATEMENT,
    ArchivedRecord,
    SegmentFacts,
    SegmentReader,
    ending,
    framed,
    header_record,
    schema_record,
    segment_file,
)
from spark_jobs.replicate import replaying
from spark_jobs.replicate.order.frontier import StreamMerge
from spark_jobs.replicate.order.membership import Membership
from tests.catalog import extra_tokens
from tests.codec.test_damaged_bytes import damaged
from tests.importers.connector_mixtures import judge, mixture
from tests.stream.test_foreign_damage import harm
from tidemark.api.service import Service
from tidemark.process import config

Try = Callable[[random.Random], str]
"""One attempt; the words of a crash, "" for none."""

_TARGETS: Final = ("events", "foreign tables", "signals", "configuration", "task files", "requests", "properties", "segments", "members", "clauses")
_MAGIC: Final = 4
_SERVERS: Final = ("mysql57", "mysql80", "mariadb114")
_STATEMENTS: Final = (
    "CREATE DATABASE shop CHARACTER SET utf8mb4",
    (
        "CREATE TABLE shop.t (id INT PRIMARY KEY, a VARCHAR(300), b DECIMAL(20,5), c JSON, d DATETIME(6), e BLOB, f ENUM('x','y'),"
        " g BIT(9), h DOUBLE, i TIME(3))"
    ),
    "CREATE TABLE shop.s (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))",
    (
        "INSERT INTO shop.t VALUES (1, REPEAT('ä', 200), -1.5, '{\"a\": [1, 2.5, null, \"x\"]}', NOW(6), 'blob', 'x', 5, 1e9, '-1:2:3'),"
        " (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    ),
    "UPDATE shop.t SET a = 'new', c = JSON_SET(c, '$.b', 1)",
    "INSERT INTO shop.s VALUES ('1', 'log', '{\"message\": \"m\"}')",
    "SET SESSION binlog_transaction_compression = ON",
    "DELETE FROM shop.t WHERE id = 1",
    "ALTER TABLE shop.t ADD z POINT",
    "XA START 'x'",
    "INSERT INTO shop.t (id) VALUES (9)",
    "XA END 'x'",
    "XA PREPARE 'x'",
    "XA COMMIT 'x'",
    "FLUSH BINARY LOGS",
)
_PARSERS: Final[Mapping[int, Callable[[memoryview, int, int], object]]] = {
    **dict.fromkeys(events.GTID_EVENTS, events.parse_gtid),
    events.QUERY_EVENT: events.parse_query,
    events.XA_PREPARE_EVENT: events.parse_xa_prepare,
    events.FORMAT_DESCRIPTION_EVENT: events.parse_format_description,
    events.ROTATE_EVENT: events.parse_rotate,
}
_SIGNALS: Final = (
    "execute-snapshot",
    "stop-snapshot",
    "pause-snapshot",
    "resume-snapshot",
    "log",
    "schema-changes",
    "",
    "ünknown",
)
_WORDS: Final = (
    "shop.t", ".*", "(", "[", "*", "a" * 300, "\\", "(?P<", "INCREMENTAL", "BLOCKING", "id = 1", "1; DROP TABLE t", "id IN (SELECT 1",
    "'", "--", "\x00", "😀", "data-collections", "additional-conditions", "data-collection", "filter", "type", "surrogate-key", "merge",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """0 when nothing crashed."""
    structlog.configure(processors=[structlog.processors.KeyValueRenderer()], logger_factory=_silent)
    seconds = float(arguments[0]) if arguments else 30.0
    seed = int(arguments[1]) if len(arguments) > 1 else 1
    targets = arguments[2:] or list(_TARGETS)
    if unknown := set(targets) - set(_TARGETS):
        print(f"fuzz: {', '.join(unknown)}: no target; one of {', '.join(_TARGETS)}")
        return 2
    crashes: list[str] = []
    reported = []
    with (
        tempfile.TemporaryDirectory(prefix="tidemark-fuzz-") as folder,
        Service(ServiceSettings(), _nothing, str) as service,
    ):
        log = _log_of_a_server(Path(folder)) if "events" in targets else b""
        doors: dict[str, Try] = {
            "events": lambda rng: _event(rng, log),
            "foreign tables": _foreign,
            "signals": _signal,
            "configuration": lambda rng: _configuration(rng, Path(folder), _PRODUCER, config.load),
            "task files": lambda rng: _configuration(rng, Path(folder), _TASK, config.load_task),
            "requests": lambda rng: _request(rng, service.port),
            "properties": _properties,
            "segments": lambda rng: _segment(rng, Path(folder)),
            "members": _members,
        }
        for name, attempt in [(name, doors[name]) for name in targets if name in doors]:
            rng = random.Random(f"{name} {seed}")
            deadline, count = time.monotonic() + seconds, 0
            while time.monotonic() < deadline:
                words = attempt(rng)
                count += 1
                if words:
                    crashes.append(f"{name} {seed} #{count}: {words}")
                    print(crashes[-1], flush=True)
            reported.append(f"{count} {name}")
    misreadings = _clauses(seconds / len(_SERVERS), seed, reported) if "clauses" in targets else 0
    print(f"fuzz: {', '.join(reported)}, {len(crashes)} crashes, {misreadings} misreadings")
    return 1 if crashes or misreadings else 0


def _clauses(seconds: float, seed: int, reported: list[str]) -> int:
    """DDL statements with one more token; how many of them the parser misreads."""
    wrong = 0
    for name in _SERVERS:
        with tempfile.TemporaryDirectory(prefix="tidemark-fuzz-") as folder, start_database(name, Path(folder)) as server:
            count, counts, misreadings = extra_tokens.fuzz(server, seed, seconds)
        for words in misreadings:
            print(f"clauses {seed}: {words}", flush=True)
        wrong += len(misreadings)
        reported.append(f"{count} clauses on {name} ({', '.join(f'{n} {what}' for what, n in sorted(counts.items()))})")
    return wrong


def _silent(*_: object) -> Any:
    class Nothing:
        def __getattr__(self, _name: str) -> Any:
            return lambda *_a, **_k: None

    return Nothing()


def _nothing(_id: str, _kind: str, _data: str | None) -> None:
    """Where signals would be inserted."""


def _log_of_a_server(folder: Path) -> bytes:
    """One log file of MySQL 9.7, without its magic."""
    with start_database("mysql97", folder) as server:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            file = cursor.fetchall()[-1][0]
            for statement in _STATEMENTS:
                cursor.execute(statement)
        return (server.data_dir / file).read_bytes()[_MAGIC:]


def _event(rng: random.Random, log: bytes) -> str:
    """Frame and parse a damaged log, all events of it."""
    data = log
    for _ in range(rng.choice((1, 1, 2, 5))):
        data = damaged(data, rng) or log
    buf = np.frombuffer(data, np.uint8).copy()
    try:
        # Without checksums, so that what is inside is reached; with them once in a while.
        batch, _ = frame_events(buf, 0, buf.size, rng.choice((0, 0, 0, 1)))
        _parse(batch)
    except (DecodeError, UnknownEventError):
        return ""
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return repr(error)
    return ""


def _foreign(rng: random.Random) -> str:
    """Damage events of tables that nobody captures: records of captured tables must stay what they are."""
    seed = rng.randrange(1 << 32)
    try:
        found = harm(seed)
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        found = repr(error)
    return f"log {seed}: {found}" if found else ""


def _parse(batch: Any) -> None:
    """As the log reader does, without Kafka."""
    tables: dict[int, Any] = {}
    view = batch.memory
    for index in range(batch.count):
        kind, start, end = int(batch.types[index]), int(batch.starts[index]), int(batch.ends[index])
        try:
            if kind == events.TABLE_MAP_EVENT:
                table = events.parse_table_map(view, start, end, server_version="9.7.0")
                tables[int.from_bytes(view[start + 19 : start + 25], "little")] = table
            elif kind in _PARSERS:
                _PARSERS[kind](view, start, end)
            elif kind == events.TRANSACTION_PAYLOAD_EVENT:
                for inner in events.payload_batches(view, start, end):
                    _parse(inner)
            elif kind in events.ROWS_EVENTS and tables:
                _parse_rows(batch, index, tables)
        except (DecodeError, UnknownEventError):
            continue  # the reader would stop here; the rest is worth a look


def _parse_rows(batch: Any, index: int, tables: dict[int, Any]) -> None:
    view, kind, start, end = (
        batch.memory,
        int(batch.types[index]),
        int(batch.starts[index]),
        int(batch.ends[index]),
    )
    table = tables.get(int.from_bytes(view[start + 19 : start + 25], "little")) or next(iter(tables.values()))
    header = events.parse_rows_header(view, start, end, kind, len(table.types))
    sizes = cell_sizes(table.types, table.metas)
    count_rows(batch.buf, header.rows_start, end, sizes, 2 if kind in (24, 31) else 1, "here")
    for _ in decode_signal_row(batch.buf, header.rows_start, end, table, "c"):
        pass


def _value(rng: random.Random, depth: int = 0) -> Any:
    choice = rng.randrange(9 if depth < 3 else 6)
    if choice < 3:
        return rng.choice(_WORDS)
    if choice == 3:
        return rng.choice((None, True, False, 0, -1, 1e308, 2**70))
    if choice < 6:
        return "".join(
            chr(rng.choice((rng.randrange(1, 128), rng.randrange(128, 0xD7FF))))
            for _ in range(rng.randrange(30))
        )
    if choice < 8:
        return {str(_value(rng, 9)): _value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]


def _signal(rng: random.Random) -> str:
    """Any id, type and data: each is carried out or answered, none raises."""
    ledger = SnapshotLedger("fuzz", 2, lambda: 0)
    registry = CommandRegistry("fuzz", lambda: 0)
    SnapshotCommands(ledger.requests, lambda: ("shop.t", "shop.s"), windows=True).register_in(registry)
    document = _value(rng)
    if rng.random() < 0.7:
        document = {
            "data-collections": _value(rng),
            "type": rng.choice(("INCREMENTAL", "incremental", "BLOCKING", _value(rng))),
            "additional-conditions": _value(rng),
            **({"surrogate-key": _value(rng)} if rng.random() < 0.3 else {}),
            **({"merge": _value(rng)} if rng.random() < 0.3 else {}),
        }
    text = rng.choice(
        (json.dumps(document), str(document), None, "{", json.dumps(document)[: rng.randrange(1, 40)])
    )
    row = SignalRow(str(_value(rng, 9)), rng.choice(_SIGNALS), text)
    try:
        registry.answer(row, Position(0, 1, 4), ledger.outbox.notifications)
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return f"{error!r} of {row}"
    return ""


_MEMBER_RECORDS: Final[tuple[tuple[str, MemberRecord], ...]] = (
    ("source/s", SourceEntry(state=SourcePhase.JOINING, first=3, end=3)),
    ("source/s", SourceEntry(state=SourcePhase.ONLINE, first=3, member=0, join=0, floor_us=7)),
    ("source/s", SourceEntry(state=SourcePhase.CLOSING, first=3, member=0, join=0, end=9)),
    ("source/s", SourceEntry(state=SourcePhase.OFFLINE, first=3, member=0, join=0, end=9, by="somebody", reason="no reason")),
    ("reader/r", ReaderEntry(state=ReaderPhase.RUNNING, sources=frozenset("s"))),
    ("reader/r", ReaderEntry(state=ReaderPhase.STOPPED, sources=frozenset("s"))),
    ("ack/r/s", Acknowledgement(join=0, epoch=1, frontier=StreamPosition.START)),
    ("revoke/r/s", Revocation(0)),
)


def _members(rng: random.Random) -> str:
    """Records of members, some of them damaged: each is noted or refused, and everybody knows the next step then."""
    members, merge = Members(rng.choice((0, 0, 5))), StreamMerge[int]()
    membership = Membership("r", 1, frozenset("s"), members, merge)
    noted: list[tuple[str, bytes]] = []
    try:
        for offset in range(rng.randrange(1, 12)):
            key, record = rng.choice(_MEMBER_RECORDS)
            document = json.loads(to_bytes(record))
            if rng.random() < 0.3:
                name = rng.choice([*document, str(_value(rng, 9))])
                document[name] = rng.choice((_value(rng), rng.randrange(-2, 12)))
            value = json.dumps(document).encode()
            if rng.random() < 0.1:
                key, value = str(_value(rng, 9)), damaged(value, rng)
            with suppress(DecodeError):
                members.note(offset, key, parse(key, value))
                noted.append((key, value))
            next_step(members, "s", frozenset({rng.randrange(-1, 12)}), rng.randrange(12))
            if "s" in members.sources:
                closing_step(members, "s", rng.choice((None, 9)))
            membership.follow(float(rng.randrange(100)), {"s": rng.randrange(12)})
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return f"{error!r} behind {noted}"
    return ""


_PRODUCER: Final[dict[str, Any]] = {
    "name": "shop",
    "source": {
        "host": "h",
        "user": "u",
        "password": "p",
        "tables": ["shop\\..*"],
        "signal_table": "shop.s",
    },
    "kafka": {"bootstrap_servers": "k:9092"},
    "format": {"type": "json"},
    "snapshot": {"mode": "initial"},
    "records": {},
    "sink": {"path": "lake"},
    "service": {"port": 0},
}
_TASK: Final[dict[str, Any]] = {
    "task": "copy",
    "sources": [{"name": "shop"}],
    "kafka": {"bootstrap_servers": "k:9092"},
    "format": {"registry": "http://r:8081"},
    "target": {"type": "mysql", "host": "h", "password": "p", "tls": {"mode": "disabled"}},
    "apply": {"driver_rows": 10},
}


def _configuration(rng: random.Random, folder: Path, base: Mapping[str, Any], load: Callable[..., object]) -> str:
    """A YAML file: settings, or a `ConfigError`."""
    good = copy.deepcopy({**base})
    for _ in range(rng.randrange(1, 5)):
        section = rng.choice([*good, str(_value(rng, 9))])
        inner = good.get(section)
        if isinstance(inner, dict) and rng.random() < 0.8:
            inner[rng.choice([*inner, str(_value(rng, 9)), "mode", "port", "columns", "partitions"])] = (
                _value(rng)
            )
        else:
            good[section] = _value(rng)
    path = folder / "fuzz.yaml"
    text = json.dumps(good)
    if rng.random() < 0.2:
        data = bytearray(text.encode())
        data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
    else:
        path.write_text(text, "utf-8")
    environment = {
        f"TIDEMARK_{rng.choice(('NAME', 'SOURCE__PORT', 'TARGET__PORT', 'KAFKA', 'X__Y'))}": str(_value(rng, 9)).replace(
            "\x00", ""
        )
    }
    try:
        load(path, environment if rng.random() < 0.3 else {})
    except ConfigError:
        return ""
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return f"{error!r} of {text}"
    return ""


def _properties(rng: random.Random) -> str:
    """A connector of Debezium with documented properties: each is translated, reported or named as not needed."""
    properties = mixture(rng)
    try:
        wrong = list(judge(properties))
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        wrong = [repr(error)]
    return f"{wrong} of {properties}" if wrong else ""


def _segment(rng: random.Random, folder: Path) -> str:
    """A damaged folder of an archive: records that were written, or the error meant for damage."""
    file, values = segment_file(folder, 1), [rng.randbytes(rng.randrange(300)) for _ in range(rng.randrange(1, 30))]
    facts = SegmentFacts(number=1, opened_us=0)
    records = [header_record("fuzz", facts), schema_record(7, '"int"')]
    records += [ArchivedRecord(rng.choice((ROW, STATEMENT)), index, str(index), b"", value) for index, value in enumerate(values)]
    data = b""
    for record in records:
        data += framed(1, len(data), record)
    end = len(data)
    for part in (data, data + ending(end, facts)):
        file.write_bytes(damaged(part, rng) or part)
        size, skips = rng.choice((end, None)), rng.random() < 0.5
        reader = SegmentReader(file, 1, size, skips_damage=skips)
        try:
            reader.facts()
            read = [record for _, record in reader.records()]
            if any(record not in records for record in read):
                return f"a record that nobody wrote, of {file.read_bytes().hex()}"
        except DecodeError:
            pass
        except Exception as error:  # noqa: BLE001 - each is a crash
            return f"{error!r} of {file.read_bytes().hex()}"
    ArchiveManifest(task="fuzz", open=facts, size=end).write(folder)
    manifest = folder / "manifest.json"
    manifest.write_bytes(damaged(manifest.read_bytes(), rng) or b"")
    try:
        archive = replaying.ArchiveReader(folder, skips_damage=True)
        for _ in replaying.printed(archive.batches(), archive.decoder, lambda *_: True):
            pass
    except (ConfigError, DecodeError):
        return ""
    except Exception as error:  # noqa: BLE001 - each is a crash
        return f"{error!r} of {manifest.read_bytes().hex()}"
    return ""


def _request(rng: random.Random, port: int) -> str:
    """Bytes into the HTTP endpoint, which must be alive afterwards."""
    head = rng.choice(
        (
            b"",
            b"GET /metrics HTTP/1.1\r\n",
            b"POST /api/v1/signals HTTP/1.1\r\nContent-Type: application/json\r\n",
        )
    )
    body = rng.choice((rng.randbytes(rng.randrange(300)), json.dumps(_value(rng)).encode()))
    length = rng.choice(
        (
            b"",
            b"Content-Length: %d\r\n\r\n" % len(body),
            b"Content-Length: -5\r\n\r\n",
            b"Content-Length: 99999999999\r\n\r\n",
        )
    )
    try:
        _sent(port, head + length + body)
        answered = _sent(port, b"GET /livez HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    except OSError as error:
        return repr(error)
    return "" if b" 200 " in answered else f"not alive: {answered[:80]!r}"


def _sent(port: int, data: bytes) -> bytes:
    answered = b""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(4096):
                answered += part
        except (ConnectionResetError, BrokenPipeError):
            pass  # it hung up before everything was sent
    return answered


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
