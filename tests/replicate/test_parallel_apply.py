"""Batches on real servers, that workers apply or one transaction: whatever dies, and wherever, each change is applied once.

The records are in Kafka once. Each round puts the target back to the begin of the task. The target's own log is the witness.
"""

from __future__ import annotations

import random
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent

from mysqlio.server_access import ServerAccess
from schemas.errors import FencedError, RetriableSourceError, SinkError
from schemas.settings import from_mapping
from schemas.settings.task_section import TaskSettings
from spark_jobs.replicate import task_source
from spark_jobs.replicate.apply.apply_target import ApplyTarget, SourceState
from spark_jobs.replicate.apply.parallel_apply import ParallelApply
from spark_jobs.replicate.apply.plans import PlanStore
from spark_jobs.replicate.apply.share_workers import ShareWorker, WorkerSetup
from spark_jobs.replicate.task import TaskAttempt
from tests.integration.test_ordered_stream import mapping_of
from tests.replicate.task_scene import Died, catch_up, eventual, rows_of, task_of
from tests.replicate.test_crash_points import Statements, dies
from tests.replicate.test_many_sources import end_of_log
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database, drop_database, new_database

pytestmark = pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning")  # of mysql-replication

PLAIN = tuple(f"t{number}" for number in range(5))
TABLES = (*PLAIN, "u")
"""The last one has a second unique key, whose values its rows exchange."""
APPLY = {"workers": 3, "driver_rows": 20, "txn_rows": 15, "max_batch_rows": 300, "max_delay_ms": 300, "compact": False}


