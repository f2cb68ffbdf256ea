"""A sink, a state topic and a checkpoint of an older version are continued by the producer and the merge job of today.

`README.md` says what is in a recording. Nothing is read again but the chunks that were not done; no record is published and
no row is merged twice; source and sink are equal at the end.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from schemas import topics
from schemas.markers import MARKER_KEY
from tests.e2e.binlog import logged_changes
from tests.e2e.pipeline import Pipeline
from tests.e2e.topics import RecordReader, plain
from tests.recorded.recorded_workload import BIG_ROWS, DATABASE
from tests.recorded.restored import restored
from tests.support.topics import read_topics
from tidemark.cli import main
from tidemark.status.status_tree import Status, TableStatus
from tidemark.verify.quarantined_rows import groups

# mysql-replication calls PyMySQL by its old names.
pytestmark = pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning")

RECORDINGS = sorted(path.parent for path in Path(__file__).parent.glob("*/settings.json"))
KEYS = {
    "customers": ("id",),
    "orders": ("customer", "n"),
    "kinds": ("code", "n"),
    "evolving": ("id",),
    "mixed": ("id",),
    "emptied": ("id",),
    "damaged": ("id",),
    "big": ("id",),
    "late": ("id",),
}
COMPARED = {
    "customers": "id, name, CAST(credit AS CHAR), note",
    "orders": "customer, n, status",
    "evolving": "d, id, a, c",
    "mixed": "id, v",
    "emptied": "id, v",
    "damaged": "id, v",
    "big": "id, v, t",
    "late": "id, v",
}
IN_PROGRESS = ("big", "kinds")
DAMAGED = "damaged"
CHANGES = (
    "INSERT INTO big VALUES (50000, 1, 'today')",
    "UPDATE big SET v = v + 1000 WHERE id % 400 = 1",
    "DELETE FROM customers WHERE id = 60",
    "UPDATE evolving SET a = -a WHERE id > 90",
    "INSERT INTO late VALUES (3, 'today')",
    "ALTER TABLE mixed ADD COLUMN w INT NOT NULL DEFAULT 5",
    "INSERT INTO mixed VALUES (8000, 1, 1)",
)


@dataclass(frozen=True)
class Seen:
    """What was there at one moment, as a reader from outside sees it."""

    status: Status
    query_id: str
    batch_id: int
    snapshot_rows: Mapping[str, int]
    requests: frozenset[bytes]
    quarantined: list[dict[str, Any]]

    def table(self, name: str) -> TableStatus:
        return next(table for table in self.status.tables if table.table == f"{DATABASE}.{name}")


def look(pipeline: Pipeline) -> Seen:
    status = pipeline.status()
    progress = json.loads(Path(pipeline.settings.sink.progress_path).read_text(encoding="utf-8"))
    names = {topics.snapshot_topic(pipeline.name, DATABASE, table): table for table in KEYS if table != "late"}
    state = topics.state_topic(pipeline.name)
    records = read_topics(pipeline.kafka.bootstrap_servers, [*names, state], raw=True)
    rows = {table: sum(record.key != MARKER_KEY for record in records[topic]) for topic, table in names.items()}
    requests = frozenset(record.key for record in records[state] if record.key.startswith(b"request/"))
    return Seen(status, progress["query_id"], progress["batch_id"], rows, requests, groups(pipeline.settings))


@pytest.mark.parametrize("recording", RECORDINGS, ids=[path.name for path in RECORDINGS])
def test_what_an_older_version_left_behind_is_continued(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with restored(recording, tmp_path) as pipeline:
        before = look(pipeline)
        assert_worth_continuing(pipeline, before)

        pipeline.start("merge", "run")
        pipeline.wait_for_snapshot(*IN_PROGRESS)
        pipeline.sql(*CHANGES)
        pipeline.wait_for_sink(*KEYS, consistent=False)
        pipeline.wait("all tables to be consistent", lambda s: all(is_settled(table) for table in s.tables))

        pipeline.assert_equal()
        assert_same_rows(pipeline)
        assert_nothing_began_again(pipeline, before, look(pipeline))
        assert_each_change_once(pipeline)
        assert_status(pipeline, capsys)


def is_settled(table: TableStatus) -> bool:
    """Whether a table is consistent; the one with a record in quarantine never is."""
    if table.table == f"{DATABASE}.{DAMAGED}":
        return table.inexact is not None and table.behind == 0
    return table.is_consistent or table.table == f"{DATABASE}.dropped"


def assert_worth_continuing(pipeline: Pipeline, before: Seen) -> None:
    """Check that the recording has what its README promises."""
    log, big = before.status.log, before.table("big")
    assert log is not None
    assert (log.position.file, log.position.offset) < pipeline.end_of_log(), "no change waits for the producer"
    assert (log.needed_file, log.needed_pos) < (log.file, log.pos), "no XA transaction is prepared"
    assert big.snapshot == "running", big
    assert 0 < big.rows_read < BIG_ROWS / 2, big
    assert before.status.behind, "no record waits for the merge job"
    checkpoint = Path(pipeline.settings.sink.service_path) / "checkpoint"
    begun, ended = (max(int(path.name) for path in (checkpoint / kind).glob("[0-9]*")) for kind in ("offsets", "commits"))
    assert begun == ended + 1, "no batch is unfinished"
    assert [one["records"] for one in before.quarantined] == [1], before.quarantined


def assert_nothing_began_again(pipeline: Pipeline, before: Seen, after: Seen) -> None:
    was, log = before.status.log, after.status.log
    assert was is not None
    assert log is not None
    lines = pipeline.log_path("run").read_text(encoding="utf-8").splitlines()
    (started,) = (line for line in map(json.loads, lines) if line["event"] == "producer.started")
    assert (started["first_start"], started["file"], started["pos"]) == (False, was.file, was.pos)
    assert log.position.epoch == was.position.epoch
    assert log.position > was.position

    assert after.query_id == before.query_id
    assert after.batch_id > before.batch_id
    assert after.quarantined == before.quarantined

    assert after.requests == before.requests, "a snapshot was requested"
    read = {table: after.snapshot_rows[table] - rows for table, rows in before.snapshot_rows.items()}
    assert {table for table, rows in read.items() if rows} <= set(IN_PROGRESS), read
    left = {table: after.table(table).rows_read - before.table(table).rows_read for table in IN_PROGRESS}
    assert {table: read[table] for table in IN_PROGRESS} == left, "chunks that were done were read again"


def assert_same_rows(pipeline: Pipeline) -> None:
    """Source and sink, compared without any code of ours but the place of a table."""
    with pipeline.connect() as connection, connection.cursor() as cursor:
        for table, columns in COMPARED.items():
            cursor.execute(f"SELECT {columns} FROM {table}")
            names = [one[0].removeprefix("CAST(").removesuffix(" AS CHAR)") for one in cursor.description]
            found = DeltaTable(pipeline.settings.sink.table_path(DATABASE, table)).to_pyarrow_table(columns=names).to_pylist()
            ours = Counter(tuple(row) for row in cursor.fetchall())
            theirs = Counter(tuple(str(row[n]) if n == "credit" else row[n] for n in names) for row in found)
            assert ours == theirs, (table, ours - theirs, theirs - ours)


def assert_each_change_once(pipeline: Pipeline) -> None:
    """The change topics against the whole log of the source: the same changes per key, in order, once."""
    keys = {table: key for table, key in KEYS.items() if table != DAMAGED}
    logged: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    with pipeline.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        first = cursor.fetchone()[0]
    for change in logged_changes(pipeline.server, DATABASE, keys, (first, 4)):
        logged[change.table, *map(plain, change.key)].append(change.op)
    published: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    found = RecordReader(pipeline.settings).changes_of_tables(DATABASE, keys)
    for table, changes in found.items():
        ours = [change for change in changes if change.op != "r"]
        assert len({(change.op, change.position) for change in ours}) == len(ours), f"{table}: changes came twice"
        for change in ours:
            assert change.key is not None
            published[table, *(plain(change.key[name]) for name in keys[table])].append(change.op)
    wrong = {key: (logged.get(key), published.get(key)) for key in logged | published if logged.get(key) != published.get(key)}
    assert not wrong, f"{len(wrong)} of {len(logged)} keys: {dict(list(wrong.items())[:3])}"


def assert_status(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    """Check what `tidemark status` says now: both jobs run, all is merged, and only the damaged table is not exact."""
    capsys.readouterr()
    assert main(["status", "--config", str(pipeline.config_path), "--output", "json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["producer"]["alive"], status
    assert status["sink"]["alive"], status
    assert status["sink"]["caught_up"], status
    assert status["sink"]["behind_records"] == 0, status
    tables = {name.removeprefix(f"{DATABASE}."): table for name, table in status["tables"].items()}
    assert {name for name, table in tables.items() if table["inexact"]} == {DAMAGED}, status
    assert {name: table["quarantined"] for name, table in tables.items() if table["quarantined"]} == {DAMAGED: 1}
    assert {table["snapshot"] for table in tables.values()} <= {"done", None}, status
    assert not any(table["error"] or table["set_aside"] or table["skipped"] for table in tables.values()), status
