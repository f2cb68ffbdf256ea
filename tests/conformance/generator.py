"""Random tables, rows and DDL as SQL statements, from a seed: the same seed gives the same statements."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

Literal = Callable[[random.Random], str]

WORDS: Final = (
    "",
    "a",
    "Grüße",
    "日本語",
    "🎉 party",
    "O'Neil",
    "tab\there",
    'say "hi"',
    "back\\slash",
    "x" * 300,
)


def quoted(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _integer(low: int, high: int) -> Literal:
    edges = (low, high, 0, 1)
    return lambda rng: str(rng.choice(edges) if rng.random() < 0.3 else rng.randint(low, high))


def _word(most: int) -> Literal:
    return lambda rng: quoted(rng.choice(WORDS)[:most])


def _ascii(most: int) -> Literal:
    return lambda rng: quoted("".join(rng.choice("abcXYZ09 _-") for _ in range(rng.randint(0, most))).strip())


def _bytes(least: int, most: int) -> Literal:
    return lambda rng: f"x'{rng.randbytes(rng.randint(least, most)).hex()}'"


def _decimal(digits: int, scale: int) -> Literal:
    def literal(rng: random.Random) -> str:
        number = rng.randrange(-(10**digits) + 1, 10**digits)
        text = str(abs(number)).rjust(scale + 1, "0")
        return ("-" if number < 0 else "") + (f"{text[:-scale]}.{text[-scale:]}" if scale else text)

    return literal


def _real(rng: random.Random) -> str:
    return repr(rng.choice((0.0, 1.5, -0.1, rng.uniform(-1e6, 1e6), rng.uniform(-1, 1) * 1e-5)))


def _moment(
    fraction: int, low: int = 1000, high: int = 9999, *, date: bool = True, clock: bool = True
) -> Literal:
    def literal(rng: random.Random) -> str:
        parts = []
        if date:
            parts.append(f"{rng.randint(low, high):04}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}")
        if clock:
            digits = "." + str(rng.randrange(10**fraction)).rjust(fraction, "0") if fraction else ""
            parts.append(f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}{digits}")
        return quoted(" ".join(parts))

    return literal


def _time(fraction: int) -> Literal:
    def literal(rng: random.Random) -> str:
        digits = "." + str(rng.randrange(10**fraction)).rjust(fraction, "0") if fraction else ""
        sign = rng.choice(("", "-"))
        return quoted(
            f"{sign}{rng.randint(0, 837):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}{digits}"
        )

    return literal


def _bits(width: int) -> Literal:
    return lambda rng: f"b'{rng.getrandbits(width):0{width}b}'"


def _members(*members: str, several: bool = False) -> Literal:
    def literal(rng: random.Random) -> str:
        if not several:
            return quoted(rng.choice(members))
        return quoted(",".join(item for item in members if rng.random() < 0.5))

    return literal


def _json(rng: random.Random) -> str:
    return quoted(
        rng.choice(('{"a": [1, -2, "x"], "b": null}', "[]", '"ü"', "true", '{"deep": {"er": {}}}', "123"))
    )


TYPES: Final[tuple[tuple[str, Literal], ...]] = (
    ("TINYINT", _integer(-128, 127)),
    ("TINYINT UNSIGNED", _integer(0, 255)),
    ("BOOLEAN", _integer(0, 1)),
    ("SMALLINT", _integer(-32768, 32767)),
    ("SMALLINT UNSIGNED", _integer(0, 65535)),
    ("MEDIUMINT", _integer(-(2**23), 2**23 - 1)),
    ("MEDIUMINT UNSIGNED", _integer(0, 2**24 - 1)),
    ("INT", _integer(-(2**31), 2**31 - 1)),
    ("INT UNSIGNED", _integer(0, 2**32 - 1)),
    ("BIGINT", _integer(-(2**63), 2**63 - 1)),
    ("BIGINT UNSIGNED", _integer(0, 2**64 - 1)),
    ("DECIMAL(10,2)", _decimal(10, 2)),
    ("DECIMAL(20,0)", _decimal(20, 0)),
    ("DECIMAL(38,10)", _decimal(38, 10)),
    ("DECIMAL(65,30)", _decimal(65, 30)),
    ("FLOAT", _real),
    ("DOUBLE", _real),
    ("BIT(1)", _bits(1)),
    ("BIT(9)", _bits(9)),
    ("BIT(64)", _bits(64)),
    ("YEAR", _integer(1901, 2155)),
    ("DATE", _moment(0, clock=False)),
    ("DATETIME", _moment(0)),
    ("DATETIME(2)", _moment(2)),
    ("DATETIME(3)", _moment(3)),
    ("DATETIME(6)", _moment(6)),
    ("TIMESTAMP", _moment(0, 1971, 2037)),
    ("TIMESTAMP(3)", _moment(3, 1971, 2037)),
    ("TIMESTAMP(6)", _moment(6, 1971, 2037)),
    ("TIME", _time(0)),
    ("TIME(3)", _time(3)),
    ("TIME(6)", _time(6)),
    ("CHAR(20)", _word(20)),
    ("VARCHAR(50)", _word(50)),
    ("VARCHAR(30) CHARACTER SET latin1", _ascii(30)),
    ("VARCHAR(30) CHARACTER SET utf8mb3", _ascii(30)),
    ("TINYTEXT", _word(60)),
    ("TEXT", _word(300)),
    ("MEDIUMTEXT", _word(300)),
    ("LONGTEXT", _word(300)),
    ("BINARY(8)", _bytes(0, 8)),
    ("VARBINARY(20)", _bytes(0, 20)),
    ("TINYBLOB", _bytes(0, 60)),
    ("BLOB", _bytes(0, 300)),
    ("MEDIUMBLOB", _bytes(0, 300)),
    ("ENUM('red','x,y','','ümlaut')", _members("red", "x,y", "ümlaut")),
    ("SET('a','b','c d')", _members("a", "b", "c d", several=True)),
    ("JSON", _json),
)
KEYS: Final[tuple[tuple[str, Literal], ...]] = (
    ("INT", _integer(-(2**31), 2**31 - 1)),
    ("BIGINT UNSIGNED", _integer(0, 2**64 - 1)),
    ("VARCHAR(20) COLLATE utf8mb4_0900_bin", _ascii(20)),
    ("DECIMAL(12,3)", _decimal(12, 3)),
    ("DATETIME(3)", _moment(3)),
    ("BINARY(4)", _bytes(4, 4)),
)
NO_DEFAULT: Final = ("TEXT", "BLOB", "JSON")


@dataclass
class Table:
    """A table as the generator remembers it: its columns, and the key literals of its rows."""

    name: str
    key: dict[str, tuple[str, Literal]]
    columns: dict[str, tuple[str, Literal]]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    made: int = 0


class Generator:
    """`statements()` yields what to execute in a database that is used; autocommit is assumed."""

    def __init__(self, seed: int, tables: int, steps: int, flavour: str = "mysql") -> None:
        self._rng = random.Random(seed)
        self._steps = steps
        self._flavour = flavour
        self._tables = [self._new_table(f"r{number}") for number in range(tables)]

    def statements(self) -> Iterator[str]:
        """CREATE TABLEs, then changes of rows and columns."""
        for table in self._tables:
            yield self._create(table)
        for _ in range(self._steps):
            table = self._rng.choice(self._tables)
            chance = self._rng.random()
            if chance < 0.05:
                yield self._alter(table)
            elif chance < 0.15:
                yield "BEGIN"
                for _ in range(self._rng.randint(2, 6)):
                    yield from self._change(self._rng.choice(self._tables))
                yield "COMMIT"
            else:
                yield from self._change(table)

    def _new_table(self, name: str) -> Table:
        rng = self._rng
        kinds = rng.sample(KEYS, rng.choice((0, 1, 1, 1, 2)))
        columns = {f"c{n}": rng.choice(TYPES) for n in range(rng.randint(3, 9))}
        return Table(name, {f"k{n}": kind for n, kind in enumerate(kinds)}, columns, made=len(columns))

    def _create(self, table: Table) -> str:
        parts = [f"`{name}` {kind} NOT NULL" for name, (kind, _) in table.key.items()]
        parts += [
            f"`{name}` {self._definition(kind, literal)}" for name, (kind, literal) in table.columns.items()
        ]
        if table.key:
            parts.append(f"PRIMARY KEY ({', '.join(table.key)})")
        statement = f"CREATE TABLE `{table.name}` ({', '.join(parts)}) DEFAULT CHARSET utf8mb4"
        if self._flavour == "mariadb":
            statement = statement.replace("utf8mb4_0900_bin", "utf8mb4_bin")
        return statement

    def _definition(self, kind: str, literal: Literal) -> str:
        if kind.startswith("TIMESTAMP"):
            return f"{kind} NULL"
        plain = kind.split("(", maxsplit=1)[0].split(maxsplit=1)[0]
        if self._rng.random() < 0.2 and plain in (
            "INT",
            "SMALLINT",
            "BIGINT",
            "MEDIUMINT",
            "VARCHAR",
            "DECIMAL",
        ):
            default = "'some'" if plain == "VARCHAR" else "7"
            return f"{kind} NOT NULL DEFAULT {default}"
        return kind

    def _change(self, table: Table) -> Iterator[str]:
        chance = self._rng.random()
        if not table.rows or chance < 0.5:
            yield self._insert(table)
        elif chance < 0.8 or not table.key:
            yield self._update(table)
        elif chance < 0.87:
            yield from self._move(table)
        else:
            row = table.rows.pop(self._rng.randrange(len(table.rows)))
            yield f"DELETE FROM `{table.name}` WHERE {self._where(table, row)}"

    def _insert(self, table: Table) -> str:
        row = self._fresh(table)
        table.rows.append(row)
        values = [*row, *(self._value(kind, literal) for kind, literal in table.columns.values())]
        names = ", ".join([*table.key, *table.columns])
        return f"INSERT INTO `{table.name}` ({names}) VALUES ({', '.join(values)})"

    def _update(self, table: Table) -> str:
        some = self._rng.sample(list(table.columns), min(len(table.columns), 2))
        changes = ", ".join(f"{name} = {self._value(*table.columns[name])}" for name in some)
        where = self._where(table, self._rng.choice(table.rows)) if table.key else "TRUE LIMIT 1"
        return f"UPDATE `{table.name}` SET {changes} WHERE {where}"

    def _move(self, table: Table) -> Iterator[str]:
        """A new primary key for a row."""
        index = self._rng.randrange(len(table.rows))
        old, new = table.rows[index], self._fresh(table)
        table.rows[index] = new
        changes = ", ".join(f"{name} = {value}" for name, value in zip(table.key, new, strict=True))
        yield f"UPDATE `{table.name}` SET {changes} WHERE {self._where(table, old)}"

    def _fresh(self, table: Table) -> tuple[str, ...]:
        while True:
            row = tuple(literal(self._rng) for _, literal in table.key.values())
            if not row or row not in table.rows:
                return row

    def _where(self, table: Table, row: tuple[str, ...]) -> str:
        return " AND ".join(f"{name} = {value}" for name, value in zip(table.key, row, strict=True))

    def _value(self, kind: str, literal: Literal) -> str:
        plain = kind.split("(", maxsplit=1)[0].split(maxsplit=1)[0]
        nullable = plain not in ("INT", "SMALLINT", "BIGINT", "MEDIUMINT", "VARCHAR", "DECIMAL")
        return "NULL" if nullable and self._rng.random() < 0.15 else literal(self._rng)

    def _alter(self, table: Table) -> str:
        rng = self._rng
        chance = rng.random()
        head = f"ALTER TABLE `{table.name}`"
        if chance < 0.45 or len(table.columns) < 3:
            name, (kind, literal) = f"c{table.made}", rng.choice(TYPES)
            table.made += 1
            clause = rng.choice(("", " FIRST", f" AFTER `{rng.choice(list(table.columns))}`"))
            table.columns[name] = (kind, literal)
            return f"{head} ADD COLUMN `{name}` {self._definition(kind, literal)}{clause}"
        name = rng.choice(list(table.columns))
        if chance < 0.7:
            del table.columns[name]
            return f"{head} DROP COLUMN `{name}`"
        new = f"c{table.made}"
        table.made += 1
        table.columns[new] = table.columns.pop(name)
        return f"{head} RENAME COLUMN `{name}` TO `{new}`"
