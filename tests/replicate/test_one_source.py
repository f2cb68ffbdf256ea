"""A task on real servers: one source, one target, the rows of both compared."""

from __future__ import annotations

import time

from schemas.settings import from_mapping
from tests.integration.test_ordered_stream import mapping_of, written
from tests.replicate.task_scene import COLUMNS, catch_up, rows_of, task_of
from tests.support.producers import SIGNAL, running
from tests.support.servers import database


def test_a_loaded_and_followed_source_is_equal(source, registry):
    target = database("mariadb114")
    settings = from_mapping(mapping_of(source, registry.url))
    source.execute(SIGNAL, *(f"CREATE TABLE {table} ({COLUMNS})" for table in ("a", "b")))
    rows = ",".join(f"({number}, 1, 'x')" for number in range(300))
    source.execute(f"INSERT INTO a VALUES {rows}")
    task = task_of(source, registry.url, target)
    with running(settings) as run, written(source, keys=100):
        time.sleep(1)
        catch_up(task)
        source.execute("ALTER TABLE b ADD COLUMN x INT NOT NULL DEFAULT 7", "CREATE TABLE c (id INT PRIMARY KEY)", "INSERT INTO c VALUES (1)")
        time.sleep(1)
    with running(settings) as run:
        run.caught_up(source)
        catch_up(task)
    for table in ("a", "b", "c"):
        assert rows_of(target, source.schema, table) == rows_of(source.server, source.schema, table), table
