"""How fast the binlog is read: bytes of a connection into events, offsets and parsed transactions.

Part one feeds packets from memory (framing, CRC32, offsets, the few parsers of a transaction); part two, with
`--server`, reads a real MySQL 8.0 over a socket. Run: `python -m bench.framing_bench [--server]`.
CPU time is the steadier figure.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from mysqlio.server_facts import current_position
from producer.binlog import events
from producer.binlog.framing import PacketFramer
from producer.binlog.positions import PositionTracker
from producer.source.dump import BinlogStream, StreamStart
from schemas.settings import SourceSettings
from tests.binlog import build

ROW_BYTES = 300
TRANSACTIONS = 4_000


def one_row_transactions() -> tuple[list[bytes], int]:
    """Events of transactions of one row each: GTID, BEGIN, TABLE_MAP, WRITE_ROWS, XID."""
    return transactions(TRANSACTIONS, 1), TRANSACTIONS


def thousand_row_transactions() -> tuple[list[bytes], int]:
    """Events of transactions of 1,000 rows each, in events of about 8 KiB as the server writes them."""
    return transactions(20, 1000), 20_000


def transactions(count: int, rows: int) -> list[bytes]:
    """`count` transactions of `rows` rows of 300 bytes."""
    types, meta = bytes((8, 3, 15, 246, 18, 252)), bytes((0, 1, 12, 2, 6, 2))
    columns = build.field(4, b"\2id\1a\1b\1c\1d\1e") + build.field(8, b"\0") + build.field(1, b"\0")
    table = build.table_map(types, meta, columns)
    begin = build.event(2, bytes(8) + b"\4\0\0\0\0" + b"shop\0BEGIN")
    per_event = min(rows, 8192 // ROW_BYTES)
    image = build.rows(30, 6, bytes(ROW_BYTES * per_event))
    last = build.rows(30, 6, bytes(ROW_BYTES * (rows % per_event or per_event)))
    body = [image] * ((rows - 1) // per_event) + [last]
    xid = build.event(16, bytes(8))
    gtids = [build.gtid(number + 1, times=(1 << 50).to_bytes(7, "little")) for number in range(count)]
    return [one for gtid in gtids for one in (gtid, begin, table, *body, xid)]


def frame(framer: PacketFramer, tracker: PositionTracker, data: bytes) -> int:
    """Frame and place all events; their number."""
    at = count = 0
    while at < len(data):
        space = framer.space()
        size = min(len(space), len(data) - at)
        space[:size] = data[at : at + size]
        framer.filled(size)
        at += size
        while (batch := framer.next_batch()) is not None:
            tracker.advance(batch)
            count += batch.count
    return count


def frame_and_parse(framer: PacketFramer, tracker: PositionTracker, data: bytes) -> int:
    """The same, and what a log reader does for each event that is no row image."""
    known: dict[bytes, events.TableMap] = {}
    at = count = 0
    while at < len(data):
        space = framer.space()
        size = min(len(space), len(data) - at)
        space[:size] = data[at : at + size]
        framer.filled(size)
        at += size
        while (batch := framer.next_batch()) is not None:
            tracker.advance(batch)
            count += batch.count
            view = batch.memory
            for kind, start, end in zip(
                batch.types.tolist(), batch.starts.tolist(), batch.ends.tolist(), strict=True
            ):
                if kind in events.ROWS_EVENTS:
                    events.parse_rows_header(view, start, end, kind, 6)
                elif kind == events.TABLE_MAP_EVENT:
                    fingerprint = bytes(view[start + 27 : end])
                    if fingerprint not in known:
                        known[fingerprint] = events.parse_table_map(view, start, end)
                elif kind == events.GTID_EVENT:
                    events.parse_gtid(view, start, end)
                elif kind == events.QUERY_EVENT:
                    events.parse_query(view, start, end)
    return count


def measure(
    name: str,
    made: tuple[list[bytes], int],
    work: Callable[[PacketFramer, PositionTracker, bytes], int],
    seconds: float,
) -> None:
    """Repeat the work for some seconds and print what one event, one row and one MB cost."""
    made_events, rows = made
    data = build.packets(made_events, sequence=2)
    done = cpu = wall = 0.0
    count = 0
    while wall < seconds:
        framer = PacketFramer(sequence=1)
        build.feed(framer, build.packets([build.format_description()]))
        started, cpu_started = time.perf_counter(), time.process_time()
        count += work(framer, PositionTracker("binlog.000001", 4), data)
        wall += time.perf_counter() - started
        cpu += time.process_time() - cpu_started
        done += len(data)
    rounds = done / len(data)
    print(
        f"{name:44} {count / wall:12,.0f} events/s {cpu / count * 1e6:7.3f} µs/event "
        f"{cpu / (rounds * rows) * 1e6:7.3f} µs/row {done / cpu / 1e6:8,.0f} MB per CPU second"
    )


def from_memory(seconds: float) -> None:
    """Part one."""
    for name, made in (("one row", one_row_transactions()), ("1,000 rows", thousand_row_transactions())):
        measure(f"{name}: framing, CRC32, offsets", made, frame, seconds)
        measure(f"{name}: and parsing, without rows", made, frame_and_parse, seconds)


def from_server(rows: int) -> None:
    """Part two: one-row transactions, then 1,000-row ones, read from a server's past log."""
    from devservers import start_database

    with tempfile.TemporaryDirectory() as folder, start_database("mysql80", Path(folder)) as server:
        settings = SourceSettings(
            host=server.host, port=server.port, user=server.user, password=server.password, tables=(".*",)
        )
        for name, per_transaction in (("one row", 1), ("1,000 rows", 1000)):
            with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
                cursor.execute("SET GLOBAL sync_binlog = 0, innodb_flush_log_at_trx_commit = 0")
                cursor.execute("CREATE DATABASE IF NOT EXISTS bench")
                cursor.execute("DROP TABLE IF EXISTS bench.t")
                cursor.execute(
                    "CREATE TABLE bench.t (id BIGINT PRIMARY KEY AUTO_INCREMENT, a INT, b VARCHAR(300))"
                )
                start = current_position(connection)
                total = rows if per_transaction > 1 else rows // 10
                values = ", ".join(["(1, REPEAT('x', 250))"] * per_transaction)
                for _ in range(total // per_transaction):
                    cursor.execute(f"INSERT INTO bench.t (a, b) VALUES {values}")
                    connection.commit()
                end = current_position(connection)
            stream = BinlogStream(settings)
            stream.open(StreamStart(start.file, start.pos), server_id=48_215)
            wall, cpu, count = time.perf_counter(), time.process_time(), 0
            while (stream.file, stream.position) < (end.file, end.pos):
                batch = stream.read(10)
                count += batch.count if batch is not None else 0
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            stream.close()
            print(
                f"{'server, ' + name:44} {count / wall:12,.0f} events/s {cpu / count * 1e6:7.3f} µs/event "
                f"{cpu / total * 1e6:7.3f} µs/row {(end.pos - start.pos) / wall / 1e6:8,.0f} MB/s"
            )


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--server", action="store_true", help="also read a real MySQL 8.0")
    parser.add_argument("--rows", type=int, default=200_000)
    arguments = parser.parse_args()
    from_memory(arguments.seconds)
    if arguments.server:
        from_server(arguments.rows)


if __name__ == "__main__":
    main()
