"""Pipelines in the states that a person meets, as Kafka and the sinks show them, and everything that Tidemark says of each.

`python -m tests.cli.public_states` writes all of it into `tests/recorded/public_json`. Do it for new fields only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from producer.source.retention import ResumePosition, reckon
from schemas.delay_histogram import DelayCounter, DelayHistogram
from schemas.identity import SourceId
from schemas.json_codec import decode, encode
from schemas.liveness import Sign
from schemas.merge_progress import MergeProgress
from schemas.settings import from_mapping
from schemas.state import State
from tests.cli.test_status import LOG, offset, request, task, topic
from tidemark.api.source_log import UNSEEN, SourceLog
from tidemark.commands import lag, snapshot_actions, table_list
from tidemark.commands.status import as_json_of_sinks, as_text_of_sinks
from tidemark.page import view_documents
from tidemark.page.lag_history import History, sample_of
from tidemark.page.page_facts import Facts
from tidemark.status.captured_tables import captured_tables
from tidemark.status.chunk_map import chunk_maps
from tidemark.status.job_standing import SinkFacts
from tidemark.status.lags import LOST
from tidemark.status.metrics import exposition, lag_families
from tidemark.status.reckoning import status_of
from tidemark.status.snapshot_list import snapshot_list
from tidemark.status.status_tree import Status

RECORDED: Final = Path(__file__).parent.parent / "recorded" / "public_json"
NOW_MS: Final = 1_764_000_000_000
SETTINGS: Final = from_mapping(
    {
        "name": "shop",
        "source": {"host": "db", "port": 3306, "user": "t", "tables": [r"shop\..*"], "signal_table": "shop.signals"},
        "sinks": [{"name": "lake", "type": "delta", "path": "/nowhere/lake"}, {"name": "mart", "type": "iceberg", "path": "/nowhere/mart"}],
    }
)  # fmt: skip
STAGES: Final = {"read_s": 0.1, "merge_s": 1.5, "load_s": 0.0, "save_s": 0.25}


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Documents of the state topic, now and two seconds before; the progress of each sink; the source's log."""

    documents: Mapping[str, Any]
    before: Mapping[str, Any]
    progress: Mapping[str, tuple[Mapping[str, Any], SinkFacts]]
    source: SourceLog | None = None
    oldest_ms: Mapping[str, int | str] = field(default_factory=dict)
    unknown: str = ""

    def statuses(self, documents: Mapping[str, Any], now_ms: int) -> dict[str, Status]:
        state = State(dict(documents), SourceId("shop"))
        statuses = {
            name: status_of(state, decode(MergeProgress, progress), now_ms, facts) for name, (progress, facts) in self.progress.items()
        }
        return {
            name: replace(one, tables=tuple(replace(table, oldest_ms=self.oldest_ms.get(table.table)) for table in one.tables))
            for name, one in statuses.items()
        }


def sign(state: str, **values: Any) -> dict[str, Any]:
    return encode(Sign(**{"at_ms": NOW_MS - 500, "state": state, **values}))  # type: ignore[no-any-return]


def delays(*seconds: float, at_ms: int = NOW_MS - 1000, in_seconds: bool = False) -> dict[str, Any]:
    counter = DelayCounter()
    counter.add(DelayHistogram.of(seconds), at_ms / 1000, in_seconds=in_seconds)
    return encode(counter.recent)  # type: ignore[no-any-return]


def published(*tables: str, **more: Any) -> dict[str, Any]:
    """Documents of a producer that has published tables."""
    log = offset() | {"committed_ms": NOW_MS - 1_500, "gtid_set": "u:1-9"}
    return {"offset": log, **{f"topics/{one}": topic(one) for one in tables}, **more}


def merged(**tables: Mapping[str, Any]) -> dict[str, Any]:
    """The progress of a sink; a table without values has everything."""
    whole = {
        "rows": 77, "applied_position": LOG.text, "consistent_at": LOG.text, "quarantined": 0, "change_offsets": {"0": 10}, "snapshot_offsets": {"0": 3},
    }  # fmt: skip
    return {"updated_ms": NOW_MS - 900, "tables": {f"shop.{name}": whole | values for name, values in tables.items()}}


def facts(behind: Mapping[str, int], **values: Any) -> SinkFacts:
    """A merge job that is alive; so many records of each table are not merged."""
    topics = {f"shop.{name}": (f"p.shop.{name}", f"p-snapshot.shop.{name}") for name in behind}
    ends = {topic: {0: end} for name, both in topics.items() for topic, end in zip(both, (10 + behind[name[5:]], 3), strict=True)}
    return SinkFacts(**{"sign": Sign(at_ms=NOW_MS - 500), "locked": True, "topics": topics, "ends": ends, **values})


