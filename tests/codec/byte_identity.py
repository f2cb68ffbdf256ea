"""Snapshot rows and log events of the same rows, byte by byte: every type, format and mode, and every writer of the rows.

`python -m tests.codec.byte_identity [SERVER...]` runs the whole product of modes on each server and prints how many values
were compared; `test_byte_identity.py` runs a part of it. Rows are written under several session time zones (with
their DST gaps; the server's time zone tables are filled first) and connection character sets, with the server's own
defaults set to others; they are read as the product reads them.
"""

from __future__ import annotations

import bisect
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, get_args
from zoneinfo import ZoneInfo

import structlog
from hypothesis import HealthCheck, Phase, given, settings
from pymysql import converters

from devservers import Database, start_database
from mysqlio.connection import connect
from mysqlio.information_schema import read_table_schema
from mysqlio.server_access import ServerAccess
from rowcodec import SourceConstants, TableCodec, WireSchemas
from schemas.columns import TableSchema
from schemas.connect_types import BinaryMode, DecimalMode, TimeMode, UnsignedMode, ValueModes
from schemas.settings import SourceSettings
from tests.codec.oracle import (
    PREFIX,
    RowsEvent,
    chunk_records,
    event_context,
    keys_of,
    log_position,
    rows_events,
    session,
    values_of,
)
from tests.codec.random_tables import RandomTable, tables

ZONES: Final = ("+00:00", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "-12:00")
CHARSETS: Final = ("utf8mb4", "latin1", "utf8mb4", "gbk", "utf8mb4", "cp1251")  # of the connection, beside each zone
NAMED: Final = tuple(zone for zone in ZONES if "/" in zone)
FORMATS: Final[tuple[Literal["avro", "json"], ...]] = ("avro", "json")
MODES: Final = tuple(
    ValueModes(*modes)
    for modes in product(get_args(DecimalMode), get_args(UnsignedMode), get_args(BinaryMode), get_args(TimeMode))
)
OFFERED: Final = {"mysql57": ("mysql",), "mysql80": ("mysql",), "mysql97": ("mysql", "mysql97")}
MARIADB: Final = ("mariadb", "compressed")
SERVERS: Final = ("mysql57", "mysql80", "mysql97", "mariadb114")
_STEP: Final = timedelta(hours=6)


# ── time zone tables ────────────────────────────────


def fill_time_zones(server: Database) -> None:
    """Load the named zones into the server, as `mysql_tzinfo_to_sql` would, 1970 to 2037."""
    with server.connect() as connection, connection.cursor() as cursor:
        for name in NAMED:
            cursor.execute("SELECT 1 FROM mysql.time_zone_name WHERE Name = %s", (name,))
            if cursor.fetchone():
                continue
            cursor.execute("INSERT INTO mysql.time_zone (Use_leap_seconds) VALUES ('N')")
            zone = connection.insert_id()
            cursor.execute("INSERT INTO mysql.time_zone_name VALUES (%s, %s)", (name, zone))
            kinds, changes = _transitions(name)
            for number, (offset, is_dst, abbreviation) in enumerate(kinds):
                cursor.execute(
                    "INSERT INTO mysql.time_zone_transition_type VALUES (%s, %s, %s, %s, %s)",
                    (zone, number, offset, is_dst, abbreviation),
                )
            cursor.executemany(
                "INSERT INTO mysql.time_zone_transition VALUES (%s, %s, %s)",
                [(zone, at, number) for at, number in changes],
            )


def _transitions(name: str) -> tuple[list[tuple[int, int, str]], list[tuple[int, int]]]:
    """(kinds of local time, moments with the kind that begins then)."""
    zone = ZoneInfo(name)

    def kind(seconds: int) -> tuple[int, int, str]:
        local = datetime.fromtimestamp(seconds, UTC).astimezone(zone)
        offset, dst = local.utcoffset(), local.dst()
        assert offset is not None
        return int(offset.total_seconds()), int(bool(dst)), str(local.tzname())[:8]

    kinds, changes = [kind(0)], [(0, 0)]
    step, end = int(_STEP.total_seconds()), int(datetime(2037, 12, 31, tzinfo=UTC).timestamp())
    before = kinds[0]
    for at in range(step, end, step):
        found = kind(at)
        if found == before:
            continue
        new = found
        first = bisect.bisect_left(range(at - step, at), 1, key=lambda second: kind(second) == new)
        if found not in kinds:
            kinds.append(found)
        changes.append((at - step + first, kinds.index(found)))
        before = found
    return kinds, changes


# ── rows ────────────────────────────────


