"""Change records become rows of a target, and its server says that they equal the source's rows."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from itertools import pairwise
from random import Random
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as profile

from devservers import Database
from kafkaio.schema_registry import HttpRegistry
from mysqlio.information_schema import read_table_schema
from mysqlio.quoting import qualified, quoted
from schemas.applied.avro_decoding import AvroDecoder, parsed
from schemas.avro import to_avro
from schemas.columns import Column, ColumnType, Mask, TableSchema
from schemas.connect_types import PRECISE, ValueModes
from schemas.errors import ConfigError, DecodeError
from schemas.settings import Settings, from_mapping
from schemas.topics import change_topic
from schemas.types.column_facts import SPATIAL_TYPES
from schemas.types.connect import value_schema
from spark_jobs.replicate.rows.row_events import RowEvent
from spark_jobs.replicate.rows.row_texts import KernelTexts
from spark_jobs.replicate.rows.row_values import RowDecoder, RowRecord, is_refused_if_strict
from tests.codec.kinds import character_kinds, character_pool
from tests.codec.oracle import session
from tests.codec.random_tables import RandomTable, tables
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database
from tests.support.topics import Record, read_topics
from tests.verify.all_types import WITH_VECTORS

STRICT = "STRICT_TRANS_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO"
ROWS = 60
FLOATS = (ColumnType.FLOAT, ColumnType.DOUBLE)


@pytest.fixture(params=["mysql80", "mariadb114"])
def source(request, kafka, fresh_database) -> Iterator[Source]:
    server = database(request.param)
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    yield created
    created.connection.close()


def settings_of(source: Source, registry: str, **wire: Any) -> Settings:
    return from_mapping(
        {**source.mapping(), "format": {"type": "avro", "registry": registry, **wire}, "order": {"group": "shop"}}
    )


class Target:
    """Tables on a server that are written from change records alone."""

    def __init__(self, server: Database, schema: str, registry: str, modes: ValueModes = PRECISE) -> None:
        self.server, self.schema, self.modes = server, schema, modes
        self.decoder = RowDecoder(HttpRegistry(registry).text_of)
        self.lenient = 0

    def table(self, name: str) -> TableSchema:
        with self.server.connect() as connection:
            table = read_table_schema(connection, self.schema, name)
        assert table is not None
        return table

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        with session(self.server, self.schema) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def insert(self, name: str, records: Sequence[Record], filled: frozenset[str] = frozenset()) -> None:
        """Insert the new row of each record; `lenient` counts those that a strict session refuses."""
        table = self.table(name)
        with session(self.server, self.schema) as connection, connection.cursor() as cursor:
            for record in records:
                assert record.wire is not None
                assert record.wire.value is not None
                change = self.decoder.decode(record.wire.value, record.wire.headers)
                assert change.after is not None
                columns = self.decoder.columns(change.schema_id, table, filled, self.modes)
                is_lenient = is_refused_if_strict(columns, change.after)
                self.lenient += is_lenient
                cursor.execute("SET SESSION sql_mode = %s", (STRICT.partition(",")[2] if is_lenient else STRICT,))
                names = ", ".join(quoted(column.name) for column in columns)
                values = b", ".join(column.literal(change.after) for column in columns)
                cursor.execute(f"INSERT INTO {qualified(name)} ({names}) VALUES (".encode() + values + b")")
            connection.commit()


def bytes_of(column: Column) -> str:
    """SQL of a value's bytes. The text of a FLOAT or DOUBLE has fewer digits than the number."""
    name = quoted(column.name)
    return f"HEX({name})" if column.type in SPATIAL_TYPES else f"HEX(CAST({name} AS BINARY))"


def require_equal(source: Source, target: Target, names: Sequence[str], records: dict[str, list[Record]]) -> None:
    """Insert the rows into copies of the tables on the same server, which compares every value."""
    for name in names:
        require_same_texts(target, source.schema, name, [record.wire for record in records[name]])
        target.execute(f"CREATE TABLE {qualified(name)} LIKE {qualified(source.schema, name)}")
        target.insert(name, records[name])
    for name in names:
        require_same_rows(source, target, name)