def of_source(read_s: float = NOW_MS / 1000 - 1) -> SourceLog:
    sizes = {"binlog.000002": 900, "binlog.000003": 2000, "binlog.000004": 5}
    room = reckon(sizes, {"binlog_expire_logs_seconds": "7200"}, ResumePosition("binlog.000003", 1155, read_s), NOW_MS / 1000)
    return SourceLog(room, room.warning(43_200), is_of_now=True)


def states() -> dict[str, Pipeline]:
    batch = {"number": 8, "last_s": 1.85, "recent": [{"number": 7, "ended_ms": NOW_MS - 900, "records": 12, **STAGES}]}
    orders, both = {"orders": {}}, {"orders": {}, "items": {}}
    reading = sign("reading", in_kafka_ms=NOW_MS - 1_500)
    running = published("shop.orders", "shop.items", alive=reading) | {
        "delays/shop.orders": delays(*[0.02] * 98, 0.3, 0.3), "delays/shop.items": delays(0.9, 9_000.0, in_seconds=True),
        "request/r1": request(1, "done", tables=["shop.orders"], finished_ms=NOW_MS - 60_000, created_ms=NOW_MS - 90_000, origin="initial"),
        "table/r1/shop.orders": task(1, "shop.orders", state="done", rows=1_000, chunks_done=4, via="spark", last_close=LOG.text),
    }  # fmt: skip
    lake = merged(orders={"recent_delays": delays(*[1.7] * 99, 6.0)}, items={})
    late = running | {"table/r1/shop.items": task(1, "shop.items", state="failed", status="NO_PRIMARY_KEY", error="no key")}

    plan = task(1, "x")["plan"] | {"complete": True}
    chunks = [[5, None, None, 1, "lock wait"], [6, None, None, 0, ""]]
    reads = published("shop.orders", "shop.items", "shop.quiet", alive=sign("reading", in_kafka_ms=NOW_MS - 1_500, snapshot_waits="Threads_running 87 > 50"))
    reads |= {
        "request/r2": request(2, tables=["shop.orders", "shop.items"], created_ms=NOW_MS - 9_000),
        "request/r3": request(3, "paused", tables=["shop.quiet"], created_ms=NOW_MS - 9_000, blocking=True, reason="asked"),
        "request/r4": request(4, "queued", created_ms=NOW_MS - 9_000, origin="automatic", reason="a DDL changed stored values"),
        "table/r2/shop.orders": task(2, "shop.orders", rows=600, chunks_done=5, next_chunk=7, outstanding=chunks, plan=plan, via="spark"),
        "table/r2/shop.items": task(2, "shop.items", state="queued", rows=0, estimate=None, via_reason="it has no sink of its own"),
        "window/w1": {"v": 1, "id": "w1", "request": "r2", "table": "shop.orders", "chunk": 6, "bound": LOG.text},
        "table/r3/shop.quiet": task(3, "shop.quiet", rows=1_500, condition="id > 5"),
        "children/one": task(9, "shop.lines", rows=3, children={"columns": ["p"], "old": [["1"]], "new": [], "nulled": []}),
    }
    reads_before = reads | {"table/r2/shop.orders": task(2, "shop.orders", rows=400, chunks_done=4, next_chunk=7, outstanding=chunks, plan=plan, via="spark")}

    troubled = published("shop.aside", "shop.odd", "shop.left", "shop.cut", "shop.gone", "shop.lost", "shop.child", "shop.again", alive=reading) | {
        "topics/shop.left": topic("shop.left") | {"released": True},
        "aside/shop.bad": {"database": "shop", "table": "bad", "reason": "no name in Avro", "position": LOG.text, "since_ms": 60_000},
        "inexact": {"v": 1, "tables": ["shop.child"]},
        "coverage": {"v": 1, "captured": 8, "unmatched": {"sales\\..*": "no such database"}, "unreadable": ["shop.secret"]},
        "unseen-statements": {"v": 1, "tables": ["shop.a"], "grants": ["GRANT TRIGGER ON *.*"], "position": "binlog.000002:9"},
        "request/r1": request(1, "done", tables=["shop.cut", "shop.gone", "shop.nokey", "shop.failed"], finished_ms=NOW_MS - 60_000, error="2 tables failed"),
        "request/r2": request(2, "failed", tables=["shop.again"], origin="automatic", reason="a DDL changed stored values"),
        "table/r1/shop.cut": task(1, "shop.cut", state="done", condition="id > 5"),
        "table/r1/shop.gone": task(1, "shop.gone", state="failed", status="UNKNOWN_SCHEMA", error="it does not exist"),
        "table/r1/shop.nokey": task(1, "shop.nokey", state="failed", status="NO_PRIMARY_KEY", error="it has no key"),
        "table/r1/shop.failed": task(1, "shop.failed", state="failed", error="no SELECT"),
        "table/r2/shop.again": task(2, "shop.again", state="failed", error="lock wait"),
    }  # fmt: skip
    wrong = merged(
        aside={"set_aside": {"reason": "DELTA_REFUSED", "since_ms": 60_000}}, odd={"quarantined": 8, "lacks": "8 of them wait"}, left={},
        cut={"consistent_at": None}, gone={}, lost={}, child={}, again={}, skipped={"skipped": "no primary key", "applied_position": None},
    )  # fmt: skip
    names = dict.fromkeys(("aside", "odd", "left", "cut", "gone", "child", "again"), 0) | {"lost": 40, "aside": 7}
    end = Sign(at_ms=NOW_MS - 735_000, state="ended", reason="disk full")
    old_delays = running | {"delays/shop.orders": delays(0.02, at_ms=NOW_MS - 736_000)}
    stuck = {"number": 9, "since_ms": NOW_MS - 600_000, "last_s": 3.0}
    future, past = NOW_MS + 9_000_000, NOW_MS - 100_000
    return {
        "never_started": Pipeline(documents={}, before={}, progress={"lake": ({}, SinkFacts(ends={}, ends_unknown="", locked=False))}),
        "running": Pipeline(
            documents=running, before=running, progress={"lake": (lake, facts({"orders": 0, "items": 0}, sign=Sign(at_ms=NOW_MS - 500, batch=batch)))},
            source=of_source(),
        ),
        "behind": Pipeline(
            documents=late, before=late, source=of_source(NOW_MS / 1000 - 7_000), oldest_ms={"shop.orders": NOW_MS - 41_700, "shop.items": NOW_MS - 900_000},
            progress={"lake": (merged(**both), facts({"orders": 1, "items": 12_041}, sign=Sign(at_ms=NOW_MS - 500, batch=stuck)))},
        ),
        "snapshotting": Pipeline(
            documents=reads, before=reads_before, source=of_source(),
            progress={"lake": (merged(orders={"consistent_at": None}), facts({"orders": 5, "items": 0}))}, oldest_ms={"shop.orders": 0},
        ),
        "dead": Pipeline(
            documents=old_delays | {"alive": encode(end)}, before=old_delays, source=SourceLog(None, "the source cannot be asked: refused"),
            progress={"lake": (merged(**orders), facts({"orders": 7, "items": 0}, sign=end, locked=False, disk="the disk of /lake is full"))},
        ),
        "killed": Pipeline(
            documents=running | {"alive": sign("reading", at_ms=past)}, before=running, source=UNSEEN,
            progress={"lake": (lake, facts({"orders": 7, "items": 0}, sign=Sign(at_ms=past), locked=False))},
        ),
        "silent": Pipeline(
            documents=running | {"alive": sign("reading", at_ms=past, reason="Kafka is slow")}, before=running,
            progress={"lake": (lake, facts({"orders": 7, "items": 0}, sign=Sign(at_ms=past), locked=None))},
        ),
        "unknown": Pipeline(
            documents=running | {"alive": sign("reading", at_ms=future)}, before=running, unknown="nothing is known of the last 30 s: Kafka is silent",
            progress={"lake": (lake, facts({"orders": 0}, unreadable="/lake/progress.json cannot be read: no permission"))},
        ),
        "ends_unknown": Pipeline(
            documents=running, before=running, progress={"lake": (lake, facts({}, ends=None, ends_unknown="Kafka was not asked"))}, source=of_source(),
        ),
        "another_clock": Pipeline(documents=running, before=running, progress={"lake": (lake, facts({"orders": 0}, sign=Sign(at_ms=future)))}),
        "earlier_version": Pipeline(
            documents=published("shop.orders"), before=published("shop.orders"), progress={"lake": (merged(**orders), facts({"orders": 0}, sign=None))},
        ),
        "waiting": Pipeline(
            documents=published("shop.orders", alive=sign("waiting", reason="db:3306 refuses", since_ms=NOW_MS - 40_000)), before=published("shop.orders"),
            progress={"lake": (merged(**orders), facts({"orders": 7}, sign=Sign(at_ms=NOW_MS - 500, state="waiting", reason="retried soon")))},
            oldest_ms={"shop.orders": "a broker does not answer"},
        ),
        "troubled": Pipeline(
            documents=troubled, before=troubled, progress={"lake": (wrong, facts(names))}, source=SourceLog(of_source().room, "it may purge"),
            oldest_ms={"shop.lost": f"p.shop.lost[0] from offset 10 on: {LOST}", "shop.aside": NOW_MS - 5_000},
        ),
        "two_sinks": Pipeline(
            documents=running, before=running, source=of_source(), oldest_ms={"shop.orders": NOW_MS - 41_700},
            progress={"lake": (lake, facts({"orders": 0, "items": 0})), "mart": (merged(**orders), facts({"orders": 7, "items": 0}, locked=False))},
        ),
        "kafka_alone": Pipeline(
            documents=running, before=running, source=of_source(),
            progress={"": ({}, facts({"orders": 0, "items": 0}, sign=None, locked=None, unreadable="the settings have no sink", has_sink=False))},
        ),
    }  # fmt: skip


