"""What each view says, as a document: facts enter, what JSON and HTML show alike leaves (pure).

Times are Unix times in ms (`…_ms`), durations seconds (`…_s`). What is not known is None, and a sentence says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from schemas.batch_stages import recent_batches
from schemas.json_codec import encode
from tidemark.api.source_log import producer_of
from tidemark.status.captured_tables import consistency
from tidemark.status.lags import Word

if TYPE_CHECKING:
    from schemas.settings import Settings
    from tidemark.page.lag_history import History
    from tidemark.page.page_facts import Facts
    from tidemark.status.lags import Lags
    from tidemark.status.replication_status import ReplicationStatus
    from tidemark.status.snapshot_list import SnapshotRequest
    from tidemark.status.status_tree import Status, TableStatus

RATE_S: Final = 30.0
"""Rates are means over that time."""
SHOWN: Final = 50
"""So many requests for snapshots are shown, the newest."""
KAFKA_ALONE: Final = "Kafka"
"""What a pipeline without a sink is called."""

Document = dict[str, Any]


def freshness(facts: Facts | None, age_s: float, trouble: str, *, is_of_now: bool) -> Document:
    """Return whether what follows is of now: `unknown` says why not, "" where it is."""
    if facts is None:
        unknown = trouble or "the first look is not over"
        return {"as_of_ms": None, "age_s": None, "unknown": unknown}
    unknown = "" if is_of_now else f"nothing is known of the last {age_s:.0f} s: {trouble or 'Kafka has not answered yet'}"
    return {"as_of_ms": facts.began_ms, "age_s": round(age_s, 1), "unknown": unknown}


def overview(settings: Settings, facts: Facts, history: History) -> Document:
    """Return the state of all: a word for each sink with its reasons, lags, rates, log, jobs."""
    first, source = facts.first, facts.source
    log, producer = first.log, producer_of(first, source)
    return {
        "name": settings.name,
        "source": f"{settings.source.host}:{settings.source.port}",
        "sinks": [_sink_word(name, lags, facts, history) for name, lags in facts.lags.items()],
        "to_kafka": encode(next(iter(facts.lags.values())))["to_kafka"],
        "producer": {"state": "unknown" if facts.unknown else producer.state.value, "text": facts.unknown or producer.text},
        "log": log and {**encode(log), "bytes_per_s": None if facts.unknown else history.log_rate(RATE_S, facts.read_ms)},
        "retention": {key: one for key, one in source.document.items() if key != "behind_bytes"},
        "tables": _table_counts(first),
        "notes": list(first.notes),
    }


def _sink_word(name: str, lags: Lags, facts: Facts, history: History) -> Document:
    status = facts.statuses[name]
    return {
        **encode(lags),
        "name": name or KAFKA_ALONE,
        "merge": None if not status.has_sink else {"state": status.merge.state.value, "text": status.merge.text},
        "updated_ms": status.sink_updated_ms,
        "records_per_s": history.sink_rate(name, RATE_S, facts.read_ms) if name and not facts.unknown else None,
    }


def _table_counts(status: Status) -> Document:
    tables = [table for table in status.tables if not table.released]
    return {
        "captured": len(tables),
        "consistent": sum(table.is_consistent for table in tables),
        "snapshotting": sum(table.is_snapshotting for table in tables),
        "set_aside": sum(table.set_aside is not None for table in tables),
        "quarantined_records": sum(table.quarantined for table in tables),
    }


def tables(facts: Facts, versions: Mapping[str, int]) -> list[Document]:
    """Return each table: its snapshot, its state and lag in each sink, its newest change. `versions` are those of its columns."""
    return [
        {
            "table": table.table,
            "snapshot": _snapshot(table, is_of_now=not facts.unknown),
            "last_change_ms": table.kafka_delays and table.kafka_delays.newest_ms,
            "schema_version": versions.get(table.table),
            "released": table.released,
            "set_aside": table.set_aside,
            "sinks": [_table_in_sink(name, facts, table.table) for name in facts.statuses if name],
            "to_kafka": encode(facts.first.to_kafka(table)),
        }
        for table in facts.first.tables
    ]


def _snapshot(table: TableStatus, *, is_of_now: bool) -> Document | None:
    if table.snapshot is None:
        return None
    return {
        "state": table.snapshot,
        "rows": table.rows_read,
        "estimate": table.rows_estimated,
        "share": table.share,
        "rows_per_s": round(table.rows_per_s, 1) if is_of_now else None,
        "eta_s": table.eta_s if is_of_now else None,
        "waits": table.waits,
        "error": table.error,
        "keyless": table.keyless,
        "via": table.via,
        "via_reason": table.via_reason,
    }


def _table_in_sink(name: str, facts: Facts, table: str) -> Document:
    status, lags = facts.statuses[name], facts.lags[name]
    one = next((one for one in status.tables if one.table == table), None)
    if one is None:
        return {"name": name, "state": "unknown: it came a moment ago", "lag": None, "merged": None, "problem": None}
    delay = status.to_lake(one)
    return {
        "name": name,
        "state": "unknown" if facts.unknown else consistency(one, status),
        "lag": encode(lags.tables[table]),
        "lag_text": lags.tables[table].text,
        "merged": one.sink_rows,
        "quarantined": one.quarantined,
        "keyless": one.keyless,
        "problem": one.inexact or one.skipped or one.set_aside,
        "commit_to_lake": encode(delay),
        "delay_text": None if delay is None else delay.text,
    }


def sinks(settings: Settings, facts: Facts, history: History) -> list[Document]:
    """Return each sink: its merge job, its last batches with their stages, and its tables with records in quarantine."""
    found = []
    for sink in settings.sinks:
        status, lags = facts.statuses[sink.name], facts.lags[sink.name]
        batch = {} if status.merge_sign is None else status.merge_sign.batch
        found.append(
            {
                "name": sink.name,
                "type": sink.type,
                "mode": sink.mode,
                "where": sink.path or "",
                "word": lags.verdict.word.value,
                "merge": status.merge.text,
                "alive": status.merge.alive,
                "updated_ms": status.sink_updated_ms,
                "records_per_s": None if facts.unknown else history.sink_rate(sink.name, RATE_S, facts.read_ms),
                "lag": encode(lags.to_sink),
                "running": {"number": batch.get("number"), "since_ms": batch.get("since_ms")} if "since_ms" in batch else None,
                "batches": [encode(one) for one in recent_batches(batch)],
                "quarantine": [{"table": one.table, "records": one.quarantined} for one in status.tables if one.quarantined],
            }
        )
    return found


def problems(facts: Facts) -> list[Document]:
    """Return what is wrong now, the worst first: what, in which sink, and what to do."""
    if facts.unknown:
        advice_then = "Check that the Kafka brokers answer: tidemark doctor"
        return [{"sink": None, "word": Word.UNKNOWN.value, "what": facts.unknown, "advice": advice_then}]
    worst_first = sorted(facts.lags.items(), key=lambda one: -list(Word).index(one[1].verdict.word))
    found: list[Document] = []
    for name, lags in worst_first:
        words = [lags.verdict.word.value, *(None for _ in lags.verdict.reasons)]  # the first reason is that of the word
        found += [
            {"sink": name or KAFKA_ALONE, "word": one, "what": reason, "advice": advice(reason)}
            for one, reason in zip(words, lags.verdict.reasons, strict=False)
        ]
    others = [*facts.first.notes, *([facts.source.problem] if facts.source.problem else [])]
    said = " ".join(one["what"] for one in found)
    return found + [{"sink": None, "word": None, "what": one, "advice": advice(one)} for one in others if one not in said]


def tasks(status: ReplicationStatus) -> Document:
    """Return groups and tasks. Each was read at a time of its own; `as_of_ms` is the earliest."""
    times = [*(one.read_ms for one in status.groups), *(one.read_ms for one in status.tasks)]
    return {"as_of_ms": min(times, default=None), "unknown": "", **encode(status)}


def problems_of_tasks(status: ReplicationStatus) -> list[Document]:
    """Return the present problems of groups and tasks."""
    return [
        {"sink": None, "word": Word.UNKNOWN.value if one.is_unknown else None, "what": one.text, "advice": one.advice}
        for one in status.concerns()
    ]


_ADVICE: Final = (
    ("the disk of", "Make room on the disk, or give another folder; a job that waits continues by itself"),
    ("quarantine list", "`tidemark quarantine list` has the reasons. Remove the cause, then `tidemark quarantine retry`"),
    ("set aside", "Remove the cause; the table is taken up by itself. `tidemark doctor` checks source and sink"),
    ("is inexact", "Read the table again: `tidemark snapshot start`, or the view Snapshots; `tidemark verify` compares it"),
    ("does not have records any more", "Read the table again: `tidemark snapshot start`; let Kafka keep its topics for longer"),
    ("deleted and created again", "Check who deletes topics; read the tables again: `tidemark snapshot start`"),
    ("snapshot failed", "Remove the cause, then read the table again: `tidemark snapshot start`, or the view Snapshots"),
    ("start `tidemark run`", "Start the producer: `tidemark run`. It continues where it ended"),
    ("start `tidemark merge`", "Start the merge job: `tidemark merge`. It continues where it ended"),
    (": waiting", "It retries by itself, and continues when the cause is over: `tidemark doctor` asks all servers"),
    (": starting", "Nothing: it connects. If that takes long, `tidemark doctor` asks all servers"),
    ("was not started", "Start the job: `tidemark run` or `tidemark merge`"),
    ("cannot be read", "Check that the folder is mounted, and that this user may read it"),
    ("no liveness record", "Look whether the process runs and reaches Kafka; its log names what it waits for"),
    ("the source cannot be asked", "Check the network and the user of `source`: `tidemark doctor`"),
    ("is purged", "The log is lost: `tidemark repair` starts over, and reads the tables again"),
    ("may purge", "Let the producer run, or keep the log for longer at the source"),
    ("matches no table", "Correct `source.tables`, or create the table"),
    ("may not be read", "Run the GRANT as an administrator of the source"),
    ("compare the machines' clocks", "Set the clocks of the machines: an age by two clocks says nothing"),
    ("source to Kafka", "It is behind: look at the view Overview for the rate; `docs/alerts.md` has the causes"),
    ("Kafka to sink", "It is behind: look at the view Sinks for the stages of the batches; `docs/alerts.md` has the causes"),
    (": paused,", "Resume the snapshot: `tidemark snapshot resume`, or the view Snapshots"),
    (": queued,", "Nothing, where the producer runs: the snapshot waits for its turn"),
    ("rows read", "Nothing, where the producer runs: the snapshot is being read"),
    ("merge job: batch", "Look at the view Sinks, and into the log of the merge job"),
)


def advice(reason: str) -> str:
    """Return what to do about a reason."""
    return next((text for part, text in _ADVICE if part in reason), "`tidemark doctor` checks everything from here")


def snapshots(facts: Facts) -> Document:
    """Return the requests, newest first, with their tables and chunks, and how many older ones there are."""
    requests = facts.snapshots.requests[::-1]
    return {
        "producer": encode(facts.snapshots.producer),
        "requests": [_request(request, facts) for request in requests[:SHOWN]],
        "older": max(0, len(requests) - SHOWN),
        "paused": any(request.state.value == "paused" for request in requests),
        "running": facts.snapshots.is_running,
    }


def _request(request: SnapshotRequest, facts: Facts) -> Document:
    tables = []
    for task in request.tasks:
        chunks = facts.chunks.get((task.request, task.table))
        tables.append({**encode(task), "share": task.share, "chunks": encode(chunks)})
    return {**encode(request), "tables": tables, "failed": sum(not task.is_keyless for task in request.failed)}