def require_same_texts(target: Target, schema: str, name: str, wires: Sequence[Any]) -> None:
    """Kernels write the bytes that Python writes, of inserts, and of updates and deletes that are made of the same rows."""
    decoder = target.decoder
    values = [wire.value for wire in wires]
    assert decoder.heads(values) == [decoder.head(value) for value in values]
    with target.server.connect() as connection:
        table = read_table_schema(connection, schema, name)
    assert table is not None
    schema_id = decoder.head(values[0]).schema_id
    columns = [one for one in decoder.columns(schema_id, table, modes=target.modes) if one.form is not None]
    events = events_of(decoder, values)
    texts = KernelTexts(decoder.schema(schema_id), columns, columns[:1]).of(events)
    assert texts is not None, "Python has to write these"
    for event, text in zip(events, texts, strict=True):
        old = None if event.before is None else decoder.old_row(event.before)
        new = None if event.after is None else decoder.new_row(event.after)
        literals = [one.literal(new) for one in columns] if new is not None else []
        assert text.values == (b"(%b)" % b",".join(literals) if literals else b"")
        assert text.old_key == (b"" if old is None else b"(%d)" % old["id"])
        assert text.new_key == (b"" if new is None else b"(%d)" % new["id"])
        changed = [one for one in columns if old and new and repr(old[one.field]) != repr(new[one.field])]
        assert text.is_changed == bool(changed)
        assigned = [b"%b=%b" % (quoted(one.name).encode(), one.literal(new)) for one in changed or columns[:1] if old and new]
        assert text.changes == b",".join(assigned)
        assert text.is_strict == (new is None or not is_refused_if_strict(columns, new))


def events_of(decoder: RowDecoder, values: Sequence[bytes]) -> list[RowEvent]:
    """Inserts as they are, updates of each row to the next by one record and by two, and a delete of each."""
    events: list[RowEvent] = []
    for value, other in pairwise([*values, values[0]]):
        head = decoder.head(value)
        # All are of fastavro: it writes some numbers in more bytes than the producer does.
        inserted, deleted = (RowRecord(changed(decoder, value, op, *rows)) for op, rows in (("c", (None, value)), ("d", (value, None))))
        updated = RowRecord(changed(decoder, value, "u", value, other))
        for op, before, after in (("c", None, inserted), ("u", updated, updated), ("d", deleted, None), ("u", deleted, inserted)):
            events.append(RowEvent(head.position, op, head.table, head.schema_id, before, after, checks_keys=True))
    return events


def changed(decoder: RowDecoder, value: bytes, op: str, before: bytes | None, after: bytes | None) -> bytes:
    """The record of another operation, with the new rows of two records."""
    envelope = AvroDecoder(lambda ident: json.dumps(decoder.schema(ident))).decode(value)
    rows = [None if one is None else decoder.new_row(RowRecord(one)) for one in (before, after)]
    out = BytesIO(value[:5])
    out.seek(5)
    payload = {**envelope.payload, "op": op, "before": rows[0], "after": rows[1]}
    fastavro.schemaless_writer(out, parsed(decoder.schema(envelope.schema_id)), payload)
    return out.getvalue()


def require_same_rows(source: Source, target: Target, name: str) -> None:
    """The server says that two of its tables have the same rows."""
    different: list[tuple[Any, ...]] = []
    theirs, ours = qualified(source.schema, name), qualified(target.schema, name)
    counts = target.execute(f"SELECT (SELECT COUNT(*) FROM {theirs}), (SELECT COUNT(*) FROM {ours})")[0]
    assert counts[0] == counts[1]
    for column in target.table(name).columns:
        s, t = (bytes_of(column).replace("`", f"{side}.`", 1) for side in "st")
        unequal = f"NOT ({s} <=> {t})"
        if column.type in FLOATS:
            unequal += f" OR NOT (s.{quoted(column.name)} <=> t.{quoted(column.name)})"
        rows = target.execute(f"SELECT s.id, {s}, {t} FROM {theirs} s LEFT JOIN {ours} t ON s.id = t.id WHERE {unequal}")
        if column.type is ColumnType.JSON:
            rows = [row for row in rows if not is_nearly(as_json(row[1]), as_json(row[2]))]
        different += [(column, *row) for row in rows]
    assert not different, (name, Counter(one[0].type for one in different), different[:3])


# ---- rows


