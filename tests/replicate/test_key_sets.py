"""Key sets: values that a server calls equal have one entry, and components in any order leave the rows of the log."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from random import Random
from typing import Any

import pytest

from mysqlio.connection import server_version
from mysqlio.information_schema import read_table_facts
from mysqlio.quoting import quoted_bytes
from mysqlio.server_access import ServerAccess
from schemas.columns import Column, TableSchema
from schemas.errors import SourceError
from schemas.settings.task_section import TaskTarget
from schemas.types.column_facts import Semantic, semantic_of
from spark_jobs.arrow import literal_kernels as kernels
from spark_jobs.replicate.apply.apply_target import ApplyTarget
from spark_jobs.replicate.apply.components import components
from spark_jobs.replicate.apply.key_sets import KeySets
from spark_jobs.replicate.rows.row_events import RowEvent
from spark_jobs.replicate.rows.row_statements import TableStatements, TextedRow
from spark_jobs.replicate.rows.row_values import LiteralForm, RowColumn, RowRecord
from tests.support.servers import database

SERVERS = ("mysql80", "mysql97", "mariadb114")
Row = dict[str, bytes]
"""The literals of a row."""
Change = tuple[str, str, Row | None, Row | None]
"""Table, op, old row, new row."""

KINDS = {
    Semantic.INTEGER: kernels.NUMBER, Semantic.DECIMAL: kernels.DECIMAL, Semantic.FLOATING: kernels.PLAIN,
    Semantic.BIT: kernels.BITS, Semantic.YEAR: kernels.NUMBER, Semantic.DATE: kernels.DATE, Semantic.TIME: kernels.CLOCK,
    Semantic.DATETIME: kernels.MOMENT, Semantic.TIMESTAMP: kernels.MOMENT, Semantic.BINARY: kernels.BINARY,
}  # fmt: skip
OTHER_KINDS = {"by_decimals": kernels.DECIMAL}
"""Of columns whose source has another type."""


class LiteralDecoder:
    """A decoder of records that are rows of literals."""

    def columns(self, _: int, table: TableSchema, filled: Collection[str] = ()) -> tuple[RowColumn, ...]:
        return tuple(map(self._column, [one for one in table.columns if one.name not in filled]))

    @staticmethod
    def _column(column: Column) -> RowColumn:
        kind = OTHER_KINDS.get(column.name, KINDS.get(semantic_of(column), kernels.TEXT))
        return RowColumn(column.name, column.name, lambda literal: literal, form=LiteralForm(kind))

    def old_row(self, record: RowRecord) -> dict[str, bytes | None]:
        return {name: None if text == "NULL" else text.encode() for name, text in json.loads(record.value).items()}

    new_row = old_row


class Keyed:
    """A schema of a server, and the key sets of changes there."""

    def __init__(self, server, schema: str) -> None:
        access = TaskTarget(type="mysql", host=server.host, port=server.port, user=server.user, password=server.password)
        self.target = ApplyTarget(ServerAccess.of(access), "task", None)
        self.schema = schema
        self.is_mariadb = "mariadb" in server_version(self.target.connection).lower()
        self.keys = KeySets(self.target, LiteralDecoder())
        self._statements: dict[str, TableStatements] = {}
        self.target.execute(f"USE {schema}")
        self.target.execute("SET SESSION autocommit = 1 /*!80400 , restrict_fk_on_non_standard_key = OFF */")

    def create(self, name: str, columns: str) -> None:
        self.target.execute(f"CREATE TABLE {name} ({columns})")
        self.keys.forget_tables()

    def drop(self, name: str) -> None:
        self.target.execute(f"DROP TABLE {name}")
        self._statements.clear()

    def entries(self, changes: Sequence[Change], *, is_strict: bool = True) -> list[Collection[int]]:
        return self.keys.entries([self._texted(change, is_strict=is_strict) for change in changes])

    def groups(self, *changes: Change, is_strict: bool = True) -> list[int]:
        return components(self.entries(changes, is_strict=is_strict))

    def _texted(self, change: Change, *, is_strict: bool) -> TextedRow:
        table, op, old, new = change
        if table not in self._statements:
            facts = read_table_facts(self.target.connection, self.schema, table)
            assert facts is not None
            self._statements[table] = TableStatements(facts.schema, LiteralDecoder())
        event = RowEvent("p", op, (self.schema, table), 0, _record(old), _record(new), checks_keys=True)
        (texts,) = self._statements[table].texts([event])
        return TextedRow(event, texts, is_strict=is_strict, is_whole=True)

    def apply(self, changes: Sequence[Change]) -> None:
        for table, op, old, new in changes:
            if op == "c":
                self._run(f"INSERT INTO {table} ({','.join(new)}) VALUES ({{}})", [b",".join(new.values())])
            else:
                assert old is not None
                change = "DELETE FROM {}" if op == "d" else "UPDATE {} SET " + ",".join(f"{name}={{}}" for name in new)
                values = [] if op == "d" else list(new.values())
                counts = self._run(change.format(table, *["{}"] * len(values)) + " WHERE id = {}", [*values, old["id"]])
                assert counts == [1]

    def _run(self, sql: str, literals: Sequence[bytes]) -> list[int]:
        counts: list[int] = []
        statement = b"".join(part.encode() + literal for part, literal in zip(sql.split("{}"), [*literals, b""], strict=True))
        self.target.execute_many([statement], counts)
        return counts


def _record(row: Row | None) -> RowRecord | None:
    return None if row is None else RowRecord(json.dumps({name: text.decode() for name, text in row.items()}).encode(), b"exact")


@pytest.fixture(params=SERVERS)
def keyed(request, fresh_database) -> Iterator[Keyed]:
    server = database(request.param)
    made = Keyed(server, fresh_database(server))
    yield made
    made.target.close()


def row(**values: int | str | bytes | None) -> Row:
    def literal(value: int | str | bytes | None) -> bytes:
        if value is None:
            return b"NULL"
        if isinstance(value, bytes):
            return value
        return b"%d" % value if isinstance(value, int) else quoted_bytes(value.encode())

    return {name: literal(value) for name, value in values.items()}


def created(table: str, **values: Any) -> Change:
    return table, "c", None, row(**values)


def deleted(table: str, **values: Any) -> Change:
    return table, "d", row(**values), None


def updated(table: str, old: Row, new: Row) -> Change:
    return table, "u", old, new


# ---- keys


def test_rows_meet_by_the_old_and_the_new_values_of_each_unique_key(keyed) -> None:
    keyed.create("t", "id INT PRIMARY KEY, u INT UNIQUE, a INT, b VARCHAR(9), UNIQUE (a, b)")
    one = row(id=1, u=10, a=None, b="x")
    assert keyed.groups(
        updated("t", one, row(id=1, u=11, a=None, b="x")),
        created("t", id=2, u=10, a=None, b="x"),
        created("t", id=3, u=12, a=5, b="x"),
        deleted("t", id=4, u=None, a=5, b="X"),
        created("t", id=5, u=None, a=5, b="y"),
        updated("t", row(id=6, u=None, a=1, b=None), row(id=7, u=None, a=1, b=None)),
        created("t", id=6, u=None, a=1, b=None),
        deleted("t", id=8, u=11, a=None, b=None),
    ) == [0, 0, 2, 2, 4, 5, 5, 0]


def test_rows_without_a_known_key_are_in_one_component(keyed) -> None:
    keyed.create("plain", "id INT, v INT")
    keyed.create("maybe", "id INT UNIQUE, v INT")
    keyed.create("made", "id INT PRIMARY KEY, v INT, w INT AS (v % 5) STORED UNIQUE")
    keyed.create("other", "id INT PRIMARY KEY, by_decimals INT UNIQUE")
    for table in ("plain", "maybe", "made"):
        assert keyed.groups(created(table, id=1, v=1), created(table, id=2, v=2)) == [0, 0], table
    assert keyed.groups(created("other", id=1, by_decimals=b"1.1"), created("other", id=2, by_decimals=b"1.2")) == [0, 0]


def test_rows_that_may_be_missing_are_in_one_component_if_they_may_meet_by_other_keys(keyed) -> None:
    keyed.create("one", "id INT PRIMARY KEY, v INT")
    keyed.create("two", "id INT PRIMARY KEY, v INT UNIQUE")
    for table, groups in {"one": [0, 1], "two": [0, 0]}.items():
        changes = [updated(table, row(id=n, v=n), row(id=n, v=n + 5)) for n in range(2)]
        assert keyed.groups(*changes) == [0, 1]
        assert keyed.groups(*changes, is_strict=False) == groups
    loaded = [("two", "r", None, row(id=n, v=n)) for n in range(2)]
    assert keyed.groups(*loaded, is_strict=False) == [0, 1]


def test_a_key_of_expressions_puts_rows_into_one_component(mysql80, fresh_database) -> None:
    keyed = Keyed(mysql80, fresh_database(mysql80))
    keyed.create("t", "id INT PRIMARY KEY, v INT, UNIQUE ((ABS(v)))")
    assert keyed.groups(created("t", id=1, v=1), created("t", id=2, v=-1)) == [0, 0]
    keyed.target.close()


def test_a_history_of_rows_puts_them_into_one_component(mariadb114, fresh_database) -> None:
    keyed = Keyed(mariadb114, fresh_database(mariadb114))
    keyed.create("t", "id INT PRIMARY KEY, v INT")
    changes = [created("t", id=1, v=1), created("t", id=2, v=-1)]
    assert keyed.groups(*changes) == [0, 1]
    keyed.target.execute("ALTER TABLE t ADD SYSTEM VERSIONING")
    keyed.keys.forget_tables()
    assert keyed.groups(*changes) == [0, 0]
    keyed.target.close()


def test_a_table_with_a_trigger_puts_a_batch_into_one_component(keyed) -> None:
    for table in ("t", "other"):
        keyed.create(table, "id INT PRIMARY KEY, v INT")
    changes = [created("other", id=1, v=1), created("t", id=1, v=1), created("other", id=2, v=1)]
    assert keyed.groups(*changes) == [0, 1, 2]
    keyed.target.execute("CREATE TRIGGER noted AFTER INSERT ON t FOR EACH ROW DELETE FROM other")
    keyed.keys.forget_tables()
    assert keyed.groups(*changes) == [0, 0, 0]
    assert keyed.groups(changes[0], changes[2]) == [0, 1]
    keyed.create("parent", "id INT PRIMARY KEY")
    parents = [created("parent", id=1), created("other", id=1, v=1)]
    assert keyed.groups(*parents) == [0, 1]
    keyed.target.execute("ALTER TABLE t ADD FOREIGN KEY (v) REFERENCES parent (id) ON DELETE CASCADE")
    keyed.keys.forget_tables()
    assert keyed.groups(*parents) == [0, 0]


# ---- foreign keys


def test_children_meet_by_a_parent_that_the_batch_changes(keyed) -> None:
    keyed.create("parent", "id INT PRIMARY KEY, code VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, KEY (code)")
    keyed.create("child", "id INT PRIMARY KEY, p INT, c VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, "
                 "FOREIGN KEY (p) REFERENCES parent (id), FOREIGN KEY (c) REFERENCES parent (code)")  # fmt: skip
    assert keyed.groups(
        created("child", id=1, p=7, c=None),
        created("child", id=2, p=7, c=None),
        created("child", id=3, p=8, c="ä"),
        updated("child", row(id=4, p=9, c=None), row(id=4, p=5, c=None)),
        deleted("parent", id=9, code=None),
        created("parent", id=10, code="Ä"),
        created("child", id=5, p=None, c="a"),
        created("child", id=6, p=9, c="b"),
    ) == [0, 1, 2, 3, 3, 2, 2, 3]


def test_a_parent_that_changes_its_children_puts_the_family_into_one_component(keyed) -> None:
    keyed.create("grandparent", "id INT PRIMARY KEY")
    keyed.create("parent", "id INT PRIMARY KEY, g INT, FOREIGN KEY (g) REFERENCES grandparent (id) ON DELETE CASCADE")
    keyed.create("child", "id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON UPDATE CASCADE")
    keyed.create("other", "id INT PRIMARY KEY")
    rows = [created("parent", id=5, g=2), created("child", id=6, p=2), created("other", id=1), created("other", id=2)]
    assert keyed.groups(created("grandparent", id=1), *rows) == [0, 1, 2, 3, 4]
    assert keyed.groups(updated("grandparent", row(id=1), row(id=3)), *rows) == [0, 1, 2, 3, 4]
    assert keyed.groups(deleted("grandparent", id=1), *rows) == [0, 0, 0, 3, 4]
    assert keyed.groups(updated("parent", row(id=1, g=1), row(id=1, g=3)), *rows) == [0, 1, 2, 3, 4]
    assert keyed.groups(updated("parent", row(id=1, g=1), row(id=9, g=1)), *rows) == [0, 0, 0, 3, 4]
    assert keyed.groups(updated("parent", row(id=1, g=1), row(id=1, g=1)), *rows, is_strict=False) == [0, 0, 0, 3, 4]


def test_columns_that_are_not_compared_alike_put_the_family_into_one_component(mysql80, fresh_database) -> None:
    keyed = Keyed(mysql80, fresh_database(mysql80))
    keyed.create("parent", "id INT PRIMARY KEY, c VARCHAR(9) CHARACTER SET utf8mb4 UNIQUE")
    keyed.create("child", "id INT PRIMARY KEY, c VARCHAR(9) CHARACTER SET utf8mb4, FOREIGN KEY (c) REFERENCES parent (c)")
    changes = [created("child", id=1, c="x"), created("parent", id=1, c="y"), created("child", id=2, c="z")]
    assert keyed.groups(*changes) == [0, 1, 2]
    keyed.target.execute("SET foreign_key_checks = 0")
    keyed.target.execute("ALTER TABLE child MODIFY c VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    keyed.keys.forget_tables()
    assert keyed.groups(*changes) == [0, 0, 0]
    keyed.target.close()


# ---- the server as oracle

LETTERS = [
    *"aAbBcCdhHlsSzZtTiIoOuUeEyYnN019-_.,'\\~", *[" "] * 6, "\t", "\x01", "\0", "\x7f", "\u00a0", "\u3000", "\u2003", "\u00ad", "\u200b",
    "ß", "ss", "SS", "Æ", "ae", "ä", "Ä", "å", "aa", "a\u0308", "\u0308", "\u0301", "ĳ", "ı", "İ", "ch", "CH", "ll", "dž", "sz", "ssz", "ñ",
    "é", "É", "è", "е", "Е", "ё", "ก", "เก", "ะ", "か", "カ", "ｶ", "が", "か\u3099", "ー", "漢", "한", "\u1112\u1161\u11ab", "😀", "😁",
    "\u0378", "\ufffd", "ﬁ", "fi", "Ａ", "þ", "ð", "ø", "œ", "ü", "ue", "й", "и\u0306", "α", "ά", "ς", "σ", "א", "ا", "أ", "١", "²", "™", "ǆ",
]  # fmt: skip
COLUMNS_OF_A_TABLE = 60
PREFIX = 2


def random_texts(dice: Random) -> list[str]:
    """Texts of few letters, some of which are equal to some collations."""
    letters = dice.sample(LETTERS, 6) + dice.sample(["a", "A", "ä", " ", "\u00a0", "ß", "ss"], 3)
    return ["".join(dice.choices(letters, k=dice.randrange(3))) + " " * dice.choice((0, 0, 0, 1, 2)) for _ in range(12)]


def collations(keyed: Keyed) -> list[tuple[str, str]]:
    """Each collation with its character set, binary ones excepted."""
    listed = keyed.target.rows("SHOW COLUMNS FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY")
    name = "FULL_COLLATION_NAME" if any(one[0] == "FULL_COLLATION_NAME" for one in listed) else "COLLATION_NAME"
    rows = keyed.target.rows(f"SELECT {name}, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY")
    return sorted((collation, charset) for collation, charset in rows if charset not in (None, "binary"))


@pytest.mark.parametrize("prefix", [0, PREFIX])
def test_texts_that_a_collation_calls_equal_have_one_entry(keyed, prefix: int) -> None:
    """A row has one text, in one column: only rows with equal texts there may share an entry."""
    dice = Random(prefix)
    listed = collations(keyed)
    assert len(listed) > 200
    refused = 0
    for begin in range(0, len(listed), COLUMNS_OF_A_TABLE):
        some = listed[begin : begin + COLUMNS_OF_A_TABLE]
        names = [f"c{number}" for number in range(len(some))]
        keyed.create("t", "id INT PRIMARY KEY," + ",".join(
            f"{name} VARCHAR(20) CHARACTER SET {charset} COLLATE {collation}, UNIQUE ({name}{f'({prefix})' if prefix else ''})"
            for name, (collation, charset) in zip(names, some, strict=True)
        ))  # fmt: skip
        values = [(name, text) for name in names for text in random_texts(dice)]
        changes = [created("t", id=number, **{**dict.fromkeys(names), name: text}) for number, (name, text) in enumerate(values)]
        refused += check_that_equal_rows_share_an_entry(keyed, changes, dict(zip(names, some, strict=True)))
        keyed.drop("t")
    assert refused > len(listed)


def check_that_equal_rows_share_an_entry(keyed: Keyed, changes: Sequence[Change], about: Any) -> int:
    """Insert rows; return how many the server refuses since it has an equal one."""
    taken = set[int]()
    refused = 0
    keyed.target.execute("BEGIN")
    for change, entries in zip(changes, keyed.entries(changes), strict=True):
        try:
            keyed.apply([change])
        except SourceError as error:
            if "Duplicate entry" not in str(error):
                continue  # the character set lacks a letter
            refused += 1
            assert taken & set(entries), (change, about)
        else:
            taken |= set(entries)
    keyed.target.execute("ROLLBACK")
    return refused


VALUES = {
    "DECIMAL(6,2)": [b"1.50", b"1.5", b"-1.50", b"0.00", b"-0.00", b"1.504", b"1.505", b"1.51"],
    "DOUBLE": [b"0.0e0", b"-0.0e0", b"1.5e0", b"15e-1", b"1e300", b"0.1e0", b"0.1000000000000001e0"],
    "FLOAT": [b"0.0e0", b"-0.0e0", b"0.1e0", b"0.10000000149011612e0", b"0.10000000000000002e0", b"16777216e0", b"16777217e0"],
    "FLOAT(7,2)": [b"0.1e0", b"0.101e0", b"0.2e0"],
    "BIT(9)": [b"0", b"1", b"256", b"511"],
    "YEAR": [b"0", b"1970", b"70", b"1901", b"2001", b"1"],
    "DATE": [b"'2020-01-01'", b"'2020-01-02'", b"'0000-00-00'", b"'2020-02-30'"],
    "DATETIME(3)": [b"'2020-01-01 00:00:00.000000'", b"'2020-01-01 00:00:00'", b"'2020-01-01 00:00:00.100000'", b"'2020-01-01 00:00:00.1'"],
    "DATETIME": [b"'2020-01-01 00:00:00.000000'", b"'2020-01-01 00:00:00.600000'", b"'2020-01-01 00:00:01.000000'"],
    "TIMESTAMP(6)": [b"'2020-01-01 00:00:00.000001'", b"'2020-01-01 00:00:00'", b"'2020-01-01 00:00:00.000000'"],
    "TIME(2)": [b"'00:00:00.000000'", b"'-01:00:00.500000'", b"'-01:00:00.5'", b"'100:00:00.000000'"],
    "ENUM('a','B','')": [b"'a'", b"'A'", b"'B'", b"'b'", b"''"],
    "SET('a','B','c')": [b"'a,B'", b"'B,a'", b"'a'", b"''", b"'c'", b"'a,a'"],
    "BINARY(4)": [b"_binary'a'", b"_binary'a\0'", b"_binary'a\0\0\0'", b"_binary'b'", b"_binary'a '"],
    "VARBINARY(9)": [b"_binary'a'", b"_binary'a\0'", b"_binary'A'", b"_binary'c'", rb"_binary'\\'", b"_binary''''"],
    "CHAR(4)": [b"'a'", b"'a '", b"'A'", b"'b'", b"''", b"' '", "'ä'".encode(), "'\u00a0'".encode()],
    "CHAR(4) COLLATE utf8mb4_bin": [b"'a'", b"'a '", b"'A'", b"'b'", b"''", b"' '", "'ä'".encode()],
    "VARCHAR(4)": [b"'abcd'", b"'abcd  '", b"'abc  '", b"'abc '", b"'ABC'", b"'a'", b"'a '", "'ä'".encode()],
}  # fmt: skip
OF_MARIADB = {
    "UUID": [b"'123e4567-e89b-12d3-a456-426655440000'", b"'123E4567-E89B-12D3-A456-426655440000'", b"'00000000-0000-0000-0000-000000000001'"],
    "INET6": [b"'::1'", b"'0:0::1'", b"'1.2.3.4'", b"'::ffff:1.2.3.4'", b"'::ffff:102:304'", b"'::2'"],
    "INET4": [b"'1.2.3.4'", b"'1.2.3.5'", b"'1.2.3.6'"],
    "LONGTEXT": VALUES["VARCHAR(4)"],
    "LONGBLOB": VALUES["VARBINARY(9)"],
}  # fmt: skip
PREFIXES = {
    "TEXT": ("v(3)", [b"'abcd'", b"'ABCe'", b"'ab '", b"'ab'", "'äbcd'".encode(), b"'a''bx'", b"'a''by'"]),
    "BLOB": ("v(2)", [b"_binary'abc'", b"_binary'abd'", b"_binary'a'", b"_binary'a\0b'", b"_binary'''''x'", b"_binary'''''y'"]),
    "VARBINARY(8)": ("v(2)", [b"_binary'abc'", b"_binary'abd'", b"_binary'a'", b"_binary'aB'"]),
}
WITH_UNKNOWN_FORMS = {"FLOAT(7,2)", "DATETIME", "ENUM('a','B','')"}


def test_values_that_the_server_calls_equal_have_one_entry(keyed) -> None:
    kinds = VALUES | (OF_MARIADB if keyed.is_mariadb else {})
    keys = {**{kind: ("v", values) for kind, values in kinds.items()}, **PREFIXES}
    refused = 0
    for number, (kind, (key, values)) in enumerate(keys.items()):
        keyed.create(f"t{number}", f"id INT PRIMARY KEY, v {kind}, UNIQUE ({key})")
        changes = [created(f"t{number}", id=ident, v=literal) for ident, literal in enumerate([*values, b"NULL", b"NULL", *values])]
        refused += check_that_equal_rows_share_an_entry(keyed, changes, kind)
        assert (len(set(components(keyed.entries(changes)))) == 1) == (kind in WITH_UNKNOWN_FORMS), kind
    assert refused > 50


@pytest.mark.parametrize("seed", range(2))
def test_rows_that_composite_keys_call_equal_have_one_entry(keyed, seed: int) -> None:
    dice = Random(seed)
    kinds = sorted(VALUES.keys() - WITH_UNKNOWN_FORMS)
    for number in range(12):
        chosen = dice.sample(kinds, 3)
        columns = ",".join(f"v{at} {kind}" for at, kind in enumerate(chosen))
        keyed.create(f"t{number}", f"id INT PRIMARY KEY, {columns}, UNIQUE (v1, v0), UNIQUE (v2, v1, v0)")
        rows = [{f"v{at}": dice.choice([*VALUES[kind], b"NULL"]) for at, kind in enumerate(chosen)} for _ in range(120)]
        check_that_equal_rows_share_an_entry(keyed, [created(f"t{number}", id=ident, **one) for ident, one in enumerate(rows)], chosen)


# ---- components in any order

TABLES = {
    "grandparents": "id INT PRIMARY KEY, code VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NOT NULL, UNIQUE (code)",
    "parents": "id INT PRIMARY KEY, g INT, u INT UNIQUE, FOREIGN KEY (g) REFERENCES grandparents (id) {}",
    "children": "id INT PRIMARY KEY, p INT, u INT, v INT, UNIQUE (u, v), FOREIGN KEY (p) REFERENCES parents (id) {}",
    "nodes": "id INT PRIMARY KEY, up INT, w VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, UNIQUE (w), "
    "FOREIGN KEY (up) REFERENCES nodes (id) {}",
    "words": "id INT PRIMARY KEY, w VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci, n INT, UNIQUE (w(2)), UNIQUE (n)",
}
WORDS = ["a", "A", "b", "ab", "Ab ", "abc", "ä", "äb", "ß", "ss", "z", "é", "e"]
RULES = ["ON DELETE CASCADE", "ON DELETE SET NULL", "ON UPDATE CASCADE", "ON DELETE CASCADE ON UPDATE CASCADE", "ON UPDATE SET NULL"]


@pytest.mark.parametrize("rules", ["", *RULES])
def test_components_in_any_order_leave_the_rows_of_the_log(keyed, rules: str) -> None:
    """Each component keeps its order. The log lacks the rows that foreign keys change."""
    dice = Random(len(rules))
    for table, columns in TABLES.items():
        keyed.create(table, columns.format(rules))
    most = 0
    for _ in range(15):
        keyed.target.execute("BEGIN")
        changes = random_changes(keyed, dice)
        expected = all_rows(keyed)
        keyed.target.execute("ROLLBACK")
        groups = keyed.groups(*changes)
        most = max(most, len(set(groups)))
        for _ in range(3):
            keyed.target.execute("BEGIN")
            keyed.apply(shuffled(changes, groups, dice))
            assert all_rows(keyed) == expected, (changes, groups)
            keyed.target.execute("ROLLBACK")
        keyed.apply(changes)
    assert most > 5


def random_changes(keyed: Keyed, dice: Random) -> list[Change]:
    """Make changes that the server takes, and return them."""
    changes: list[Change] = []
    for _ in range(60):
        table = dice.choice(list(TABLES))
        ident, op = dice.randrange(12), dice.choice("ccuuud")
        old = row_of(keyed, table, ident)
        new = random_row(table, dice.randrange(12) if dice.random() < 0.2 else ident, dice)
        if op == "c":
            old = None
        elif old is None:
            continue
        elif op == "u":
            new = {name: new[name] if name == "id" or dice.random() < 0.5 else text for name, text in old.items()}
        keyed.target.execute("SAVEPOINT one")
        try:
            keyed.apply([(table, op, old, None if op == "d" else new)])
        except SourceError:
            keyed.target.execute("ROLLBACK TO SAVEPOINT one")
        else:
            changes.append((table, op, old, None if op == "d" else new))
    return changes


def random_row(table: str, ident: int, dice: Random) -> Row:
    number, word = dice.choice([None, *range(12)]), dice.choice(WORDS)
    values = {
        "grandparents": {"code": word}, "parents": {"g": number, "u": dice.choice([None, *range(20)])},
        "children": {"p": number, "u": dice.choice([None, *range(3)]), "v": dice.choice([None, *range(6)])},
        "nodes": {"up": number, "w": dice.choice([None, word])}, "words": {"w": dice.choice([None, word]), "n": number},
    }  # fmt: skip
    return row(id=ident, **values[table])


def row_of(keyed: Keyed, table: str, ident: int) -> Row | None:
    rows = keyed.target.rows(f"SELECT * FROM {table} WHERE id = %s", ident)
    return row(**dict(zip(random_row(table, 0, Random(0)), rows[0], strict=True))) if rows else None


def all_rows(keyed: Keyed) -> list[Any]:
    return [keyed.target.rows(f"SELECT * FROM {table} ORDER BY id") for table in TABLES]


def shuffled(changes: Sequence[Change], groups: Sequence[int], dice: Random) -> list[Change]:
    """The changes mixed, with each group in order."""
    waiting: dict[int, list[Change]] = {}
    for change, group in zip(changes, groups, strict=True):
        waiting.setdefault(group, []).append(change)
    if dice.random() < 0.5:
        return [change for group in sorted(waiting, reverse=True) for change in waiting[group]]
    mixed = list(groups)
    dice.shuffle(mixed)
    return [waiting[group].pop(0) for group in mixed]
