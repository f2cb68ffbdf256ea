"""Verify while a writer changes the source and a follower lands the changes some time later."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from schemas.settings import TransformSettings
from tests.verify import sinks
from tests.verify.conftest import SERVERS, Scene
from tests.verify.follower import Follower
from tidemark.verify import DifferenceKind, VerifyReport, verify

# mysql-replication calls PyMySQL by its old names.
pytestmark = pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning")

KEYS = 400
PATIENCE_S = 240  # of which nothing is waited where all is well
LEAST_STATEMENTS = 100
MOST_DELETES = 2
ROUNDS = 3
HOT = 5
QUIET = range(300, KEYS)
SEED = 20_240_506


class Writer(threading.Thread):
    """Changes, moves, deletes and inserts rows below the quiet ones; a few hot keys all the time.

    No row goes as often as verify has rounds: one that is there for the source and gone for the sink in each is blamed.
    """

    def __init__(self, scene: Scene) -> None:
        super().__init__(daemon=True)
        self._connection = scene.server.connect(database=scene.database, autocommit=True)
        self._random = random.Random(SEED)
        self._stopped = threading.Event()
        self.statements = 0
        self._deleted: Counter[int] = Counter()

    def run(self) -> None:
        with self._connection.cursor() as cursor:
            while not self._stopped.is_set():
                cursor.execute(self._statement())
                self.statements += 1
                time.sleep(0.002)

    def stop(self) -> None:
        self._stopped.set()
        self.join()
        self._connection.close()

    def _statement(self) -> str:
        draw, key = self._random.random(), self._random.randrange(HOT, QUIET.start)
        value = self._random.randrange(1 << 40)
        if draw < 0.4:
            return f"UPDATE moving SET v = {value} WHERE id = {self._random.randrange(HOT)}"
        if draw < 0.7:
            return f"UPDATE moving SET v = {value}, s = 'changed {value}' WHERE id = {key}"
        if draw < 0.85 and self._deleted[key] < MOST_DELETES:
            self._deleted[key] += 1
            return f"DELETE FROM moving WHERE id = {key}"
        return f"REPLACE INTO moving VALUES ({key}, {value}, 'new')"


@pytest.fixture
def moving(scene: Scene) -> Iterator[tuple[Scene, Follower]]:
    """A filled table, its follower, and a writer at work."""
    print(f"seed {SEED}")  # noqa: T201
    scene.sql("CREATE TABLE moving (id INT PRIMARY KEY, v BIGINT, s VARCHAR(40)) CHARACTER SET utf8mb4")
    start = scene.end()
    scene.sql("INSERT INTO moving VALUES " + ",".join(f"({key},{key},'first')" for key in range(KEYS)))
    follower = Follower(scene.server, scene.database, "moving", scene.settings, start, delay_s=0.3)
    writer = Writer(scene)
    follower.wait_for_cycles(2)
    writer.start()
    deadline = time.monotonic() + PATIENCE_S
    while writer.statements <= LEAST_STATEMENTS:
        assert writer.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    yield scene, follower
    alive = writer.is_alive()
    writer.stop()
    follower.stop()
    assert alive, "the writer ended before its time"


def found_in(report: VerifyReport) -> set[tuple[DifferenceKind, int]]:
    (table,) = report.tables
    return {(part.kind, int(part.key["id"])) for part in table.differences}


# The mirror follows the log by mysql-replication, which needs the column names that MySQL 5.7 does not log.
@pytest.mark.parametrize("way", ["by a row", "read only", pytest.param("by its image", marks=pytest.mark.slow)])
@pytest.mark.parametrize("scene", [name for name in SERVERS if name != "mysql57"], indirect=True)
def test_rows_that_move_are_no_differences_and_planted_ones_are_found(
    moving: tuple[Scene, Follower], way: str, request: pytest.FixtureRequest
) -> None:
    scene, follower = moving
    settings = replace(scene.settings, source=replace(scene.settings.source, read_only=way == "read only"))
    if way == "by its image":  # rows start and stop to match while they are compared
        request.getfixturevalue("spark")
        follower.matches = lambda key, value: not HOT <= key < QUIET.start or value % 4 != 0
        transform = TransformSettings(tables=".*", where=f"id < {HOT} OR id >= {QUIET.start} OR v % 4 <> 0")
        settings = replace(settings, sinks=(replace(settings.sink, transforms=(transform,)),))
        follower.wait_for_cycles(2)
    moved, deadline = 0, time.monotonic() + PATIENCE_S
    while moved < 2:  # times that both sides did move; they may stand still, as the machine does
        assert time.monotonic() < deadline, "nothing moves"
        report = verify(settings, rounds=ROUNDS, patience_s=PATIENCE_S)
        (table,) = report.tables
        assert report.ok, report.to_text()
        moved += table.suspects > 0
    # One wrong value, one lost row, and one row that the source never had, among rows that rest.
    follower.spoiled = {301: (-1, "wrong"), 302: None, KEYS + 7: (1, "ghost")}
    follower.wait_for_cycles(2)
    report = verify(settings, rounds=ROUNDS, patience_s=PATIENCE_S)
    planted = {(DifferenceKind.VALUE, 301), (DifferenceKind.MISSING, 302), (DifferenceKind.EXTRA, KEYS + 7)}
    assert found_in(report) == planted, report.to_text()
    assert not report.ok


def test_a_row_missing_from_a_table_at_rest_is_found_in_the_first_round(scene: Scene) -> None:
    scene.sql("CREATE TABLE resting (id INT PRIMARY KEY)", "INSERT INTO resting VALUES (1)")
    sinks.caught_up(scene.connection, scene.server.flavour, scene.settings, f"{scene.database}.resting")
    empty = sinks.pa.table(
        {"id": sinks.pa.array([], sinks.pa.int32()), "_tm_position": sinks.pa.array([], sinks.pa.string())}
    )
    sinks.write_table(scene.settings, scene.database, "resting", empty)
    began = time.monotonic()
    assert found_in(verify(scene.settings, patience_s=PATIENCE_S)) == {(DifferenceKind.MISSING, 1)}
    assert time.monotonic() - began < PATIENCE_S / 2, "it waited for the sink"
