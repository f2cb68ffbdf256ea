"""What follows from a change of a parent, by the rules of all foreign keys together."""

from __future__ import annotations

import time
from collections.abc import Callable

import pymysql
import pytest

from mysqlio.connection import connect
from mysqlio.foreign_key_facts import ForeignKey
from mysqlio.information_schema import list_tables
from mysqlio.server_access import ServerAccess
from producer.catalog.foreign_keys import (
    Consequence,
    ForeignKeys,
    logs_cascades_since,
    parse_foreign_keys,
    read_foreign_keys,
)
from schemas.errors import RetriableSourceError
from schemas.settings import SourceSettings
from tests.support.servers import database


def key(child: str, parent: str, on_delete: str = "CASCADE", on_update: str = "CASCADE") -> ForeignKey:
    """`child(a, b)` references `parent(x, y)`, in short."""
    (table, columns), (other, referenced) = (text.rstrip(")").split("(") for text in (child, parent))
    names = (tuple(part.split(",")) for part in (columns, referenced))
    return ForeignKey(f"{table}_{columns}", ("d", table), next(names), ("d", other), next(names), on_delete, on_update)


def follows(keys: list[ForeignKey], parent: str, kind: str) -> set[Consequence]:
    triggers = ForeignKeys(keys).triggers(("d", parent), kind)  # type: ignore[arg-type]
    return {consequence for trigger in triggers for consequence in trigger.consequences}


def child(table: str, columns: str = "", sources: str = "", *, renewed: bool = False, nulled: str = "") -> Consequence:
    parts = [tuple(filter(None, text.split(","))) for text in (columns, sources, nulled)]
    return Consequence(("d", table), parts[0], parts[1], renewed, parts[2])


def test_each_rule_has_its_consequence() -> None:
    for rule, deleted, updated in (
        ("CASCADE", child("c", "p", "id"), child("c", "p", "id", renewed=True)),
        ("SET NULL", child("c", "p", "id", nulled="p"), child("c", "p", "id", nulled="p")),
        ("SET DEFAULT", child("c"), child("c")),
    ):
        keys = [key("c(p)", "p(id)", rule, rule)]
        assert follows(keys, "p", "delete") == {deleted if rule != "SET DEFAULT" else child("c", nulled="p")}
        assert follows(keys, "p", "update") == {updated if rule != "SET DEFAULT" else child("c", nulled="p")}
    for rule in ("RESTRICT", "NO ACTION"):
        assert follows([key("c(p)", "p(id)", rule, rule)], "p", "delete") == set()
        assert follows([key("c(p)", "p(id)", rule, rule)], "p", "update") == set()


def test_grandchildren_are_known_by_columns_that_they_share_with_their_grandparent() -> None:
    keys = [key("line(o)", "orders(id)"), key("part(o,n)", "line(o,n)"), key("other(l)", "line(n)")]
    gone = {child("line", "o", "id"), child("part", "o", "id"), child("other")}
    assert follows(keys, "orders", "delete") == gone
    renewed = {child("line", "o", "id", renewed=True), child("part", "o", "id", renewed=True)}
    assert follows(keys, "orders", "update") == renewed, "the numbers of the lines stay"


def test_a_child_that_is_set_null_is_not_gone() -> None:
    keys = [key("c(p)", "p(id)", "SET NULL"), key("g(c)", "c(id)"), key("h(p)", "c(p)", "RESTRICT", "CASCADE")]
    assert follows(keys, "p", "delete") == {child("c", "p", "id", nulled="p"), child("h", "p", "id", nulled="p")}


def test_trees_and_circles_end() -> None:
    assert follows([key("t(up)", "t(id)")], "t", "delete") == {child("t", "up", "id"), child("t")}
    circle = [key("a(b)", "b(id)"), key("b(a)", "a(id)")]
    assert follows(circle, "a", "delete") == {child("b", "a", "id"), child("a"), child("b")}


def test_many_tables_between_which_there_are_more_ways_than_anyone_can_go() -> None:
    """Each table references all before it: 2^38 ways from the first to the last."""
    keys = [key(f"t{n}(t{up})", f"t{up}(id)") for n in range(40) for up in range(n)]
    assert len(follows(keys, "t0", "delete")) == 2 * 39 - 1


