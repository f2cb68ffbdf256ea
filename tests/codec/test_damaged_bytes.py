"""Damaged rows: only `DecodeError`, in bounded time, and never a byte from beyond the event's end.

Real rows of random tables with every column kind are cut, changed and lengthened at random. What is still
decoded must be well-formed, and must not depend on the bytes behind the event. The un-jitted leg checks every
bound of every unaligned load and block move as well (`rowcodec.memory`).
"""

from __future__ import annotations

import os
import time
from random import Random
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pymysql import converters

from rowcodec import TableCodec
from rowcodec.types import Format
from schemas.errors import DecodeError
from tests.codec.oracle import (
    Reader,
    chunk_context,
    event_context,
    log_position,
    make_codec,
    rows_events,
    session,
    values_of,
)
from tests.codec.random_tables import RandomTable, tables
from tests.support.servers import database, drop_database, new_database

JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"
ROWS = 12 if JIT else 3
MUTATIONS = 400 if JIT else 8
SLOWEST_S = 2.0 if JIT else 20.0
Op = Literal["c", "u", "d", "r"]


def damaged(data: bytes, random: Random) -> bytes:
    """One random damage: cut, bytes changed, a stretch removed, doubled or overwritten with extremes."""
    kind = random.randrange(6)
    at = random.randrange(len(data))
    if kind == 0:
        return data[:at]
    if kind == 1:
        changed = bytearray(data)
        for _ in range(random.choice([1, 1, 2, 4])):
            changed[random.randrange(len(data))] = random.randrange(256)
        return bytes(changed)
    if kind == 2:
        return data[:at] + data[at + random.randrange(1, 9) :]
    if kind == 3:
        return data[:at] + data[at : at + random.randrange(1, 40)] + data[at:]
    if kind == 4:
        return (
            data[:at]
            + bytes([random.choice([0, 0x7F, 0x80, 0xFB, 0xFE, 0xFF])]) * random.randrange(1, 6)
            + data[at + 4 :]
        )
    changed = bytearray(data)
    changed[at] ^= 1 << random.randrange(8)
    return bytes(changed)


def in_buffer(data: bytes, tail: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(b"\xa5" * 7 + data + tail, np.uint8).copy()


def run(codec: TableCodec, op: Op, data: bytes, tail: bytes) -> Any:
    """The records, or the error's text; both must not depend on `tail`."""
    buf = in_buffer(data, tail)
    end = buf.size - len(tail)
    try:
        if op == "r":
            return codec.encode_resultset(buf, 7, end, chunk_context())
        return codec.encode_rows(buf, 7, end, event_context(op))
    except DecodeError as error:
        return str(error)


def check(codec: TableCodec, reader: Reader, op: Op, data: bytes) -> bool:
    """Run one damaged sample; whether it was refused."""
    begin = time.process_time()
    found = run(codec, op, data, b"\0" * 40)
    again = run(codec, op, data, b"\xff" * 9)
    assert time.process_time() - begin < SLOWEST_S
    if isinstance(found, str):
        assert found == again
        assert "srv" not in found
        return True
    assert (found.values, found.keys) == (again.values, again.keys)
    for value in values_of(found):
        if value is not None:
            reader.value(value)
    return False


def samples(table: RandomTable, server_name: str, schema_name: str) -> list[tuple[Op, bytes, Any]]:
    """(op, bytes, layout) of the table's rows as insert, update, delete and as row packets."""
    server = database(server_name)
    start = log_position(server)
    rows = table.rows[:ROWS]
    with (
        session(server, schema_name, conv=dict(converters.encoders)) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("DROP TABLE IF EXISTS t")
        cursor.execute(table.ddl("t"))
        marks = ",".join(["%s"] * (len(table.kinds) + 1))
        values = [
            (index, *(str(v) if type(v).__name__ == "Decimal" else v for v in row))
            for index, row in enumerate(rows)
        ]
        cursor.executemany(f"INSERT INTO t VALUES ({marks})", values)
        from mysqlio.binary_query import BinaryQuery

        with BinaryQuery(connection, "SELECT * FROM t") as query:
            blocks = [bytes(buf[first:last]) for buf, first, last in query.blocks()]
        cursor.execute("UPDATE t SET id = id + 1000")
        cursor.execute("DELETE FROM t")
    events = rows_events(server, start, "t")
    found: list[tuple[Op, bytes, Any]] = [
        (event.op, bytes(event.buf[event.start : event.end]), event.layout) for event in events
    ]
    found += [("r", block, events[0].layout) for block in blocks]
    assert {op for op, _, _ in found} == {"c", "u", "d", "r"}
    return found


@pytest.mark.parametrize("server_name", ["mysql80", "mariadb114"])
def test_damaged_rows_are_refused_or_read_within_their_bounds(server_name: str) -> None:
    server = database(server_name)
    schema_name = new_database(server)
    connector: Literal["mysql", "mariadb"] = "mariadb" if server.flavour == "mariadb" else "mysql"
    cases = refused = 0

    @settings(
        max_examples=1,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(found=tables(server.flavour))
    def fuzz(found: list[RandomTable]) -> None:
        nonlocal cases, refused
        random = Random(20_261_121)
        for table in found:
            schema = table.schema(schema_name, "t")
            originals = samples(table, server_name, schema_name)
            for fmt in formats():
                codec = make_codec(schema, originals[0][2], fmt, connector)
                reader = Reader(schema, fmt, connector)
                for op, data, _ in originals:
                    assert not check(codec, reader, op, data)
                    for _ in range(MUTATIONS):
                        cases += 1
                        refused += check(codec, reader, op, damaged(data, random))

    def formats() -> tuple[Format, ...]:
        return ("avro", "json")

    try:
        fuzz()
    finally:
        drop_database(server, schema_name)
    assert cases >= MUTATIONS * 2 * 4 * 5
    assert refused > cases // 2