@contextmanager
def unusual_defaults(server: Database) -> Iterator[None]:
    """The server's own time zone and character set are not those the product reads with."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@global.time_zone, @@global.sql_mode")
        zone, mode = cursor.fetchone() or ("", "")
        cursor.execute("SET GLOBAL time_zone = 'Europe/Berlin'")
        cursor.execute("SET GLOBAL sql_mode = 'PAD_CHAR_TO_FULL_LENGTH,ANSI_QUOTES,NO_BACKSLASH_ESCAPES'")
        try:
            yield
        finally:
            cursor.execute("SET GLOBAL time_zone = %s", (zone,))
            cursor.execute("SET GLOBAL sql_mode = %s", (mode,))


def write(server: Database, schema: str, table: RandomTable) -> None:
    """Rows of a table, written by sessions of every time zone and character set in turn."""
    marks = ",".join(kind.insert for kind in table.kinds)
    with session(server, schema, conv=dict(converters.encoders)) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS t")
        cursor.execute(table.ddl("t"))
        share = -(-len(table.rows) // len(ZONES))
        for number, (zone, charset) in enumerate(zip(ZONES, CHARSETS, strict=True)):
            cursor.execute("SET time_zone = %s", (zone,))
            connection.set_character_set(charset)
            for key in range(number * share, min((number + 1) * share, len(table.rows))):
                _insert(cursor, f"INSERT IGNORE INTO t VALUES (%s,{marks})", (key, *table.rows[key]))


def _insert(cursor: Any, sql: str, row: tuple[Any, ...]) -> None:
    """The row; what its session's character set cannot say is left as a question mark, or the row out."""
    encoding = cursor.connection.encoding
    sayable = tuple(
        value.encode(encoding, "replace").decode(encoding) if isinstance(value, str) else value for value in row
    )
    cursor.execute(sql, tuple(str(value) if type(value).__name__ == "Decimal" else value for value in sayable))


def compare(
    server: Database, schema: TableSchema, events: list[RowsEvent], modes: tuple[ValueModes, ...]
) -> int:
    """Encode the table's rows from the log and from a SELECT in every mode and format; the values compared."""
    connector: Literal["mysql", "mariadb"] = "mariadb" if server.flavour == "mariadb" else "mysql"
    source = SourceSettings(
        host=server.host, port=server.port, user=server.user, password=server.password, tables=("x",)
    )
    compared = 0
    connection = connect(ServerAccess.of(source))  # pinned, as the product's are
    try:
        for mode, fmt in product(modes, FORMATS):
            constants = SourceConstants("v", connector, PREFIX, mode)
            log_codec = TableCodec(schema, events[0].layout, WireSchemas(fmt, 7, 8), constants)
            logged = [log_codec.encode_rows(e.buf, e.start, e.end, event_context(e.op)) for e in events]
            chunk_codec = TableCodec(schema, None, WireSchemas(fmt, 7, 8), constants)
            query = f"SELECT * FROM {schema.full_name} ORDER BY id"
            read = chunk_records(chunk_codec, connection, query)
            end = b',"source":' if fmt == "json" else b"\x02v" + bytes([2 * len(connector)]) + connector.encode()
            ours = {k: v for r in logged for k, v in zip(keys_of(r), values_of(r), strict=True)}
            theirs = {k: v for r in read for k, v in zip(keys_of(r), values_of(r), strict=True)}
            assert ours.keys() == theirs.keys(), f"{server.name} {fmt} {mode}: other keys"
            for key, value in ours.items():
                after, other = _after(value, end), _after(theirs[key], end)
                assert after == other, f"{server.name} {fmt} {mode} key {key!r}:\n{after!r}\n{other!r}"
            compared += len(ours) * len(schema.columns)
    finally:
        connection.close()
    return compared


def _after(value: bytes | None, end: bytes) -> bytes:
    """The bytes of `before` (null) and `after`, up to the source block."""
    assert value is not None
    assert end in value
    return value[: value.rindex(end)]


def run(server: Database, schema_name: str, modes: tuple[ValueModes, ...] = MODES) -> int:
    """All types of a server; the number of values compared."""
    fill_time_zones(server)
    compared = 0

    @settings(
        max_examples=1, deadline=None, derandomize=True, database=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def one(found: list[RandomTable]) -> None:
        nonlocal compared
        for table in found:
            start = log_position(server)
            write(server, schema_name, table)
            events = rows_events(server, start, "t")
            with session(server, schema_name) as connection:
                schema = read_table_schema(connection, schema_name, "t")
            assert schema is not None
            compared += compare(server, schema, events, modes)

    with unusual_defaults(server):
        for offered in OFFERED.get(server.name, MARIADB):
            given(tables(offered))(one)()
    return compared


def some_modes(seed: int, count: int) -> tuple[ValueModes, ...]:
    """The defaults and some others."""
    return (ValueModes(), *Random(seed).sample(MODES, count))


def main(names: list[str]) -> None:
    """All modes on each server."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    for name in names or SERVERS:
        with (
            tempfile.TemporaryDirectory(prefix="tidemark-bytes-") as folder,
            start_database(name, Path(folder)) as server,
        ):
            with server.connect() as connection, connection.cursor() as cursor:
                cursor.execute("CREATE DATABASE b CHARACTER SET utf8mb4")
            count = run(server, "b")
        print(f"byte identity: {name}: {count:,} values compared in {len(MODES)} modes, 0 differ")


if __name__ == "__main__":
    main(sys.argv[1:])
