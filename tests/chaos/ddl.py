"""DDL of every column type: columns come, go, change their type, and come back as another one."""

from __future__ import annotations

from typing import Final

import pymysql

from tests.chaos.world import World

_TYPES: Final = (
    ("TINYINT", "5"), ("SMALLINT UNSIGNED", "60000"), ("MEDIUMINT", "-8000000"), ("INT", "-7"), ("BIGINT", "9007199254740993"),
    ("BIGINT UNSIGNED", "18446744073709551615"), ("DECIMAL(20,4)", "12.5"), ("FLOAT", "0.25"), ("DOUBLE", "1e100"),
    ("BIT(1)", "1"), ("BIT(12)", "2049"), ("BOOLEAN", "1"), ("DATE", "'2024-02-29'"), ("DATETIME", "'2024-02-29 01:02:03'"),
    ("DATETIME(6)", "'2024-02-29 01:02:03.456789'"), ("TIMESTAMP NULL", "'2024-02-29 01:02:03'"),
    ("TIMESTAMP(3) NULL", "'2024-02-29 01:02:03.456'"), ("TIME", "'-12:34:56'"), ("TIME(6)", "'123:34:56.789'"), ("YEAR", "2024"),
    ("CHAR(5)", "'abc'"), ("VARCHAR(30)", "'2024-02-29'"), ("TEXT", "'text'"), ("ENUM('a','b','7')", "'b'"), ("SET('a','b')", "'a,b'"),
    ("JSON", "'{\"a\": [1, null]}'"), ("BINARY(4)", "'ab'"), ("VARBINARY(9)", "'ab'"), ("BLOB", "'blob'"),
    ("POINT", "ST_GeomFromText('POINT(1 2)')"),
)  # fmt: skip
_WIDENED: Final = (
    ("SMALLINT", "INT", "-3"), ("INT", "BIGINT", "7"), ("FLOAT", "DOUBLE", "0.5"), ("DECIMAL(8,2)", "DECIMAL(12,2)", "1.25"),
    ("DATE", "DATETIME", "'2024-02-29'"), ("INT", "DOUBLE", "4"), ("VARCHAR(10)", "TEXT", "'x'"), ("INT", "VARCHAR(20)", "9"),
)  # fmt: skip
_REFUSED: Final = frozenset({1205, 1213, 1265, 1292, 1366, 1406, 3140, 4025})
"""Lock waits, deadlocks, and values of rows that a changed type does not hold."""


def change_types(world: World) -> None:
    """Two to four statements of DDL on `wide`, each followed by rows that have values there."""
    for _ in range(world.rng.randint(2, 4)):
        world.serial += 1
        name = f"c{world.serial}"
        statements = world.rng.choice((_added, _added, _added_again, _widened, _swapped))(world, name)
        for statement in statements:
            try:
                world.execute(statement)
            except (pymysql.err.OperationalError, pymysql.err.DataError, pymysql.err.IntegrityError) as error:
                if error.args[0] not in _REFUSED:
                    raise
        world.pause(0, 2)


def _added(world: World, name: str) -> list[str]:
    kind, value = world.rng.choice(_TYPES)
    return [f"ALTER TABLE wide ADD COLUMN {name} {kind}", _set(world, name, value)]


def _added_again(world: World, name: str) -> list[str]:
    """Dropped, and added again with another type."""
    (first, one), (second, other) = world.rng.sample(_TYPES, 2)
    return [
        f"ALTER TABLE wide ADD COLUMN {name} {first}", _set(world, name, one), f"ALTER TABLE wide DROP COLUMN {name}",
        f"ALTER TABLE wide ADD COLUMN {name} {second}", _set(world, name, other),
    ]  # fmt: skip


def _widened(world: World, name: str) -> list[str]:
    narrow, wide, value = world.rng.choice(_WIDENED)
    return [
        f"ALTER TABLE wide ADD COLUMN {name} {narrow}", _set(world, name, value), f"ALTER TABLE wide MODIFY {name} {wide}",
        _set(world, name, value),
    ]  # fmt: skip


def _swapped(world: World, name: str) -> list[str]:
    """Two columns exchange their names in one statement."""
    (first, one), (second, other) = world.rng.sample(_TYPES, 2)
    return [
        f"ALTER TABLE wide ADD COLUMN {name} {first}, ADD COLUMN {name}x {second}",
        _set(world, name, one), _set(world, f"{name}x", other),
        f"ALTER TABLE wide CHANGE {name} {name}x {first}, CHANGE {name}x {name} {second}",
        _set(world, name, other),
    ]  # fmt: skip


def _set(world: World, name: str, value: str) -> str:
    return f"UPDATE wide SET {name} = {value} WHERE id % 3 = {world.rng.randrange(3)}"