def test_what_starts_it_are_the_referenced_columns() -> None:
    keys = ForeignKeys([key("c(p)", "p(id)"), key("c(x,y)", "p(a,b)"), key("d(p)", "p(id)", "RESTRICT", "RESTRICT")])
    assert [trigger.columns for trigger in keys.triggers(("d", "p"), "update")] == [("id",), ("a", "b")]
    assert keys.triggers(("d", "c"), "delete") == ()


def test_definitions_are_understood_as_the_server_shows_them() -> None:
    definition = """CREATE TABLE `c` (
  `a` int(11) DEFAULT NULL COMMENT 'CONSTRAINT `x` FOREIGN KEY (`a`) REFERENCES `p` (`id`) ON DELETE CASCADE',
  CONSTRAINT `one,``two` FOREIGN KEY (`a`, `b,``c`) REFERENCES `o.p` (`x`, `y`) ON DELETE SET NULL,
  CONSTRAINT `three` FOREIGN KEY (`a`) REFERENCES `else`.`p` (`id`) ON DELETE CASCADE ON UPDATE NO ACTION
) ENGINE=InnoDB"""
    assert list(parse_foreign_keys(("d", "c"), definition)) == [
        ForeignKey("one,`two", ("d", "c"), ("a", "b,`c"), ("d", "o.p"), ("x", "y"), "SET NULL", "RESTRICT"),
        ForeignKey("three", ("d", "c"), ("a",), ("else", "p"), ("id",), "CASCADE", "NO ACTION"),
    ]


@pytest.mark.parametrize("name", ["mysql80", "mariadb114"])
def test_who_may_only_select_sees_the_foreign_keys(name, fresh_database) -> None:
    server = database(name)
    schema = fresh_database(server)
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE p (a INT, b INT, PRIMARY KEY (a, b))")
        rule = "CONSTRAINT k FOREIGN KEY (x, y) REFERENCES p (a, b) ON DELETE CASCADE"
        cursor.execute(f"CREATE TABLE c (id INT PRIMARY KEY, x INT, y INT, {rule})")
        cursor.execute("CREATE TABLE d (a INT, b INT, FOREIGN KEY (a, b) REFERENCES p (a, b))")
        cursor.execute(f"CREATE USER {schema}@'%' IDENTIFIED BY 'x'")
        cursor.execute(f"GRANT SELECT ON {schema}.* TO {schema}@'%'")
    reader = pymysql.connect(host=server.host, port=server.port, user=schema, password="x")
    found = {one for one in read_foreign_keys(reader) if one.child[0] == schema}
    reader.close()
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP USER {schema}@'%'")
    assert [(one.name, one.child, one.columns, one.parent, one.referenced, one.on_delete) for one in found] == [
        ("k", (schema, "c"), ("x", "y"), (schema, "p"), ("a", "b"), "CASCADE")
    ]


@pytest.mark.parametrize("name", ["mysql57", "mysql80", "mariadb114"])
def test_columns_in_another_letter_case_are_the_same_columns(name: str, fresh_database: Callable[..., str]) -> None:
    server = database(name)
    schema = fresh_database(server)
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE p (Id INT PRIMARY KEY)")
        rule = "ON DELETE CASCADE ON UPDATE CASCADE"
        cursor.execute(f"CREATE TABLE c (p INT PRIMARY KEY, FOREIGN KEY (P) REFERENCES p (iD) {rule})")
        cursor.execute(f"CREATE TABLE g (x INT PRIMARY KEY, FOREIGN KEY (X) REFERENCES c (P) {rule})")
        cursor.execute("ALTER TABLE c CHANGE p `P` INT")
        keys = [one for one in read_foreign_keys(connection) if one.child[0] == schema]
    (trigger,) = ForeignKeys(keys).triggers((schema, "p"), "update")
    assert {one.child[1]: one.renewed for one in trigger.consequences} == {"c": True, "g": True}, keys


