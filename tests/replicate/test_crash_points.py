"""A task that dies at each of its statements at the target, before it and behind it: a later start ends in the same rows.

The records are in Kafka once. Each round puts the target and its state back to the begin of the task.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from mysqlio.server_access import ServerAccess
from schemas.settings import from_mapping
from schemas.settings.task_section import TaskSettings
from spark_jobs.replicate import task_source
from spark_jobs.replicate.apply import apply_target
from spark_jobs.replicate.apply.apply_target import ApplyTarget, SourceState
from spark_jobs.replicate.task import TaskAttempt
from tests.integration.test_ordered_stream import mapping_of, written
from tests.replicate.task_scene import COLUMNS, Died, catch_up, rows_of, task_of
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database, drop_database, new_database


@dataclass
class Statements:
    """Statements that a task runs at the target, by their kind; it dies at the first one of `kind`, before or behind it."""

    kind: str = ""
    is_behind: bool = False
    passed: int = 0
    kinds: list[str] = field(default_factory=list)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        execute, execute_many = ApplyTarget.execute, ApplyTarget.execute_many
        patch.setattr(ApplyTarget, "execute", lambda target, sql, *values: self.around(execute, sql, target, sql, *values))
        patch.setattr(ApplyTarget, "execute_many", lambda target, *arguments: self.around(execute_many, "rows", target, *arguments))

    def around(self, run: Any, sql: str, *arguments: Any) -> Any:
        kind = " ".join(re.split(r"[\s`(]+", sql)[:4])
        dies = kind == self.kind and self.kinds.count(kind) == self.passed
        self.kinds.append(kind)
        if dies and not self.is_behind:
            raise Died
        result = run(*arguments)
        if dies:
            raise Died
        return result


@pytest.fixture(scope="module", params=["mysql80"])
def stream(request, kafka, registry) -> Iterator[Any]:
    """A source of which the producer has published a load, changes, DDL and a truncate; the task's first state, and its rows."""
    server = database(request.param)
    source = Source(server, new_database(server), kafka.bootstrap_servers)
    settings = from_mapping(mapping_of(source, registry.url))
    source.execute(SIGNAL, *(f"CREATE TABLE {table} ({COLUMNS})" for table in ("a", "b")))
    source.execute(f"INSERT INTO a VALUES {','.join(f'({number}, 1, NULL)' for number in range(100))}")
    target = database("mariadb114")
    task = task_of(source, registry.url, target, apply={"driver_rows": 40, "max_delay_ms": 0})
    states: list[SourceState] = []
    with running(settings) as producer, pytest.MonkeyPatch.context() as patch:
        begun = task_source.begun
        patch.setattr(task_source, "begun", lambda *args, **named: states.append(begun(*args, **named)) or states[-1])
        with written(source, keys=30):
            catch_up(task)
            source.execute("ALTER TABLE b ADD COLUMN x INT NOT NULL DEFAULT 7", "CREATE TABLE c (id INT PRIMARY KEY, v INT)")
            source.execute("CREATE INDEX by_v ON c (v)", "CREATE UNIQUE INDEX once ON c (v, id)", "DROP INDEX by_v ON c")
            source.execute("INSERT INTO c VALUES (1, 2)", "RENAME TABLE c TO d", "TRUNCATE TABLE d", "RENAME TABLE d TO c")
            source.execute("INSERT INTO c VALUES (2, 3)", "UPDATE c SET id = 5")
            time.sleep(0.3)
        producer.caught_up(source)
    (state,) = states
    yield source, task, target, state
    source.connection.close()
    drop_database(server, source.schema)
    drop_database(target, source.schema)


@pytest.fixture(autouse=True)
def slow_kafka(monkeypatch) -> None:
    """Kafka sends nothing at first: each attempt begins with an empty batch. That the process lives is noted once."""
    monkeypatch.setattr(apply_target, "_SEEN_EVERY_S", math.inf)
    batch, asked = TaskAttempt._batch, set[TaskAttempt]()

    def later(attempt: TaskAttempt, paused: Any) -> Any:
        is_first = attempt not in asked
        asked.add(attempt)
        return [] if is_first else batch(attempt, paused)

    monkeypatch.setattr(TaskAttempt, "_batch", later)


def put_back(source: Source, task: TaskSettings, state: SourceState) -> None:
    """The target as it was when the task began, which has asked for its snapshot since."""
    target = ApplyTarget(ServerAccess.of(task.target), task.task, None)
    target.take_over()
    target.execute(f"DROP DATABASE IF EXISTS {source.schema}")
    target.execute("DELETE FROM tidemark_meta.ddl")
    with target.transaction():
        target.put_state(source.name, replace(state, asked_ms=1))
    target.close()


def require_equal(source: Source, server: Any) -> None:
    for table in ("a", "b", "c"):
        assert rows_of(server, source.schema, table) == rows_of(source.server, source.schema, table), table


def statements_of_a_run(stream: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    source, task, server, state = stream
    put_back(source, task, state)
    whole = Statements()
    with monkeypatch.context() as patch:
        whole.install(patch)
        catch_up(task)
    require_equal(source, server)
    return whole.kinds


def dies(task: TaskSettings, statements: Statements, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether it came to its last statement."""
    with monkeypatch.context() as patch:
        statements.install(patch)
        try:
            catch_up(task)
        except Died:
            return True
    return False


def test_starts_that_die_at_each_kind_of_statement_end_in_the_rows_of_the_source(stream, monkeypatch) -> None:
    """Each start continues the one before it, and comes a bit further."""
    source, task, server, state = stream
    kinds = list(dict.fromkeys(statements_of_a_run(stream, monkeypatch)))
    assert {"rows", "COMMIT; SET SESSION wait_timeout", "REPLACE INTO tidemark_meta.source VALUES", "REPLACE INTO tidemark_meta.ddl VALUES"} < set(kinds)
    put_back(source, task, state)
    points = [(kind, is_behind) for kind in kinds for is_behind in (False, True)]
    died = [dies(task, Statements(*point), monkeypatch) for point in points]
    assert died.count(True) > len(kinds)
    catch_up(task)
    require_equal(source, server)


@pytest.mark.slow
def test_a_start_that_died_at_any_statement_ends_in_the_rows_of_the_source(stream, monkeypatch) -> None:
    source, task, server, state = stream
    for kind, count in Counter(statements_of_a_run(stream, monkeypatch)).items():
        for passed in range(min(count, 3)):
            for is_behind in (False, True):
                put_back(source, task, state)
                assert dies(task, Statements(kind, is_behind, passed), monkeypatch)
                catch_up(task)
                require_equal(source, server)