@dataclass
class Stream:
    """A source whose changes are in Kafka, a task that has not applied them, and the changes."""

    source: Source
    task: TaskSettings
    target: Any
    state: SourceState
    transactions: list[list[tuple[Any, ...]]]
    begin: tuple[str, int] = ("", 4)

    def put_back(self) -> None:
        target = ApplyTarget(ServerAccess.of(self.task.target), self.task.task, None)
        target.take_over()
        target.execute(f"DROP DATABASE IF EXISTS {self.source.schema}")
        for table in ("ddl", "plan", "worker"):
            target.execute(f"DELETE FROM tidemark_meta.{table}")
        with target.transaction():
            target.put_state(self.source.name, self.state)
        target.close()
        self.begin = end_of_log(self.target)

    def with_workers(self, workers: int) -> TaskSettings:
        return replace(self.task, apply=replace(self.task.apply, workers=workers))

    def execute(self, statement: str) -> None:
        with self.target.connect(database=self.source.schema) as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    def die_in_plan(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the task die in its second plan, of which some transactions of workers are committed."""
        self.put_back()
        commits = 0
        apply_some = ShareWorker._apply_some

        def dying(worker: ShareWorker, plan: int, *arguments: Any) -> int:
            nonlocal commits
            commits += plan == 2
            if commits > 4:
                raise Died
            return apply_some(worker, plan, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(ShareWorker, "_apply_some", dying)
            with pytest.raises(Died):
                catch_up(self.task)

    def refusal(self, task: TaskSettings, monkeypatch: pytest.MonkeyPatch) -> SinkError:
        """The error of a task that finds a row in the target which it has to insert."""
        self.put_back()
        changes = [change for transaction in self.transactions for change in transaction]
        key = next(row[0] for table, kind, row, *_ in changes if (table, kind) == ("t3", "WriteRowsEvent"))
        begin = PlanStore.begin

        def begun(store: PlanStore, plan: Any) -> int:
            self.execute(f"INSERT IGNORE INTO t3 VALUES ({key}, -1)")
            return begin(store, plan)

        with monkeypatch.context() as patch:
            patch.setattr(PlanStore, "begin", begun)
            with pytest.raises(SinkError) as caught:
                catch_up(task)
        return caught.value

    def require_equal(self) -> None:
        for table in TABLES:
            assert rows_of(self.target, self.source.schema, table) == rows_of(self.source.server, self.source.schema, table), table

    def require_applied_once(self) -> None:
        self.require_equal()
        applied = changes_of(self.target, self.source.schema, self.begin)
        changes = Counter(change for transaction in self.transactions for change in transaction)
        assert applied == changes, (applied - changes, changes - applied)


def changes_of(server: Any, schema: str, begin: tuple[str, int]) -> Counter[tuple[Any, ...]]:
    """The changes in the log of a server: table, kind, and both rows."""
    return Counter(change for transaction in transactions_of(server, schema, begin) for change in transaction)


def transactions_of(server: Any, schema: str, begin: tuple[str, int]) -> list[list[tuple[Any, ...]]]:
    """The transactions in the log of a server that have changes."""
    stream: Any = BinLogStreamReader(
        connection_settings={"host": server.host, "port": server.port, "user": server.user, "password": server.password},
        server_id=71_236, log_file=begin[0], log_pos=begin[1], resume_stream=True,
        only_events=[DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent, XidEvent], only_tables=TABLES, only_schemas=[schema],
    )  # fmt: skip
    transactions: list[list[tuple[Any, ...]]] = [[]]
    try:
        for event in stream:
            if isinstance(event, XidEvent):
                transactions.append([])
            else:
                transactions[-1] += [_change(event, row) for row in event.rows]
    finally:
        stream.close()
    return [one for one in transactions if one]


def _change(event: RowsEvent, row: Any) -> tuple[Any, ...]:
    images = [tuple(image.values()) for name, image in row.items() if name.endswith("values")]
    return event.table, type(event).__name__, *images


def write(source: Source, dice: random.Random, transactions: int, values: list[int]) -> None:
    """Transactions of very different sizes, most of them of several tables. `values` are the ones of `u`."""
    for _ in range(transactions):
        statements = ["BEGIN"]
        for _ in range(dice.choice([1, 1, 2, 5, 40])):
            table, key = dice.choice(PLAIN), dice.randrange(150)
            statements.append(
                dice.choice([
                    f"INSERT INTO {table} (id, v) VALUES ({key}, {dice.randrange(1000)}) ON DUPLICATE KEY UPDATE v = v + 1",
                    f"INSERT IGNORE INTO {table} (id, v) VALUES ({key}, 0), ({key + 1}, 1), ({key + 2}, 2)",
                    f"UPDATE {table} SET v = v + 1 WHERE id BETWEEN {key} AND {key + 5}",
                    f"UPDATE IGNORE {table} SET id = {dice.randrange(150)} WHERE id = {key}",
                    f"DELETE FROM {table} WHERE id BETWEEN {key} AND {key + 2}",
                ])
            )  # fmt: skip
        one, other = dice.sample(range(len(values)), 2)
        values[one], values[other] = values[other], values[one]
        changes = ((one, -1), (other, values[other]), (one, values[one]))
        source.execute(*statements, *(f"UPDATE u SET v = {value} WHERE id = {key}" for key, value in changes), "COMMIT")


@pytest.fixture(scope="module", name="stream")
def planned_stream(kafka, registry) -> Iterator[Stream]:
    server, target = database("mysql80"), database("mariadb114")
    source = Source(server, new_database(server), kafka.bootstrap_servers)
    settings = from_mapping(mapping_of(source, registry.url))
    source.execute(SIGNAL, *(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT NOT NULL)" for table in PLAIN))
    source.execute("CREATE TABLE u (id INT PRIMARY KEY, v INT NOT NULL UNIQUE)")
    task = eventual(task_of(source, registry.url, target, mode="incremental", apply=APPLY))
    dice, states = random.Random(5), list[SourceState]()
    with running(settings) as producer, pytest.MonkeyPatch.context() as patch:
        producer.caught_up(source)
        begun = task_source.begun
        patch.setattr(task_source, "begun", lambda *args, **named: states.append(begun(*args, **named)) or states[-1])
        catch_up(task)
        begin, values = end_of_log(server), list(range(8))
        source.execute("INSERT INTO u VALUES " + ",".join(f"({value}, {value})" for value in values))
        write(source, dice, 60, values)
        source.execute("ALTER TABLE t1 ADD COLUMN x INT NOT NULL DEFAULT 7", "TRUNCATE TABLE t2")
        write(source, dice, 60, values)
        producer.caught_up(source)
    yield Stream(source, task, target, states[0], transactions_of(server, source.schema, begin))
    source.connection.close()
    drop_database(server, source.schema)
    drop_database(target, source.schema)


def statements_of_a_run(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    stream.put_back()
    whole = Statements()
    with monkeypatch.context() as patch:
        whole.install(patch)
        catch_up(stream.task)
    stream.require_applied_once()
    return whole.kinds


def test_a_task_that_dies_at_each_kind_of_statement_of_a_plan_applies_each_change_once(stream, monkeypatch) -> None:
    """Before and behind it: in the transaction of a worker, at its COMMIT, when the plan is opened or closed."""
    kinds = Counter(statements_of_a_run(stream, monkeypatch))
    assert {"rows", "COMMIT; SET SESSION wait_timeout", "REPLACE INTO tidemark_meta.plan VALUES", "UPDATE tidemark_meta.worker SET done"} <= kinds.keys()
    stream.put_back()
    for kind in kinds:
        for is_behind in (False, True):
            for passed in (0, 2) if kinds[kind] > 4 else (0,):
                if not dies(stream.task, Statements(kind, is_behind, passed), monkeypatch):
                    stream.require_applied_once()
                    stream.put_back()
                    assert dies(stream.task, Statements(kind, is_behind, passed), monkeypatch), (kind, is_behind, passed)
    catch_up(stream.task)
    stream.require_applied_once()


class LostConnections(Statements):
    """Loses the connection at one statement of each kind, before it is sent, or before it is answered."""

    def around(self, run: Any, sql: str, *arguments: Any) -> Any:
        kind = " ".join(sql.split()[:3])
        self.kinds.append(kind)
        is_lost = self.kinds.count(kind) == self.passed + 1
        if is_lost and not self.is_behind:
            arguments[0].connection._sock.shutdown(socket.SHUT_RDWR)
        result = run(*arguments)
        if is_lost:
            arguments[0].connection._sock.shutdown(socket.SHUT_RDWR)
            raise RetriableSourceError("lost")
        return result


@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize("passed", [2, 9])
def test_connections_that_are_lost_at_each_kind_of_statement_leave_each_change_applied_once(
    stream, monkeypatch, is_behind, passed
) -> None:
    stream.put_back()
    monkeypatch.setattr(TaskAttempt, "wait", lambda *_: None)
    lost = LostConnections(is_behind=is_behind, passed=passed)
    with monkeypatch.context() as patch:
        lost.install(patch)
        catch_up(stream.task)
    assert len([kind for kind in set(lost.kinds) if lost.kinds.count(kind) > passed]) >= 4
    stream.require_applied_once()


def follow(task: TaskSettings, failures: list[BaseException]) -> None:
    try:
        catch_up(task)
    except BaseException as error:  # noqa: BLE001 - raised by the test
        failures.append(error)


@pytest.mark.parametrize("paused", ["put_done", "share_transaction"])
def test_a_process_that_takes_over_waits_for_the_transaction_of_a_worker_and_fences_it(stream, monkeypatch, paused) -> None:
    """A worker wakes up in its transaction, and commits it; or between two, and commits nothing more."""
    stream.put_back()
    in_worker, may_continue, errors, calls = threading.Event(), threading.Event(), list[BaseException](), list[int]()
    original = getattr(ApplyTarget, paused)

    def pausing(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            in_worker.set()
            assert may_continue.wait(60)
        return original(*arguments)

    monkeypatch.setattr(ApplyTarget, paused, pausing)
    one, other = (threading.Thread(target=follow, args=(stream.task, errors)) for _ in range(2))
    one.start()
    assert in_worker.wait(60)
    other.start()
    other.join(1.0 if paused == "put_done" else 60.0)
    assert other.is_alive() == (paused == "put_done")
    may_continue.set()
    one.join(60)
    other.join(60)
    assert [type(error) for error in errors] == [FencedError]
    stream.require_applied_once()


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_an_open_plan_is_finished_by_as_many_workers_as_it_has_whatever_the_settings_say(stream, monkeypatch, workers) -> None:
    stream.die_in_plan(monkeypatch)
    catch_up(stream.with_workers(workers))
    stream.require_applied_once()


def test_eight_workers_end_in_the_rows_of_one(stream) -> None:
    for workers in (8, 1):
        stream.put_back()
        catch_up(stream.with_workers(workers))
        stream.require_applied_once()


def test_a_plan_whose_keys_were_altered_by_hand_ends_in_the_rows_of_the_source(stream, monkeypatch) -> None:
    stream.die_in_plan(monkeypatch)
    stream.execute("ALTER TABLE t0 ADD UNIQUE KEY (id, v)")
    catch_up(stream.task)
    stream.require_equal()


def test_a_worker_that_still_runs_when_its_plan_is_applied_again_as_a_whole_applies_nothing_more(stream, monkeypatch) -> None:
    """As one of an executor that was lost to Spark."""
    stream.die_in_plan(monkeypatch)
    stream.execute("ALTER TABLE t0 ADD UNIQUE KEY (id, v)")
    repeat = ParallelApply._repeat_safely

    def repeated(parallel: ParallelApply, rows: Any) -> None:
        number, plan = parallel.store.read()
        shares = parallel._shares(rows, {stream.source.name: ()}, plan.workers)
        repeat(parallel, rows)
        for worker, share in enumerate(shares):
            setup = WorkerSetup.of(parallel._target, parallel._settings)
            ShareWorker(setup, parallel._decoder).apply(number, worker, share)

    monkeypatch.setattr(ParallelApply, "_repeat_safely", repeated)
    catch_up(stream.task)
    stream.require_equal()


def test_a_plan_that_cannot_be_repeated_ends_the_task_at_a_table_without_a_key(stream, monkeypatch) -> None:
    stream.die_in_plan(monkeypatch)
    stream.execute("ALTER TABLE t3 DROP PRIMARY KEY")
    with pytest.raises(SinkError, match=r"\.t3 has no key: it is not known which of its rows are applied\. Change them back"):
        catch_up(stream.task)
    stream.execute("ALTER TABLE t3 ADD PRIMARY KEY (id)")
    catch_up(stream.task)
    stream.require_applied_once()


def test_a_row_that_the_target_does_not_take_ends_the_task_and_nothing_behind_the_batch_is_applied(stream, monkeypatch) -> None:
    error = stream.refusal(stream.task, monkeypatch)
    assert re.search(r"source .*, 0000\..*: the target does not take an insert in .*\.t3: .*Duplicate entry", str(error))
    assert len(changes_of(stream.target, stream.source.schema, stream.begin)) < 2 * APPLY["max_batch_rows"]
    stream.execute("DELETE FROM t3 WHERE v = -1")
    catch_up(stream.task)
    stream.require_equal()


@pytest.mark.parametrize("most", [1000, 30])
def test_transactions_of_a_source_are_whole_in_the_target_up_to_the_rows_of_a_batch(stream, monkeypatch, most) -> None:
    """Though they are read in slices, and the task dies between two of its transactions."""
    apply = replace(stream.task.apply, max_batch_rows=most)
    task = replace(stream.task, target=replace(stream.task.target, consistency="transaction"), apply=apply)
    monkeypatch.setattr("spark_jobs.replicate.order.stream_reader.SLICE_BYTES", 9_000)
    stream.put_back()
    while dies(task, Statements("REPLACE INTO tidemark_meta.source VALUES", passed=7), monkeypatch):
        pass
    stream.require_applied_once()
    applied = transactions_of(stream.target, stream.source.schema, stream.begin)
    changes, expected = [[change for one in log for change in one] for log in (applied, stream.transactions)]
    for end in ends_of(applied):  # within a transaction deletes of several rows have the order of their keys
        assert Counter(changes[:end]) == Counter(expected[:end]), end
    assert (ends_of(applied) <= ends_of(stream.transactions)) == (most == 1000)
    assert len(applied) < len(stream.transactions)
    assert max(map(len, applied)) <= most


def ends_of(transactions: list[list[tuple[Any, ...]]]) -> set[int]:
    """How many changes there are up to the end of each transaction."""
    return set(accumulate(map(len, transactions)))