def random_tables(group: str) -> dict[str, RandomTable]:
    """Tables of all column kinds of a group, with random rows; each call returns the same."""
    drawn: list[RandomTable] = []

    @profile(
        max_examples=2,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(example=tables(group, ROWS))
    def draw(example: list[RandomTable]) -> None:
        drawn.extend(example)

    draw()
    return {f"t{index}": table for index, table in enumerate(drawn)}


def insert_random(source: Source, made: dict[str, RandomTable]) -> None:
    with session(source.server, source.schema) as connection, connection.cursor() as cursor:
        for name, table in made.items():
            marks = ",".join(kind.insert for kind in table.kinds)
            rows = [(index, *row) for index, row in enumerate(table.rows)]
            cursor.executemany(f"INSERT INTO {name} VALUES (%s,{marks})", rows)
        connection.commit()


def published(
    source: Source, settings: Settings, ddl: dict[str, str], insert: Callable[[], None]
) -> dict[str, list[Record]]:
    """Create the tables, insert rows while a producer runs, and return the records of each table."""
    source.execute(SIGNAL, *ddl.values())
    with running(settings) as run:
        run.caught_up(source)
        insert()
        run.caught_up(source)
    topics = {name: change_topic(settings.name, source.schema, name) for name in ddl}
    records = read_topics(settings.kafka.bootstrap_servers, list(topics.values()))
    return {name: records[topic] for name, topic in topics.items()}


def published_at_random(source: Source, settings: Settings, made: dict[str, RandomTable]) -> dict[str, list[Record]]:
    ddl = {name: table.ddl(name) for name, table in made.items()}
    return published(source, settings, ddl, lambda: insert_random(source, made))


class Edges:
    """A table by hand: (column definition, literals of its rows)."""

    def __init__(self, columns: Sequence[tuple[str, tuple[str, ...]]]) -> None:
        self.ddl = "CREATE TABLE t (id INT PRIMARY KEY" + "".join(f", c{i} {one[0]}" for i, one in enumerate(columns)) + ")"
        count = max(len(values) for _, values in columns)
        rows = [[values[row % len(values)] for _, values in columns] for row in range(count)]
        self.rows = [f"INSERT INTO t VALUES ({row}, {', '.join(values)})" for row, values in enumerate(rows)]

    def insert(self, source: Source) -> None:
        with session(source.server, source.schema) as connection, connection.cursor() as cursor:
            for sql in self.rows:
                cursor.execute(sql)
            connection.commit()


ALL_BYTES = f"x'{bytes(range(256)).hex()}'"
TEXTS = ("''", "NULL", "'\U0001f600'", r"'\\\'\"\0\Z\n\r%_ '", "'null'", r"'\\'")
EDGES = [
    ("DOUBLE", ("-0e0", "5e-324", "-1.7976931348623157e308", "2.2250738585072011e-308", "0.1", "1e23", "9007199254740993", "NULL")),
    ("FLOAT", ("-0e0", "1e-45", "-3.40282346e38", "1.17549421e-38", "0.1", "16777217", "1e10")),
    ("DECIMAL(65,30)", (f"-{'9' * 35}.{'9' * 30}", f"0.{'0' * 29}1", "0", "NULL")),
    ("BIT(64)", ("~0", "0", "b'1'", f"{1 << 63}")),
    ("BIT(1)", ("b'1'", "b'0'", "NULL")),
    ("TINYINT(1)", ("-128", "1", "0", "127")),
    ("BIGINT UNSIGNED", (f"{(1 << 64) - 1}", f"{1 << 63}", "0")),
    ("YEAR", ("0", "1901", "2155", "NULL")),
    ("DATE", ("'0000-00-00'", "'2024-02-30'", "'2024-00-31'", "'0000-02-29'", "'0000-01-01'", "'0001-01-01'", "'9999-12-31'", "'1969-12-31'", "'2000-02-29'")),
    ("DATE NOT NULL", ("'0000-00-00'", "'2024-02-30'", "'1970-01-01'")),
    ("DATETIME(1) NOT NULL DEFAULT '2000-01-01'", ("'0000-00-00 00:00:00'", "'2024-02-30 23:59:59.9'", "'2024-00-10 00:00:00.1'")),
    ("TIMESTAMP(3) NOT NULL DEFAULT '2000-01-01'", ("'0000-00-00 00:00:00'", "'1970-01-01 00:00:01'")),
    ("DATETIME(6)", ("'0000-01-01 00:00:00'", "'9999-12-31 23:59:59.999999'", "'1969-12-31 23:59:59.999999'")),
    ("TIMESTAMP(6) NULL", ("'1970-01-01 00:00:01'", "'2038-01-19 03:14:07.999999'", "NULL")),
    ("TIMESTAMP NULL", ("'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'")),
    ("TIME(6)", ("'-838:59:59'", "'838:59:59'", "'-00:00:00.000001'", "'00:00:00'", "'-838:59:58.999999'")),
    ("TIME", ("'-838:59:59'", "'-00:00:01'", "'23:59:59'")),
    ("VARCHAR(20) CHARACTER SET utf8mb4", TEXTS),
    ("TEXT CHARACTER SET utf8mb4", (*TEXTS, "REPEAT('\U0001f600', 9000)")),
    ("CHAR(3) CHARACTER SET ucs2 COLLATE ucs2_bin", ("'ab '", "''", "'\\0'")),
    ("VARCHAR(20) CHARACTER SET gbk COLLATE gbk_bin", ("'中文'", r"'誠\\'", "''")),
    ("VARCHAR(20) CHARACTER SET sjis", ("'表'", r"'ソ\\'", "''")),
    ("VARCHAR(300) CHARACTER SET latin1", (f"_latin1 {ALL_BYTES}", "'€'")),
    ("BLOB", (ALL_BYTES, "''", "NULL", r"'\\\''")),
    ("BINARY(5)", ("x'0000'", "x'2020'", "''")),
    ("ENUM('a','','1')", ("'a'", "''", "'1'", "NULL")),
    ("ENUM('a','b')", ("'a'", "'its error value'", "NULL")),
    (f"SET({','.join(repr(f's{n}') for n in range(64))})", ("''", "'s63,s0'", f"{(1 << 64) - 1}", "NULL")),
    ("GEOMETRY", ("ST_GeomFromText('POINT(10 20)', 4326)", "ST_GeomFromText('GEOMETRYCOLLECTION EMPTY')", "NULL")),
    ("POINT", ("ST_GeomFromText('POINT(-0.0 1e-300)')", "ST_GeomFromText('POINT(1 2)', 3857)")),
    ("JSON", ("'[18446744073709551615, -9223372036854775808, 1e308, 0.1, 1.0, {\"\": \"\\\\u0000\"}]'", "'null'", "NULL", "'\"\U0001f600\"'")),
]  # fmt: skip
OPAQUE = ("JSON", ("JSON_ARRAY(CAST(x'00ff' AS BINARY), CAST('2024-02-03' AS DATE), TIME'-01:02:03', b'1')",))
"""JSON of MySQL with values that JSON has no type for: they arrive as the strings by which the server prints them."""
LATER_TIME = ("TIME(6)", ("'838:59:59.999999'", "'-838:59:59.999999'"))
"""MariaDB's last TIMEs."""


# ---- tests


def test_each_type_arrives_as_the_source_has_it(source, registry, fresh_database) -> None:
    made = random_tables(source.server.flavour)
    records = published_at_random(source, settings_of(source, registry.url), made)
    target = Target(source.server, fresh_database(source.server), registry.url)
    require_equal(source, target, list(made), records)


def test_each_character_set_arrives_as_the_source_has_it(source, registry, fresh_database) -> None:
    with source.connection.cursor() as cursor:
        cursor.execute("SHOW CHARACTER SET")
        listed = {str(row[0]) for row in cursor.fetchall()} - {"binary"}
    kinds = [kind for charset in sorted({"utf8": "utf8mb3"}.get(name, name) for name in listed) for kind in character_kinds(charset)]
    dice = Random(20240601)
    pools = [character_pool(kind, dice) for kind in kinds]
    rows = tuple(tuple(dice.choice(pool) for pool in pools) for _ in range(ROWS))
    made = {"t": RandomTable(tuple(kinds), (True,) * len(kinds), rows)}
    records = published_at_random(source, settings_of(source, registry.url), made)
    require_equal(source, Target(source.server, fresh_database(source.server), registry.url), ["t"], records)


def test_the_ends_of_each_type_arrive_as_the_source_has_them(source, registry, fresh_database) -> None:
    edges = Edges([*EDGES, OPAQUE if source.server.flavour == "mysql" else LATER_TIME])
    records = published(source, settings_of(source, registry.url), {"t": edges.ddl}, lambda: edges.insert(source))
    target = Target(source.server, fresh_database(source.server), registry.url)
    require_equal(source, target, ["t"], records)
    assert target.lenient > 0, "no ENUM had its error value"


@pytest.mark.parametrize("source", WITH_VECTORS, indirect=True)
def test_vectors_arrive_as_the_source_has_them(source, registry, fresh_database) -> None:
    edges = Edges([("VECTOR(2)", ("x'0000C03FCDCCCCBD'", "x'0000008001000000'", "NULL"))])
    records = published(source, settings_of(source, registry.url), {"t": edges.ddl}, lambda: edges.insert(source))
    require_equal(source, Target(source.server, fresh_database(source.server), registry.url), ["t"], records)


@pytest.mark.parametrize("source", ["mysql80"], indirect=True)
@pytest.mark.parametrize("binary", ["hex", "base64", "base64-url-safe"])
def test_modes_that_lose_nothing_give_the_same_rows(source, registry, fresh_database, binary) -> None:
    settings = settings_of(source, registry.url, decimal="string", bigint_unsigned="long", binary=binary, time="microseconds")
    edges = Edges(EDGES)
    records = published(source, settings, {"t": edges.ddl}, lambda: edges.insert(source))
    modes = ValueModes(bigint_unsigned="long", binary=binary)
    require_equal(source, Target(source.server, fresh_database(source.server), registry.url, modes), ["t"], records)


@pytest.mark.parametrize("source", ["mysql80"], indirect=True)
def test_a_mariadb_gets_the_rows_of_a_mysql(source, registry, fresh_database) -> None:
    made = random_tables("mysql")
    records = published_at_random(source, settings_of(source, registry.url), made)
    other = database("mariadb114")
    target = Target(other, fresh_database(other), registry.url)
    different = []
    for name, table in made.items():
        target.execute(table.ddl(name))
        target.insert(name, records[name])
        for column, kind in zip(target.table(name).columns[1:], table.kinds, strict=True):
            shown = f"{quoted(column.name)}*1e0" if column.type in FLOATS else bytes_of(column)
            sql = f"SELECT id, {shown} FROM {name} ORDER BY id"
            with session(source.server, source.schema) as connection, connection.cursor() as cursor:
                cursor.execute(sql)
                pairs = list(zip(cursor.fetchall(), target.execute(sql), strict=True))
            if kind.column.type is ColumnType.JSON:
                pairs = [((one[0], as_json(one[1])), (other[0], as_json(other[1]))) for one, other in pairs]
            different += [(kind.sql, *pair) for pair in pairs if pair[0] != pair[1]]
    assert not different, (Counter(one[0] for one in different), different[:3])


def is_nearly(one: Any, other: Any) -> bool:
    """Whether documents are equal but for the last places of doubles: MySQL's parser of JSON misses the nearest one by some."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_nearly(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_nearly, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-14)
    return type(one) is type(other) and one == other


def as_json(text: str | None) -> Any:
    return None if text is None else json.loads(bytes.fromhex(text))


# ---- refusals


def decoder_of(*columns: Column, modes: ValueModes = PRECISE, **facts: Any) -> tuple[RowDecoder, TableSchema]:
    """A decoder that knows the schema of one table, and the table."""
    table = TableSchema("shop", "orders", (Column("id", ColumnType.INT, nullable=False), *columns), ("id",), **facts)
    text = to_avro(value_schema(table, "srv", "mysql", modes))
    return RowDecoder(lambda _: text), table


@pytest.mark.parametrize(
    ("column", "modes", "setting"),
    [
        (Column("c", ColumnType.DECIMAL, nullable=True, precision=9, scale=2), ValueModes(decimal="double"), "format.decimal"),
        (Column("c", ColumnType.BLOB, nullable=True), ValueModes(binary="hex"), "format.binary"),
        (Column("c", ColumnType.TIME, nullable=True), ValueModes(time="connect"), "format.time"),
        (Column("c", ColumnType.DATETIME, nullable=True, precision=6), ValueModes(time="nanoseconds"), "format.time"),
        (Column("c", ColumnType.TIME, nullable=True), ValueModes(time="isostring"), "format.time"),
    ],
)
def test_a_mode_that_loses_values_is_refused(column: Column, modes: ValueModes, setting: str) -> None:
    decoder, table = decoder_of(column, modes=modes)
    with pytest.raises(ConfigError, match=rf"shop\.orders\.c: {setting} is .*: set .* at the producer"):
        decoder.columns(7, table)


def test_masked_and_missing_columns_are_refused() -> None:
    column = Column("c", ColumnType.VARCHAR, nullable=True, length=9, charset="utf8mb4")
    decoder, table = decoder_of(column, masks=(("c", Mask("asterisks", 3)),))
    with pytest.raises(ConfigError, match=r"shop\.orders\.c: its values are masked: remove the column from records\.column_mask"):
        decoder.columns(7, table)
    decoder, table = decoder_of(column, dropped=frozenset({"c"}))
    with pytest.raises(ConfigError, match=r"shop\.orders\.c: the records have no values of it: check records\.column_include_list"):
        decoder.columns(7, table)
    assert [one.name for one in decoder.columns(7, table, frozenset({"c"}))] == ["id"]


def test_a_column_is_found_by_the_name_that_avro_allows() -> None:
    decoder, table = decoder_of(Column("2024-total", ColumnType.INT, nullable=True))
    column = decoder.columns(7, table)[1]
    assert (column.name, column.literal({"_2024_total": 5}), column.literal({"_2024_total": None})) == ("2024-total", b"5", b"NULL")


def test_a_value_without_an_envelope_is_refused() -> None:
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]})
    with pytest.raises(DecodeError, match="schema id 7 has no envelope"):
        RowDecoder(lambda _: text).decode(b"\0\0\0\0\x07\x02")