def said(pipeline: Pipeline) -> dict[str, Any]:
    """Everything that is said of a pipeline, by the name of the surface."""
    now, before = pipeline.statuses(pipeline.documents, NOW_MS), pipeline.statuses(pipeline.before, NOW_MS - 2_000)
    source = pipeline.source or UNSEEN
    lags = {name: source.lags(status) for name, status in now.items()}
    state, state_before = (State(dict(one), SourceId("shop")) for one in (pipeline.documents, pipeline.before))
    listed_before = snapshot_list(state_before, NOW_MS - 2_000)
    asked = snapshot_list(state, NOW_MS, listed_before)
    listed = asked.with_rates(listed_before)
    rows: Any = {"lake": {"shop.orders": {"shop.orders": 1_234}, "shop.items": {"shop.items": "the table does not exist yet"}}}
    tables, counted = (
        list(captured_tables(now, {"shop.orders": NOW_MS - 5_000}, {"shop.orders": 3}, one)) for one in (None, rows)
    )
    facts = Facts(
        began_s=0.0, began_ms=NOW_MS - 700, read_ms=NOW_MS, lags=lags, source=source, snapshots=listed, chunks=chunk_maps(state),
        statuses={name: status.with_rates(before[name]) for name, status in now.items()},
    )  # fmt: skip
    history = History()
    history.add(replace(sample_of(facts), at_ms=NOW_MS - 10_000, merged=dict.fromkeys(now, 7)))
    history.add(sample_of(facts))
    facts = facts.as_unknown(pipeline.unknown) if pipeline.unknown else facts
    sinks = [one for one in SETTINGS.sinks if one.name in now]
    return {
        "status": json.loads(as_json_of_sinks(now, before, pipeline.source)),
        "status text": as_text_of_sinks(now, before, pipeline.source).splitlines(),
        "lag": json.loads(lag.as_json(lags)),
        "lag text": lag.as_text(lags).splitlines(),
        "lag text of all": lag.as_text(lags, shows_all=True).splitlines(),
        "tables": json.loads(table_list.as_json(tables, ["a note"], NOW_MS)),
        "tables text": table_list.as_text(tables, ["a note"], NOW_MS).splitlines(),
        "counted tables": json.loads(table_list.as_json(counted, [], NOW_MS)),
        "counted tables text": table_list.as_text(counted, [], NOW_MS).splitlines(),
        "snapshots": json.loads(json.dumps(encode(listed))),
        "snapshots text": snapshot_actions.as_text(listed).splitlines(),
        "ended snapshot": [json.loads(snapshot_actions._end_as_json(one.id, one)) for one in asked.requests],
        "ended snapshot text": [snapshot_actions._end_lines(one, has_ended=one.state.final) for one in listed.requests],
        "metrics": exposition(lag_families(lags)).splitlines(),
        "page": {
            "freshness": view_documents.freshness(facts, 1.0, "", is_of_now=True),
            "overview": view_documents.overview(SETTINGS, facts, history),
            "tables": view_documents.tables(facts, {"shop.orders": 3}),
            "sinks": view_documents.sinks(replace(SETTINGS, sinks=tuple(sinks)), facts, history),
            "problems": view_documents.problems(facts),
            "snapshots": view_documents.snapshots(facts),
        },
    }


def record() -> None:
    """Write the documents of now, for new fields only."""
    RECORDED.mkdir(exist_ok=True)
    for name, pipeline in states().items():
        lines = [f"{json.dumps(surface)}: {json.dumps(one, ensure_ascii=False)}" for surface, one in said(pipeline).items()]
        (RECORDED / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")



if __name__ == "__main__":
    record()