def test_a_table_that_is_damaged_is_no_concern_of_the_others(
    fresh_database: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    server = database("mariadb114")
    schema = fresh_database(server)
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE damaged (id INT PRIMARY KEY) ENGINE=MyISAM")
        cursor.execute("CREATE TABLE p (id INT PRIMARY KEY)")
        cursor.execute("CREATE TABLE c (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES p (id) ON DELETE CASCADE)")
        cursor.execute("FLUSH TABLES damaged")
        (server.data_dir / schema / "damaged.MYI").unlink()
        assert [one.child for one in read_foreign_keys(connection) if one.child[0] == schema] == [(schema, "c")]
        assert f"{schema}.damaged" not in "".join(capsys.readouterr()), "InnoDB alone has foreign keys"
        touched = [(schema, "damaged"), (schema, "c")]
        assert [one.child for one in read_foreign_keys(connection, touched) if one.child[0] == schema] == [(schema, "c")]
        cursor.execute("DROP TABLE damaged")
    assert f"{schema}.damaged" in "".join(capsys.readouterr())


@pytest.mark.parametrize("name", ["mysql80", "mariadb114"])
def test_text_that_is_no_utf8_is_no_concern_of_the_others(name: str, fresh_database: Callable[..., str]) -> None:
    """MariaDB writes a binary default into a definition as it is, and takes halves of surrogate pairs for characters."""
    server = database(name)
    schema = fresh_database(server)
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE p (id INT PRIMARY KEY)")
        cursor.execute(
            "CREATE TABLE c (id INT PRIMARY KEY, v VARBINARY(4) DEFAULT 0xff, "
            "FOREIGN KEY (id) REFERENCES p (id) ON DELETE CASCADE)"
        )
        for statement in (
            b"CREATE TABLE `\xed\xa0\x80` (`\xed\xa0\x81` INT COMMENT '\xed\xa0\x82')",
            b"CREATE TABLE described (id INT) COMMENT='\xed\xa0\x80'",
        ):
            cursor.execute(statement)
    settings = SourceSettings(
        host=server.host, port=server.port, user=server.user, password=server.password, tables=("a",)
    )
    with connect(ServerAccess.of(settings)) as connection:
        assert len([one for one in list_tables(connection) if one[0] == schema]) == 4
        found = [one.child for one in read_foreign_keys(connection) if one.child[0] == schema]
        again = [one.child for one in read_foreign_keys(connection) if one.child[0] == schema]
    assert found == again == [(schema, "c")]


def test_only_tables_that_can_have_foreign_keys_are_asked_for_them(
    fresh_database: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Others cannot be opened where a part of them, their engine or the server behind it is missing."""
    server = database("mariadb114")
    schema = fresh_database(server)
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE part (id INT) ENGINE=MyISAM")
        cursor.execute("CREATE TABLE whole (id INT) ENGINE=MERGE UNION=(part)")
        cursor.execute("DROP TABLE part")
        assert not [one for one in read_foreign_keys(connection) if one.child[0] == schema]
    assert f"{schema}.whole" not in "".join(capsys.readouterr())


def test_a_connection_that_breaks_while_they_are_read_is_one_to_be_made_again() -> None:
    server = database("mariadb114")
    with server.connect() as connection, server.connect() as other, other.cursor() as cursor:
        cursor.execute(f"KILL {connection.thread_id()}")
        with pytest.raises(RetriableSourceError):
            read_foreign_keys(connection, {("any", "table")})


@pytest.mark.parametrize(("name", "logged"), [("mysql80", False), ("mariadb114", False), ("mysql97", True)])
def test_whether_the_server_logs_what_they_change_is_known(name: str, logged: bool) -> None:
    with database(name).connect() as connection:
        since = logs_cascades_since(connection)
        assert (since is not None) is logged
        assert since is None or time.time() - 6 * 3600 < since <= time.time()


def test_a_server_that_is_slow_to_answer_was_not_started_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it wrote before its start would be taken for logged."""
    clock = [100]

    def ask(_connection: object, sql: str) -> list[tuple[object, ...]]:
        clock[0] += 5
        if sql == "SELECT UNIX_TIMESTAMP()":
            return [(clock[0],)]
        if "Uptime" in sql:
            return [("Uptime", str(clock[0] - 90))]
        return [("innodb_native_foreign_keys", "OFF")]

    monkeypatch.setattr("producer.catalog.foreign_keys.ask", ask)
    assert logs_cascades_since(None) == 95
