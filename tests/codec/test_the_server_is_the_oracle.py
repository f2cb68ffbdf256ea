"""Random tables and values: SELECT, binlog and chunk report the same, and binlog and chunk are byte-identical."""

from __future__ import annotations

import base64
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pymysql import converters
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import WriteRowsEvent

from devservers import Database
from producer.source.dump import StreamStart
from schemas.columns import Column, ColumnType, TableSchema
from schemas.types.column_defaults import decimal_digits
from schemas.types.column_facts import ADDRESS_TYPES, SPATIAL_TYPES
from tests.codec.kinds import Kind, character_kinds, character_pool, exact_decimal
from tests.codec.oracle import (
    Reader,
    chunk_records,
    event_context,
    keys_of,
    log_position,
    make_codec,
    rows_events,
    session,
    values_of,
)
from tests.codec.random_tables import JIT, ROWS, RandomTable, tables
from tests.support.servers import database, drop_database, new_database

FORMATS: tuple[Literal["avro", "json", "json_schema"], ...] = ("avro", "json", "json_schema")
EXAMPLES = (2, pytest.param(3, marks=pytest.mark.slow)) if JIT else (1,)
WITH_SECOND_OPINION = JIT
_BITS = {
    ColumnType.TINYINT: 8,
    ColumnType.SMALLINT: 16,
    ColumnType.MEDIUMINT: 24,
    ColumnType.INT: 32,
    ColumnType.BIGINT: 64,
}


# Local time; Python objects; 0000 becomes 1900; the bytes as they are in the log.
_UNTOLD = frozenset(
    {ColumnType.TIMESTAMP, ColumnType.JSON, ColumnType.YEAR, ColumnType.VECTOR, *SPATIAL_TYPES, *ADDRESS_TYPES}
)


def normal(column: Column, found: Any, fmt: str) -> Any:
    """A decoded value of a record as `Kind.read` gives it."""
    if found is None or fmt == "avro":
        return found
    kind = column.type
    if kind in SPATIAL_TYPES:
        return found | {"wkb": base64.b64decode(found["wkb"])}
    if kind is ColumnType.VECTOR:
        return [float(np.float32(value)) for value in found]
    if kind is ColumnType.DECIMAL or (kind is ColumnType.BIGINT and column.unsigned):
        scale = decimal_digits(column)[1] if kind is ColumnType.DECIMAL else 0
        return exact_decimal(int.from_bytes(base64.b64decode(found), "big", signed=True), scale)
    binary = kind in (ColumnType.BINARY, ColumnType.VARBINARY) or kind.value.endswith("blob")
    if binary or (kind is ColumnType.BIT and column.length != 1):
        return base64.b64decode(found)
    return found


def expected(kind: Kind, column: Column, reported: Any) -> Any:
    """What SELECT reported, as the record must have it."""
    value = None if reported is None else kind.read(reported)
    if value is None and not column.nullable:
        return "1970-01-01T00:00:00Z" if kind.column.type is ColumnType.TIMESTAMP else 0
    return value


def same(kind: Kind, wanted: Any, found: Any) -> bool:
    """Equal, floats by the bits of their width; of DOUBLE(M,D) the server shows D digits only."""
    scale = kind.column.scale
    if isinstance(wanted, float) and scale is not None:
        return bool(round(found, scale) == round(wanted, scale))
    if isinstance(wanted, float) and kind.column.type is ColumnType.FLOAT:
        return np.float32(wanted).tobytes() == np.float32(found).tobytes()
    if isinstance(wanted, float):
        return np.float64(wanted).tobytes() == np.float64(found).tobytes()
    return bool(wanted == found and type(wanted) is type(found))


