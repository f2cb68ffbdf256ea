"""What chaos over sinks counts with: which sinks a round has, and that a difference in each type of sink is found."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from devservers import Kafka, Postgres, Registry
from schemas.settings import from_mapping
from tests.chaos.load import TABLES
from tests.chaos.round import play
from tests.chaos.sink_judgement import (
    Judgement,
    compare_rows,
    judge_events,
    judged,
    rows_of_changelog,
    text_of,
)
from tests.chaos.sink_plans import KINDS, OTHERS, RELATIONAL, Feed, SinkPlan, kinds_of, plans_of
from tests.chaos.sink_servers import SinkServers
from tests.chaos.world import Servers, World
from tests.e2e.topics import Change
from tests.support.changelogs import messages
from tests.support.iceberg_tables import open_iceberg
from tests.support.record_producer import RecordProducer
from tests.support.servers import own_database

pytestmark = pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning")
ODD = next(feed for feed in OTHERS if feed.tables == ("odd *",))
SOURCE = "chaos:shop.odd *"
PIPELINE: Any = SimpleNamespace(name="chaos", database="shop")


def test_three_rounds_in_a_row_have_every_type_of_sink() -> None:
    for first in range(0, 300, 3):
        drawn = [kind for seed in range(first, first + 3) for kind in kinds_of(seed)]
        assert sorted(drawn) == sorted(KINDS), first
    assert all(2 <= len(kinds_of(seed)) <= 3 for seed in range(300))


def test_the_settings_of_every_round_are_accepted() -> None:
    for seed in range(60):
        reached = {"url": "{}://127.0.0.1:1/x", "user": "u", "password": "p"}
        sinks = [
            plan.settings("chaos_1", Path("/x"), {**reached, "url": f"{plan.kind}://127.0.0.1:1/x"} if plan.kind in RELATIONAL else {})
            for plan in plans_of(seed, kinds_of(seed))
        ]
        found = from_mapping({"name": "chaos", "source": {"tables": [".*"]}, "sinks": sinks})
        assert [sink.type for sink in found.sinks] == list(kinds_of(seed))


def event(op: str, number: int, n: int, key: int = 1) -> dict[str, Any]:
    values = dict.fromkeys(ODD.columns("odd *")) | {"id": key, "n": n}
    return {**values, "_tm_op": op, "_tm_position": f"p{number}", "_tm_source": SOURCE}


def change(number: int, feed: Feed = ODD) -> Change:
    return Change(0, 0, {"id": 1}, "c", None, dict.fromkeys(feed.compared), f"p{number}")


@pytest.mark.parametrize(
    ("events", "lost", "duplicated", "differing"),
    [
        ([event("+I", 1, 5), event("-U", 2, 5), event("+U", 2, 6)], 0, 0, 0),
        ([event("+I", 1, 5)], 1, 0, 1),
        ([event("-U", 2, 5), event("+U", 2, 6)], 1, 0, 0),
        ([event("+I", 1, 5), event("-U", 2, 5), event("+U", 2, 6), event("+U", 2, 6)], 0, 1, 0),
        ([event("+I", 1, 5), event("-U", 2, 5), event("+U", 2, 7)], 0, 0, 1),
        ([event("+I", 1, 5), event("-U", 2, 5), event("+U", 2, 6), event("+I", 3, 0, key=2)], 0, 0, 1),
    ],
)
def test_an_event_that_is_lost_doubled_wrong_or_too_many_is_found(
    events: Sequence[dict[str, Any]], lost: int, duplicated: int, differing: int
) -> None:
    found = Judgement()
    published = {"odd *": [change(1), change(2)]}
    judge_events(PIPELINE, ODD, events, published, found, "files")
    wanted = {(SOURCE, "1"): dict.fromkeys(ODD.columns("odd *")) | {"id": "1", "n": "6"}}
    compare_rows(wanted, rows_of_changelog(PIPELINE, ODD, events), found, "files")
    assert (found.lost, found.duplicated, found.differing) == (lost, duplicated, differing), found.text
    assert bool(found.wrong) == bool(lost or duplicated or differing)


def test_a_change_that_no_row_of_matches_has_no_event_and_one_that_leaves_has() -> None:
    pairs = OTHERS[0]
    kept, other = {"id": 1, "slot": 2, "n": 0}, {"id": 1, "slot": 3, "n": 0}
    published = {
        "pairs": [
            Change(0, 0, {"id": 1}, "c", None, kept, "p1"), Change(0, 0, {"id": 1}, "u", kept, other, "p2"),
            Change(0, 0, {"id": 1}, "u", other, other, "p3"),
        ]
    }  # fmt: skip
    own = {"_tm_source": "chaos:shop.pairs"}
    events = [
        {**kept, **own, "_tm_op": "+I", "_tm_position": "p1"}, {**kept, **own, "_tm_op": "-D", "_tm_position": "p2"},
        {**other, **own, "_tm_op": "+I", "_tm_position": "p3"},
    ]  # fmt: skip
    found = Judgement()
    judge_events(PIPELINE, pairs, events[:2], published, found, "files")
    assert not found.wrong
    judge_events(PIPELINE, pairs, [events[0], events[2]], published, found, "files")
    assert (found.lost, found.differing) == (1, 1), found.text


def test_a_change_of_the_key_is_two_changes_of_one_position() -> None:
    pairs = OTHERS[0]
    kept, other = {"id": 1, "slot": 2, "n": 0}, {"id": 2, "slot": 3, "n": 0}
    published = {"pairs": [Change(0, 0, {"id": 1}, "d", kept, None, "p1"), Change(0, 0, {"id": 2}, "c", None, other, "p1")]}
    event = {**kept, "_tm_source": "chaos:shop.pairs", "_tm_op": "-D", "_tm_position": "p1"}
    found = Judgement()
    judge_events(PIPELINE, pairs, [event], published, found, "files")
    assert not found.wrong


# --- a difference in each type of sink, on real servers -----------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_difference_that_is_planted_in_each_sink_is_found(kafka: Kafka, registry: Registry, tmp_path: Path) -> None:
    found: dict[str, Judgement] = {}

    def plant_in_each(world: World, plans: Sequence[SinkPlan]) -> None:
        nothing: dict[str, list[Change]] = {table: [] for table in TABLES}
        for one in plans:
            plant(world, one)
            found[one.kind] = judged(world.pipeline, one, nothing)

    with SinkServers(tmp_path) as sinks:
        servers = Servers(own_database("mysql80", "chaos"), kafka, registry, sinks=sinks)
        outcome = play(servers, 3, tmp_path / "round", only=("truncate",), compiled=False, kinds=KINDS, look=plant_in_each)
    assert outcome.good, outcome.wrong
    for kind in KINDS:
        said = found[kind].text
        assert found[kind].duplicated if kind == "kafka" else found[kind].differing, f"{kind}: {said}"
        assert f"{kind}: crm_" in said, said
        if kind != "kafka":  # a message that came a second time may change no row
            assert ("verify: " in said) == (kind != "files"), said


def plant(world: World, plan: SinkPlan) -> None:
    """Change one row, or one file of rows, of a target that every sink has; in a topic, send a message a second time."""
    (database, table), pipeline = (f"crm_{world.database}", "some"), world.pipeline
    if plan.kind == "kafka":
        send_again(pipeline.kafka.bootstrap_servers, plan.topic(world.database, table))
        return
    sink = pipeline.settings.of_sink(plan.name(world.database)).sink
    path = Path(sink.path) / database / table
    if plan.kind == "delta":
        DeltaTable(str(path)).update(updates={"n": "n + 1"}, predicate="id < 9")
    elif plan.kind == "iceberg":
        for task in open_iceberg(path).scan().plan_files():
            change_parquet(Path(task.file.file_path.removeprefix("file:")))
    elif plan.kind == "files":
        for file in path.glob("batch=*/*/part-*"):
            change_parquet(file) if plan.format == "parquet" else change_lines(file)
    else:
        server = next(host.server for host in world.hosts if host.kind == plan.kind)
        statement = f"UPDATE {database}.{table} SET n = n + 1 WHERE id < 9"
        if isinstance(server, Postgres):
            with server.connect() as connection:
                connection.execute(statement)
        else:
            with server.connect() as connection, connection.cursor() as cursor:
                cursor.execute(statement)


def change_parquet(path: Path) -> None:
    rows = pq.ParquetFile(path).read()
    index = rows.column_names.index("n")
    changed = pc.add(rows["n"], pa.scalar(1, rows.schema.field("n").type))
    pq.write_table(rows.set_column(index, rows.schema.field("n"), changed), path)


def change_lines(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for line in lines:
        if "data" in line:
            line["data"]["n"] = (line["data"]["n"] or 0) + 1
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")


def send_again(servers: str, topic: str) -> None:
    key, value = random.Random(1).choice([one for one in messages(servers, topic) if one[1] is not None])
    producer = RecordProducer({"bootstrap.servers": servers})
    producer.produce(topic, value, key)
    producer.flush(60)


def test_a_value_is_the_same_text_however_it_was_read() -> None:
    assert text_of(Decimal("7.50")) == text_of(7.5) == text_of(Decimal("7.5"))
    assert text_of(0) == text_of(Decimal("0.00")) == "0"
    assert text_of(datetime(2024, 2, 29, 1, 2, 3)) == "2024-02-29 01:02:03.000000"
    assert text_of(10_000_000_000_000_000_000_000) == "10000000000000000000000"
