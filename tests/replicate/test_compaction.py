"""All changes of a key as one: the same rows, by fewer statements, and a row that is not as the log says is noticed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from mysqlio.information_schema import read_table_facts
from mysqlio.server_access import ServerAccess
from schemas.avro import to_avro
from schemas.columns import Column, ColumnType, TableSchema
from schemas.errors import SinkError
from schemas.settings import from_mapping
from schemas.settings.task_section import ApplySettings, TaskSettings, TaskTarget
from schemas.types.column_facts import Semantic
from schemas.types.connect import value_schema
from spark_jobs.replicate.apply.apply_target import ApplyTarget
from spark_jobs.replicate.apply.compaction import COLLATIONS, Compactor, EqualKeys
from spark_jobs.replicate.apply.row_writer import RowWriter
from spark_jobs.replicate.rows.row_events import RowEvent
from spark_jobs.replicate.rows.row_statements import TableStatements, TextedRow
from spark_jobs.replicate.rows.row_texts import RowTexts
from spark_jobs.replicate.rows.row_values import RowDecoder
from tests.integration.test_ordered_stream import mapping_of
from tests.replicate.task_scene import catch_up, eventual, rows_of, task_of
from tests.replicate.test_row_texts import COLUMNS, DECODER, record, row
from tests.support.producers import SIGNAL, running
from tests.support.servers import database

TABLE = "id INT PRIMARY KEY, t TEXT CHARACTER SET utf8mb4, d DATE"
assert [column.name for column in COLUMNS] == ["id", "t", "d"]


class RecordingTarget(ApplyTarget):
    """A target that notes the statements of rows."""

    def execute_many(self, statements: list[bytes], counts: list[int]) -> None:
        self.statements += [sql for sql in statements if not sql.startswith(b"SAVEPOINT")]
        super().execute_many(statements, counts)


class Replica:
    """The table `orders` of a server, its writer, and the statements that were run."""

    def __init__(self, server, schema: str, *, safe: bool = False) -> None:
        access = TaskTarget(type="mysql", host=server.host, port=server.port, user=server.user, password=server.password)
        self.target = RecordingTarget(ServerAccess.of(access), "task", None)
        self.statements = self.target.statements = []
        self.target.execute(f"CREATE TABLE {schema}.orders ({TABLE})")
        self.schema = schema
        self.target.take_over()
        self.writer = RowWriter(self.target, DECODER, ApplySettings(safe_mode=safe))

    def write(self, *changes: tuple[str, Any, Any]) -> None:
        """Write changes in one transaction: op, old row, new row."""
        with self.target.transaction():
            self.writer.write([self._event(number, *change) for number, change in enumerate(changes)], {"": ()})

    def _event(self, number: int, op: str, before: Any, after: Any) -> RowEvent:
        one = record(op, before, after)
        old, new = one if before is not None else None, one if after is not None else None
        return RowEvent(f"p{number}", op, (self.schema, "orders"), 7, old, new, checks_keys=True)

    def rows(self) -> list[tuple[Any, ...]]:
        return self.target.rows(f"SELECT id, t FROM {self.schema}.orders ORDER BY id")


@pytest.fixture(params=["mysql80", "mariadb114"])
def replica(request, fresh_database) -> Iterator[Replica]:
    server = database(request.param)
    made = Replica(server, fresh_database(server))
    yield made
    made.target.close()


def created(ident: int, text: str) -> tuple[str, Any, Any]:
    return "c", None, row(ident, text)


def updated(ident: int, old: str, new: str) -> tuple[str, Any, Any]:
    return "u", row(ident, old), row(ident, new)


def deleted(ident: int, text: str) -> tuple[str, Any, Any]:
    return "d", row(ident, text), None


def test_all_changes_of_a_key_are_one(replica) -> None:
    replica.write(*(created(n, "a") for n in range(6)), created(9, "x"), deleted(9, "x"))
    assert [sql.partition(b" ")[0] for sql in replica.statements] == [b"INSERT", b"DELETE"]
    replica.statements.clear()
    replica.write(
        updated(0, "a", "b"), updated(0, "b", "c"), updated(1, "a", "b"), updated(2, "a", "a"), deleted(3, "a"),
        updated(4, "a", "e"), deleted(4, "e"), deleted(5, "a"), created(5, "f"), created(7, "n"), updated(7, "n", "o"),
    )  # fmt: skip
    assert replica.rows() == [(0, "c"), (1, "b"), (2, "a"), (5, "f"), (7, "o")]
    kinds = sorted(sql.partition(b" ")[0] + sql.rpartition(b"ON DUPLICATE")[1] for sql in replica.statements)
    assert kinds == [b"DELETE", b"INSERT", b"INSERTON DUPLICATE", b"UPDATE"]


def test_a_changed_key_keeps_its_order_among_the_others(replica) -> None:
    replica.write(created(1, "a"), created(2, "b"))
    replica.write(updated(1, "a", "c"), ("u", row(1, "c"), row(3, "c")), created(1, "z"), deleted(2, "b"), ("u", row(3, "c"), row(2, "d")))
    assert replica.rows() == [(1, "z"), (2, "d")]


WRONG = {
    "an update of a missing row": ([], [updated(2, "a", "b")], "p1: the target does not take an update"),
    "two updates of a missing row": ([], [updated(2, "a", "b"), updated(2, "b", "c")], "p1: the target does not take an update"),
    "an update of nothing in a missing row": ([], [updated(2, "a", "a")], "p1: the target does not take an update"),
    "a delete of a missing row": ([], [deleted(2, "a")], "p1: the target does not take a delete"),
    "an update and a delete of a missing row": ([], [updated(2, "a", "b"), deleted(2, "b")], "p1: the target does not take an update"),
    "a delete and an insert of a missing row": ([], [deleted(2, "a"), created(2, "b")], "p1: the target does not take a delete"),
    "an insert of a present row": ([created(2, "x")], [created(2, "a")], "p1: the target does not take an insert"),
    "an insert and an update of a present row": ([created(2, "x")], [created(2, "a"), updated(2, "a", "b")], "p1: .* an insert"),
    "an insert and a delete of a present row": ([created(2, "x")], [created(2, "a"), deleted(2, "a")], "p1: .* an insert"),
    "two inserts": ([], [created(2, "a"), created(2, "b")], "p1.*: the target does not take an insert"),
    "an update behind a delete": ([created(2, "x")], [deleted(2, "x"), updated(2, "x", "b")], "p2: the target does not take an update"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_row_that_is_not_as_the_log_says_is_noticed(replica, name: str) -> None:
    before, changes, message = WRONG[name]
    replica.write(created(0, "a"), created(1, "a"), *before)
    rows = replica.rows()
    with pytest.raises(SinkError, match=message):
        replica.write(updated(0, "a", "b"), *changes, updated(1, "a", "b"))
    assert replica.rows() == rows


def test_a_row_that_has_its_new_values_already_is_no_error(replica) -> None:
    replica.write(created(0, "a"), created(1, "a"))
    replica.target.execute(f"UPDATE {replica.schema}.orders SET t = 'b' WHERE id = 1")
    replica.write(created(2, "n"), updated(0, "a", "b"), updated(1, "a", "b"))
    replica.write(updated(0, "b", "c"), created(3, "n"), updated(0, "c", "b"))
    assert replica.rows() == [(0, "b"), (1, "b"), (2, "n"), (3, "n")]


def test_safe_mode_passes_over_missing_and_present_rows(mysql80, fresh_database) -> None:
    replica = Replica(mysql80, fresh_database(mysql80), safe=True)
    replica.write(updated(1, "a", "b"), created(2, "a"), deleted(3, "a"))
    replica.write(created(1, "c"), created(2, "d"), deleted(2, "d"), updated(4, "x", "y"), ("u", row(4, "y"), row(5, "y")))
    assert replica.rows() == [(1, "c"), (5, "y")]
    replica.target.close()


KEYS = {
    "id INT PRIMARY KEY": True,
    "id BIGINT UNSIGNED, a SMALLINT, PRIMARY KEY (a, id)": True,
    "id VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY": True,
    "id BINARY(16) PRIMARY KEY": True,
    "id VARBINARY(16), a INT, PRIMARY KEY (id, a)": True,
    "id VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_bin, b VARBINARY(3), PRIMARY KEY (id, b)": True,
    "id VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY": True,
    "id CHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci PRIMARY KEY": True,
    "id VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_lithuanian_ci PRIMARY KEY": False,
    "id VARCHAR(20) CHARACTER SET sjis COLLATE sjis_bin PRIMARY KEY": False,
    "id VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, PRIMARY KEY (id(5))": False,
    "id BINARY(4), b VARBINARY(3), PRIMARY KEY (id, b)": True,
    "id INT PRIMARY KEY, u INT UNIQUE": False,
    "id INT UNIQUE NOT NULL": False,
    "id INT": False,
    "id DOUBLE PRIMARY KEY": False,
    "id DATETIME PRIMARY KEY": False,
    "id ENUM('a', 'b') PRIMARY KEY": False,
    "a INT, id INT AS (a + 1) STORED PRIMARY KEY": False,
    "id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id)": False,
}  # fmt: skip


def test_the_keys_of_tables_that_are_compacted(mysql80, fresh_database) -> None:
    replica = Replica(mysql80, fresh_database(mysql80))
    target, schema = replica.target, replica.schema
    target.execute(f"CREATE TABLE {schema}.parent (id INT PRIMARY KEY)")
    for number, columns in enumerate(KEYS):
        target.execute(f"CREATE TABLE {schema}.k{number} ({columns})".replace("REFERENCES ", f"REFERENCES {schema}."))

    def is_compacted(table: str) -> bool:
        facts = read_table_facts(target.connection, schema, table)
        assert facts is not None
        return EqualKeys.of(target, facts) is not None

    assert {columns: is_compacted(f"k{number}") for number, columns in enumerate(KEYS)} == KEYS
    assert not is_compacted("parent")
    assert is_compacted("orders")
    target.execute(f"CREATE TRIGGER {schema}.counted AFTER INSERT ON {schema}.orders FOR EACH ROW SET @n = 1")
    assert not is_compacted("orders")
    target.close()


BIN, ANY_CASE = (f"VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_{name}" for name in ("bin", "0900_ai_ci"))


@pytest.mark.parametrize(
    ("column", "one", "other", "is_equal", "are_distinct"),
    [
        (BIN, b"('a  ')", b"('a')", True, False),
        (BIN, b"('  ')", b"('')", True, False),
        (BIN, b"('a '' ')", b"('a ''')", True, False),
        (BIN, b"('a '',b')", b"('a'',b')", False, True),
        (BIN, b"('a '')')", b"('a'')')", False, True),
        (BIN, b"('a')", b"('A')", False, False),
        (BIN, "('ä')".encode(), b"('a')", False, True),
        (ANY_CASE, b"('a')", b"('A')", True, False),
        (ANY_CASE, b"('a-b')", b"('ab')", False, True),
        (ANY_CASE, "('ä')".encode(), b"('a')", True, False),
        (ANY_CASE, b"('a\1')", b"('a')", True, False),
        ("BINARY(3)", b"(_binary'a\0\0')", b"(_binary'a')", True, False),
        ("VARBINARY(3)", b"(_binary'a\0\0')", b"(_binary'a')", False, True),
        ("BIGINT", b"(10)", b"(1)", False, True),
    ],
)
def test_keys_that_may_be_equal_to_the_server_are_not_distinct(
    mysql80, fresh_database, column, one, other, is_equal, are_distinct
) -> None:
    replica = Replica(mysql80, fresh_database(mysql80))
    target, schema = replica.target, replica.schema
    target.execute(f"CREATE TABLE {schema}.k (id {column} PRIMARY KEY)")
    facts = read_table_facts(target.connection, schema, "k")
    assert facts is not None
    keys = EqualKeys.of(target, facts)
    assert keys is not None
    assert keys.are_distinct({one, other}) == are_distinct
    counts: list[int] = []
    target.execute_many([b"INSERT IGNORE INTO `%b`.k VALUES %b,%b" % (schema.encode(), one, other)], counts)
    assert counts == [1 if is_equal else 2]
    target.close()


@pytest.mark.parametrize("name", ["mysql80", "mariadb114"])
def test_collations_call_no_other_texts_of_printable_ascii_equal(name: str, fresh_database) -> None:
    server = database(name)
    schema = fresh_database(server)
    letters = [chr(code) for code in range(0x20, 0x7F)]
    texts = ["", *letters, *(one + other for one in letters for other in letters)]
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id VARBINARY(2))")
        cursor.executemany("INSERT INTO t VALUES (%s)", [(text,) for text in texts])
        cursor.execute("SELECT COLLATION_NAME, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY")
        charsets = {collation: charset for collation, charset in cursor.fetchall() if collation in COLLATIONS}
        assert len(charsets) > 8
        for collation, charset in charsets.items():
            key = f"CONVERT(id USING {charset}) COLLATE {collation}"
            cursor.execute(f"SELECT GROUP_CONCAT(HEX(id)) FROM t GROUP BY {key} HAVING COUNT(*) > 1")
            for (group,) in cursor.fetchall():
                equal = [bytes.fromhex(text).decode() for text in group.split(",")]
                assert len({text.rstrip(" ").lower() for text in equal}) == 1, (collation, equal)


TEXT_TABLE = TableSchema("shop", "words", (Column("id", ColumnType.VARCHAR, nullable=False, length=9, charset="utf8mb4"),), ("id",))
TEXT_DECODER = RowDecoder(lambda _: to_avro(value_schema(TEXT_TABLE, "srv", "mysql")))
TEXTS = ("a", "A", "a ", "b", "", "ab", "Ab ", "abcdef", "abcdeg", "ä", "'", "\\", "z")
LARGE = {
    "ints": ("id INT", lambda dice: dice.randrange(25)),
    "words": ("id VARCHAR(20) COLLATE utf8mb4_bin", lambda dice: dice.choice(TEXTS)),
    "cased": ("id VARCHAR(20) COLLATE utf8mb4_general_ci", lambda dice: dice.choice(TEXTS)),
    "bytes": ("id VARBINARY(20)", lambda dice: dice.choice(TEXTS)),
    "fixed": ("id BINARY(8)", lambda dice: dice.choice(TEXTS)),
    "chars": ("id CHAR(8) COLLATE utf8mb4_unicode_ci", lambda dice: dice.choice(TEXTS)),
}
MORE = {"": "PRIMARY KEY (id)", "_pair": "PRIMARY KEY (n, id)", "_unique": "PRIMARY KEY (id), UNIQUE (u)", "_prefix": "PRIMARY KEY (id(3))"}


@pytest.mark.parametrize("made", [lambda task: task, eventual], ids=["in transactions", "by workers"])
def test_random_changes_leave_the_rows_of_the_source(source, registry, made: Callable[[TaskSettings], TaskSettings]) -> None:
    dice = Random(20261130)
    tables = {
        f"{name}{suffix}": (f"{kind}, n INT NOT NULL, u INT, v VARCHAR(40), {keys}", pick)
        for name, (kind, pick) in LARGE.items()
        for suffix, keys in MORE.items()
        if suffix != "_prefix" or name not in ("ints", "fixed")
    }
    source.execute(SIGNAL, *(f"CREATE TABLE {name} ({columns}) COLLATE utf8mb4_general_ci" for name, (columns, _) in tables.items()))
    apply = {"driver_rows": 300} if made is not eventual else {"driver_rows": 5, "txn_rows": 10, "workers": 8}
    targets = {name: made(task_of(source, registry.url, database(name), apply=apply)) for name in ("mysql97", "mariadb114")}

    def all_rows(server) -> dict[str, list[str]]:
        return {table: sorted(map(repr, rows_of(server, source.schema, table))) for table in tables}

    with running(from_mapping(mapping_of(source, registry.url))) as run:
        for task in targets.values():
            catch_up(task)
        for _ in range(150):
            change_at_random(source, dice, tables)
        run.caught_up(source)
        ours, deadline = all_rows(source.server), time.monotonic() + 10
        for name, task in targets.items():
            catch_up(task)
            while all_rows(database(name)) != ours and time.monotonic() < deadline:
                catch_up(task)  # the end of a Kafka transaction may be visible later than its answer
            assert all_rows(database(name)) == ours, name


def change_at_random(source, dice: Random, tables: dict[str, tuple[str, Any]]) -> None:
    """A transaction of some statements; those that the source refuses are left out."""
    with source.connection.cursor() as cursor:
        cursor.execute("BEGIN")
        for _ in range(dice.randrange(1, 40)):
            table, (_, pick) = dice.choice(list(tables.items()))
            key, other, number, text = pick(dice), pick(dice), dice.randrange(3), f"{dice.random()}"
            unique = dice.choice((None, *range(8)))
            statement, values = dice.choice(
                [
                    (f"INSERT IGNORE INTO {table} VALUES (%s, %s, %s, %s)", (key, number, unique, text)),
                    (f"REPLACE INTO {table} VALUES (%s, %s, %s, %s)", (key, number, unique, text)),
                    (f"UPDATE IGNORE {table} SET v = %s, u = %s WHERE id = %s", (text, unique, key)),
                    (f"UPDATE IGNORE {table} SET id = %s WHERE id = %s AND n = %s", (other, key, number)),
                    (f"UPDATE {table} SET v = 'same' WHERE n = %s", (number,)),
                    (f"DELETE FROM {table} WHERE id = %s", (key,)),
                ]
            )
            cursor.execute(statement, values)
        cursor.execute("COMMIT")


@pytest.mark.parametrize("seed", range(3))
def test_random_events_leave_the_rows_that_a_dictionary_has(mysql80, fresh_database, seed: int) -> None:
    replica, dice = Replica(mysql80, fresh_database(mysql80)), Random(seed)
    rows: dict[int, str] = {}
    for _ in range(40):
        changes = []
        for _ in range(dice.randrange(1, 30)):
            key, text = dice.randrange(8), dice.choice("ab")
            old, free = rows.get(key), [one for one in range(8) if one not in rows]
            if old is None:
                changes.append(created(key, text))
                rows[key] = text
            elif dice.random() < 0.3:
                changes.append(deleted(key, rows.pop(key)))
            elif free and dice.random() < 0.3:
                changes.append(("u", row(key, rows.pop(key)), row(free[0], text)))
                rows[free[0]] = text
            else:
                changes.append(updated(key, old, text))
                rows[key] = text
        replica.write(*changes)
        assert replica.rows() == sorted(rows.items()), changes
    replica.target.close()


@pytest.mark.parametrize(("keys", "is_compacted"), [((b"('b')", b"('A')", b"('c')"), True), ((b"('b')", b"('A')", b"('a')"), False)])
def test_keys_that_are_not_distinct_are_left_in_order(keys: tuple[bytes, ...], is_compacted: bool) -> None:
    """A delete of A behind the inserts of b and a would take a with it."""
    statements = TableStatements(TEXT_TABLE, TEXT_DECODER)
    compactor = Compactor(statements, EqualKeys((Semantic.TEXT,), are_similar=True, is_folded=True))
    rows = []
    for op, key in zip("cdc", keys, strict=True):
        event = RowEvent("p", op, ("shop", "words"), 7, None, None, checks_keys=True)
        old, new = (key, b"") if op == "d" else (b"", key)
        texts = RowTexts(values=new, old_key=old, new_key=new, changes=b"", is_changed=False, is_strict=True)
        rows.append(TextedRow(event, texts, is_strict=False, is_whole=True))
    assert (compactor.compacted(rows) is not None) == is_compacted