def check(table: RandomTable, server_name: str, schema_name: str, *, second: bool) -> int:
    """Insert, read back by all ways, compare. Returns on how many rows mysql-replication had its say."""
    server = database(server_name)
    connector: Literal["mysql", "mariadb"] = "mariadb" if server.flavour == "mariadb" else "mysql"
    schema = table.schema(schema_name, "t")
    start = log_position(server)
    with (
        session(server, schema_name, conv=dict(converters.encoders)) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("DROP TABLE IF EXISTS t")
        cursor.execute(table.ddl("t"))
        marks = ",".join(kind.insert for kind in table.kinds)
        sql = f"INSERT INTO t VALUES (%s,{marks})"
        for first in range(0, len(table.rows), 50):
            block = [(first + index, *row) for index, row in enumerate(table.rows[first : first + 50])]
            cursor.executemany(sql, [tuple(_literal(value) for value in row) for row in block])
        names = ", ".join(kind.select.format(f"c{index}") for index, kind in enumerate(table.kinds))
        cursor.execute(f"SELECT id, {names} FROM t ORDER BY id")
        reported = cursor.fetchall()
        events = rows_events(server, start, "t")
        others: list[dict[str, Any] | None] = [None] * len(reported)
        if second:
            others = second_opinion(schema, server, start, len(reported))
        assert [len(row) for row in reported] == [len(table.kinds) + 1] * len(table.rows)
        for fmt in FORMATS:
            reader = Reader(schema, fmt, connector)
            binlog_codec = make_codec(schema, events[0].layout, fmt, connector)
            logged = [binlog_codec.encode_rows(e.buf, e.start, e.end, event_context(e.op)) for e in events]
            chunk_codec = make_codec(schema, None, fmt, connector)
            read = chunk_records(chunk_codec, connection, "SELECT * FROM t ORDER BY id")
            changes = [value for records in logged for value in values_of(records)]
            rows = [value for records in read for value in values_of(records)]
            assert len(changes) == len(rows) == len(reported)
            assert [k for r in logged for k in keys_of(r)] == [k for r in read for k in keys_of(r)]
            for change, row, line, other in zip(changes, rows, reported, others, strict=True):
                assert change is not None
                assert row is not None
                assert reader.after_bytes(change) == reader.after_bytes(row)
                after = reader.value(change)["after"]
                for index, kind in enumerate(table.kinds):
                    column = schema.columns[index + 1]
                    wanted = expected(kind, column, line[index + 1])
                    found = normal(column, after[column.name], fmt)
                    assert same(kind, wanted, found), (
                        kind.sql,
                        column.nullable,
                        line[index + 1],
                        wanted,
                        found,
                    )
                    if fmt == "avro" and other is not None:
                        guess = opinion(kind, column, other[column.name])
                        is_zero_date = wanted == 0 and guess is None
                        assert guess is ... or is_zero_date or same(kind, guess, found), (
                            kind.sql,
                            guess,
                            found,
                        )
    return sum(other is not None for other in others)


def second_opinion(
    schema: TableSchema, server: Database, start: StreamStart, rows: int
) -> list[dict[str, Any] | None]:
    """The rows as mysql-replication reads them from the log; None where it cannot (an impossible date or some JSON stops it)."""
    stream = BinLogStreamReader(
        {"host": server.host, "port": server.port, "user": server.user, "password": server.password},
        server_id=78,
        only_events=[WriteRowsEvent],
        only_schemas=[schema.database],
        log_file=start.file,
        log_pos=start.pos,
        resume_stream=True,
    )
    try:
        return [row["values"] for event in stream if event.table == "t" for row in event.rows]
    except (ValueError, LookupError):
        return [None] * rows
    finally:
        stream.close()


def opinion(kind: Kind, column: Column, value: Any) -> Any:  # noqa: PLR0911  one line per type
    """A value of mysql-replication as the record must have it; `...` where it has no such value."""
    found = column.type
    if value is None:
        return (
            ... if found in (ColumnType.SET, ColumnType.JSON) else None
        )  # '' and the document null are reported as None
    if value == "" and (found.value.endswith("blob") or found in (ColumnType.BINARY, ColumnType.VARBINARY)):
        value = b""
    if found is ColumnType.DATE:
        return (value - date(1970, 1, 1)).days
    if found is ColumnType.DATETIME:
        unit = timedelta(milliseconds=1) if (column.precision or 0) <= 3 else timedelta(microseconds=1)
        return (value - datetime(1970, 1, 1)) // unit
    if found is ColumnType.TIME:
        is_reported_wrong = (
            value < timedelta(0) and column.precision
        )  # the fraction is added instead of subtracted
        return ... if is_reported_wrong else value // timedelta(microseconds=1)
    if found is ColumnType.BIT:
        bits = int(value, 2)
        return bool(bits) if column.length == 1 else bits.to_bytes(((column.length or 1) + 7) // 8, "little")
    if found is ColumnType.SET:
        return ",".join(member for member in column.members if member in value)
    if found is ColumnType.BINARY:
        return value.ljust(column.length or 0, b"\0")
    if found in _UNTOLD:
        return ...
    if found in _BITS:
        return integer_opinion(column, value)
    if column.charset not in (None, "utf8mb4", "utf8mb3", "ascii"):
        return ...  # read with Python's codec of a like name, which is not MySQL's table, or not at all
    return value


def integer_opinion(column: Column, value: int) -> int | Decimal:
    """An integer with the sign of its column: mysql-replication takes that of another one where it loses count of them."""
    bits = _BITS[column.type]
    natural = value % (1 << bits)
    if column.unsigned:
        return Decimal(natural) if column.type is ColumnType.BIGINT else natural
    return natural - (1 << bits) if natural >> (bits - 1) else natural


def test_an_opinion_about_an_integer_has_the_sign_of_its_column() -> None:
    signed, unsigned = Column("a", ColumnType.INT, False), Column("a", ColumnType.INT, False, unsigned=True)
    assert [integer_opinion(signed, value) for value in (2**31, -(2**31), 2**31 - 1, -1)] == [-(2**31), -(2**31), 2**31 - 1, -1]
    assert [integer_opinion(unsigned, value) for value in (2**31, -(2**31), -1)] == [2**31, 2**31, 2**32 - 1]


def _literal(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


@pytest.mark.filterwarnings(
    "ignore:'db' is deprecated:DeprecationWarning"
)  # mysql-replication's own connection
@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize(
    ("server_name", "offered"),
    [("mysql80", "mysql"), ("mariadb114", "mariadb"), ("mysql97", "mysql97"), ("mariadb114", "compressed")],
)
def test_binlog_chunk_and_select_agree_for_random_tables(server_name: str, offered: str, examples: int) -> None:
    server = database(server_name)
    schema_name = new_database(server)
    opinions = 0
    # mysql-replication knows neither VECTOR nor MariaDB's compressed columns
    has_opinion = WITH_SECOND_OPINION and offered in ("mysql", "mariadb")

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate,),  # shrinking against a server takes minutes; the message names the cell
        suppress_health_check=list(HealthCheck),
    )
    @given(found=tables(offered))
    def run(found: list[RandomTable]) -> None:
        nonlocal opinions
        for table in found:
            opinions += check(table, server_name, schema_name, second=has_opinion)

    try:
        run()
    finally:
        drop_database(server, schema_name)
    assert opinions >= (2 * ROWS if has_opinion else 0), "mysql-replication read too few tables"


@pytest.mark.filterwarnings("ignore:'db' is deprecated:DeprecationWarning")
@pytest.mark.parametrize("server_name", ["mysql80", "mariadb114"])
def test_binlog_chunk_and_select_agree_for_every_character_set_the_server_lists(server_name: str) -> None:
    server = database(server_name)
    schema_name = new_database(server)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW CHARACTER SET")
        listed = {str(row[0]) for row in cursor.fetchall()} - {"binary"}
    charsets = sorted({"utf8": "utf8mb3"}.get(name, name) for name in listed)
    assert len(charsets) >= 39
    kinds = [kind for charset in charsets for kind in character_kinds(charset)]
    random = Random(20240601)
    pools = [character_pool(kind, random) for kind in kinds]
    rows = tuple(tuple(random.choice(pool) for pool in pools) for _ in range(ROWS))
    try:
        whole = RandomTable(tuple(kinds), (True,) * len(kinds), rows)
        check(whole, server_name, schema_name, second=False)
    finally:
        drop_database(server, schema_name)
