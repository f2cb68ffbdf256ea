"""Foreign keys that change rows which the source does not log: the target follows them, while tables are loaded and later."""

from __future__ import annotations

import random
import time
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

import pytest

from schemas.settings import from_mapping
from tests.integration.among_changes import insert_unlogged
from tests.integration.test_ordered_stream import mapping_of
from tests.replicate.task_scene import catch_up, rows_of, task_of
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database
from tests.support.writing_threads import writing_threads

PARENTS, CHILDREN = 1_500, 3_000
TABLES = {
    "parent": "id INT PRIMARY KEY, code INT NOT NULL UNIQUE",
    "gone": "id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE",
    "emptied": "id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE SET NULL ON UPDATE SET NULL",
    "by_code": "id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES parent (code) ON DELETE CASCADE ON UPDATE CASCADE",
}
PAIRS = pytest.mark.parametrize(("source", "server"), [("mysql80", "mariadb114"), ("mariadb114", "mysql80")], indirect=["source"])


def fill(source: Source) -> None:
    source.execute(SIGNAL, *(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()))
    insert_unlogged(source, "parent", [(number, number) for number in range(PARENTS)])
    for table in ("gone", "emptied", "by_code"):
        insert_unlogged(source, table, [(number, number * 7 % PARENTS) for number in range(CHILDREN)])


def changed_parents(source: Source, statements: list[str]) -> AbstractContextManager[None]:
    """A thread that deletes parents, changes each of their keys, and adds parents with children; it notes its statements."""
    new = count(10 * PARENTS)

    def write(cursor: Any, dice: random.Random, _number: int) -> float:
        key, other = dice.randrange(PARENTS), next(new)
        sql = dice.choice([
            f"DELETE FROM parent WHERE id = {key}", f"DELETE FROM parent WHERE id = {key}",
            f"UPDATE parent SET id = {other} WHERE id = {key}", f"UPDATE parent SET code = {other} WHERE id = {key}",
            f"INSERT INTO parent VALUES ({other}, {other})", f"UPDATE gone SET p = NULL WHERE id = {key}",
            f"INSERT IGNORE INTO gone VALUES ({other}, {key})", f"INSERT IGNORE INTO by_code VALUES ({other}, {key})",
        ])  # fmt: skip
        if cursor.execute(sql):
            statements.append(sql)
        return 0.03

    return writing_threads(source, write)


def differing(source: Source, server) -> dict[str, set[tuple]]:
    """Rows that one of the two servers has, by table."""
    rows = {table: {*rows_of(server, source.schema, table)} ^ {*rows_of(source.server, source.schema, table)} for table in TABLES}
    return {table: some for table, some in rows.items() if some}


@PAIRS
def test_children_are_those_of_the_source_though_parents_change_while_tables_are_loaded(source, registry, server):
    target = database(server)
    fill(source)
    task, statements = task_of(source, registry.url, target), list[str]()
    with running(from_mapping(mapping_of(source, registry.url))) as run:
        with changed_parents(source, statements):
            catch_up(task)
            during = len(statements)
            time.sleep(1)
        run.caught_up(source)
        catch_up(task)
    assert during > 20
    assert differing(source, target) == {}


@PAIRS
def test_a_target_without_the_foreign_keys_keeps_the_children_that_the_source_has_removed(source, registry, server):
    target = database(server)
    source.execute(SIGNAL, *(f"CREATE TABLE {name} ({TABLES[name]})" for name in ("parent", "gone")))
    source.execute("INSERT INTO parent VALUES (1, 1), (2, 2)", "INSERT INTO gone VALUES (1, 1), (2, 2)")
    with target.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {source.schema}")
        cursor.execute(f"CREATE TABLE {source.schema}.gone (id INT PRIMARY KEY, p INT)")
    task = task_of(source, registry.url, target)
    with running(from_mapping(mapping_of(source, registry.url))) as run:
        catch_up(task)
        source.execute("DELETE FROM parent WHERE id = 1", "UPDATE parent SET id = 3 WHERE id = 2")
        run.caught_up(source)
        catch_up(task)
    assert rows_of(target, source.schema, "parent") == [(3, 2)]
    assert rows_of(target, source.schema, "gone") == [(1, 1), (2, 2)]
    assert rows_of(source.server, source.schema, "gone") == [(2, 3)]
