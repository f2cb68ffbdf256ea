"""What the merge job remembers from batch to batch: of each source table, of each target, of the topics.

The state after a batch is one document, saved before the batch ends. A batch that is run again after a crash starts from the state
of the batch before it, so running it again changes nothing. `JobStates` is the one place that reads and writes these documents.

A document of version 1 has one entry per table, with what is remembered of the source table and of its one target, which has its
name: it is written where no routes are given. One of version 2 has the targets beside the tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from schemas.errors import DecodeError, SinkError
from schemas.identity import SourceId, SourceTable, TableName, Target
from schemas.merge_rule import Gap, TableState
from spark_jobs.merge.load_record import LoadRecord
from spark_jobs.merge.tombstones import TombstoneFolder
from spark_jobs.pipeline.table_routes import Routes
from spark_jobs.sinks.contract import REMEDY, FedBy, StateStore, TargetRecord

_ONE_TO_ONE: Final = 1
_ROUTED: Final = 2
_QUOTED: Final = "quoted"
"""The names of tables in a document: a part with a dot is in backticks. In older ones none is: `Naming.tables` is asked."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """Why a table is not merged for now: since when, after how many attempts, and when it is retried at the latest.

    `is_recreated` is set if a topic of it was deleted and created again: the promises of its markers about changes that were not
    read do not count.
    """

    reason: str
    since_ms: int
    attempts: int
    retry_ms: int
    is_recreated: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that `from_json` reads."""
        document = asdict(self)
        document["begins_again"] = document.pop("is_recreated")
        return document

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> SetAside:
        """Return the value of a JSON form."""
        return SetAside(
            document["reason"], document["since_ms"], document["attempts"], document["retry_ms"], document["begins_again"]
        )


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """What is remembered of one source table.

    `merged` counts the records that were the newest of their key in their batch. `skipped` says why the table is not merged at all,
    `lost` names what the registry should have of it and has not. `keyed_by` is the id of the key schema of the newest record, and
    the position of the record, of a table that had several key schemas. `written_by` is the same of value schemas. `retired` are
    the schemas whose column types no longer count: all their records are below the floor. `retype` says that no record above it has
    come yet, whose types the columns might take. `superseded` are value schemas that the table had and has no more, though they
    were registered after the one of today: it has come back, and it decides which columns were dropped. `left_out` are columns that
    `schema_changes` has kept out of the target, in small letters. `floors` are those that no changelog of the table has yet, by
    name: it is appended to once its columns are known. `trimmed` and `known_from` are of a table whose first records
    Kafka no longer had (`trimmed_topics`): where its change topic began, and per partition of the snapshot topic the first marker
    after which everything is there. `is_recreated` says that the change topic was created again: it does not have everything that
    was read. `loads` are the chunks that this job reads itself. `feeds` has the rule of each feed by the text of its target, where
    routes are given; None where the table goes as it is into the target of its name.
    """

    state: TableState = field(default_factory=TableState)
    tombstones: tuple[TombstoneFolder, ...] = ()
    merged: int = 0
    quarantined: int = 0
    change_offsets: Mapping[int, int] = field(default_factory=dict)
    snapshot_offsets: Mapping[int, int] = field(default_factory=dict)
    skipped: str | None = None
    keyed_by: tuple[int, str] | None = None
    written_by: tuple[int, str] | None = None
    retired: tuple[int, ...] = ()
    retype: bool = False
    superseded: tuple[int, ...] = ()
    left_out: tuple[str, ...] = ()
    floors: Mapping[str, str] = field(default_factory=dict)
    trimmed: Mapping[int, int] | None = None
    known_from: Mapping[int, str] = field(default_factory=dict)
    lost: str | None = None
    set_aside: SetAside | None = None
    incomplete: str | None = None
    is_recreated: bool = False
    loads: LoadRecord = field(default_factory=LoadRecord)
    feeds: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class JobState:
    """Everything remembered after a batch. `retired` are tombstone folders that the next batch removes.

    `topics` are the ids of the topics that were read: one that is deleted and created again has the same name and another id.
    """

    query_id: str
    batch_id: int
    sources: Mapping[SourceTable, SourceRecord] = field(default_factory=dict)
    targets: Mapping[Target, TargetRecord] = field(default_factory=dict)
    retired: tuple[str, ...] = ()
    topics: Mapping[str, str] = field(default_factory=dict)

    def source(self, table: SourceTable) -> SourceRecord:
        """Return what is remembered of a source table."""
        return self.sources.get(table, SourceRecord())

    def is_unmerged(self, table: SourceTable) -> bool:
        """Return whether a table was set aside before anything of it was merged: it may go into other targets, by other rules."""
        record = self.source(table)
        if record.set_aside is None or record.change_offsets or record.snapshot_offsets:
            return False
        return all(self._lacks_rows_of(table, self.target(Target.parse(text))) for text in record.feeds or ())

    @staticmethod
    def _lacks_rows_of(table: SourceTable, target: TargetRecord) -> bool:
        """Return whether nothing was written to a target, or only rows of others, as far as is known of it."""
        return target.last_commit < 0 or (bool(target.fed_by) and table.text not in target.fed_by)

    def target(self, name: Target) -> TargetRecord:
        """Return what is remembered of a target."""
        return self.targets.get(name, TargetRecord())


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of a job: its source, its sink, and where the tables of the source go.

    `tables` returns database and table of a `database.table` of an older document, given the topics that there are: both names may
    have dots.
    """

    source: SourceId
    sink: str
    tables: Callable[[str, Container[str]], tuple[str, str]]
    routes: Routes = field(default_factory=lambda: Routes("sink"))

    def table(self, database: str, name: str) -> SourceTable:
        """Return a table of the source."""
        return SourceTable.of(self.source, database, name)

    def own_target(self, table: SourceTable) -> Target:
        """Return the target that has the name of a source table."""
        return Target(self.sink, table.name.text)

    def targets_of(self, table: SourceTable) -> tuple[Target, ...]:
        """Return the targets that a source table goes into; none where they cannot be named."""
        try:
            return tuple(feed.target for feed in self.routes.feeds(table))
        except SinkError:
            return ()


class JobStates:
    """The states of the last batches. A damaged or missing one is a `SinkError`."""

    def __init__(self, store: StateStore, naming: Naming) -> None:
        self._store = store
        self._naming = naming

    def load(self, query_id: str, batch_id: int) -> JobState:
        """Return the state after a batch; before the first batch (-1) there is none."""
        if batch_id < 0:
            return JobState(query_id, -1)
        try:
            state = self._parsed(json.loads(self._store.load(batch_id)))
        except (OSError, ValueError, KeyError, TypeError, DecodeError) as error:
            where = self._store.location(batch_id)
            message = f"cannot read the merge job's state of batch {batch_id} in {where}: {error}; {REMEDY}"
            raise SinkError(message) from error
        if state.query_id != query_id or state.batch_id != batch_id:
            where = self._store.location(batch_id)
            message = f"{where} belongs to batch {state.batch_id} of query {state.query_id}; {REMEDY}"
            raise SinkError(message)
        return state

    def saved(self, query_id: str, batch_id: int) -> JobState | None:
        """Return the state that an attempt at this batch has saved before it ended; None where there is none that can be read."""
        try:
            return self.load(query_id, batch_id)
        except SinkError:
            return None

    def save(self, state: JobState) -> None:
        """Save the state after a batch."""
        document: dict[str, Any] = {
            "v": _ONE_TO_ONE,
            "query_id": state.query_id,
            "batch_id": state.batch_id,
            "names": _QUOTED,
            "tables": {
                table.name.text: record_document(record, state.target(self._naming.own_target(table)))
                for table, record in state.sources.items()
            },
            "retired": list(state.retired),
            "topics": dict(state.topics),
        }
        if any(record.feeds is not None for record in state.sources.values()):
            targets = {target.text: target_document(record) for target, record in state.targets.items()}
            document |= {"v": _ROUTED, "targets": targets}
        self._store.save(state.batch_id, json.dumps(document, separators=(",", ":")))

    def _parsed(self, document: Mapping[str, Any]) -> JobState:
        topics, is_quoted = dict(document.get("topics", {})), document.get("names") == _QUOTED
        sources: dict[SourceTable, SourceRecord] = {}
        targets: dict[Target, TargetRecord] = {}
        for name, record in document["tables"].items():
            if is_quoted:
                table = SourceTable(self._naming.source, TableName.parse(name))
            else:
                table = self._naming.table(*self._naming.tables(name, topics))
            sources[table], targets[self._naming.own_target(table)] = records_of(record)
        if document["v"] == _ROUTED:
            targets = {Target.parse(text): target_of_document(one) for text, one in document["targets"].items()}
        return JobState(document["query_id"], document["batch_id"], sources, targets, tuple(document["retired"]), topics)


def record_document(source: SourceRecord, target: TargetRecord) -> dict[str, Any]:
    """Return the entry of a table in a state document, which `records_of` reads."""
    routed: dict[str, Any] = {} if source.feeds is None else {"feeds": dict(source.feeds)}
    if source.superseded:
        routed["superseded"] = list(source.superseded)
    if source.left_out:
        routed["left_out"] = list(source.left_out)
    if source.floors:
        routed["floors"] = dict(source.floors)
    return {
        "state": source.state.to_json(),
        "tombstones": [item.to_json() for item in source.tombstones],
        "merged": source.merged,
        "quarantined": source.quarantined,
        "change_offsets": offsets_document(source.change_offsets),
        "snapshot_offsets": offsets_document(source.snapshot_offsets),
        "skipped": source.skipped,
        "keyed_by": list(source.keyed_by) if source.keyed_by else None,
        "written_by": list(source.written_by) if source.written_by else None,
        "retired": list(source.retired),
        "retype": source.retype,
        "trimmed": None if source.trimmed is None else offsets_document(source.trimmed),
        "known_from": {str(partition): position for partition, position in source.known_from.items()},
        "lost": source.lost,
        "set_aside": None if source.set_aside is None else source.set_aside.to_json(),
        "incomplete": source.incomplete,
        "anew": source.is_recreated,
        "loads": source.loads.to_json(),
    } | target_document(target) | routed


def target_document(target: TargetRecord) -> dict[str, Any]:
    """Return the entry of a target in a state document, which `target_of_document` reads."""
    fed_by = {name: {"keys": list(one.keys), "columns": list(one.columns)} for name, one in target.fed_by.items()}
    return {
        "last_commit": target.last_commit,
        "key_range": target.key_range,
        "range_of": list(target.range_of),
        "writes": target.writes,
    } | ({"fed_by": fed_by} if fed_by else {})


def target_of_document(document: Mapping[str, Any]) -> TargetRecord:
    """Return what an entry says of a target; `KeyError`, `TypeError` or `ValueError` if it is no such entry."""
    fed_by = {name: FedBy(tuple(one["keys"]), tuple(one["columns"])) for name, one in document.get("fed_by", {}).items()}
    return TargetRecord(
        last_commit=document["last_commit"],
        key_range=tuple(document["key_range"]) if document["key_range"] else None,
        range_of=tuple(document.get("range_of", ())),
        writes=document.get("writes", 0),
        fed_by=fed_by,
    )


def records_of(document: Mapping[str, Any]) -> tuple[SourceRecord, TargetRecord]:
    """Return what an entry of a state document says of the source table and of its target.

    `KeyError`, `TypeError` or `ValueError` if it is no such entry. Older entries lack the fields that came later.
    """
    source = SourceRecord(
        state=_table_state(document),
        tombstones=tuple(TombstoneFolder.from_json(item) for item in document["tombstones"]),
        merged=document["merged"],
        quarantined=document["quarantined"],
        change_offsets=_offsets(document["change_offsets"]),
        snapshot_offsets=_offsets(document["snapshot_offsets"]),
        skipped=document["skipped"],
        keyed_by=tuple(document["keyed_by"]) if document.get("keyed_by") else None,
        written_by=tuple(document["written_by"]) if document.get("written_by") else None,
        retired=tuple(document.get("retired", ())),
        retype=document.get("retype", False),
        superseded=tuple(document.get("superseded", ())),
        left_out=tuple(document.get("left_out", ())),
        floors=dict(document.get("floors", {})),
        trimmed=None if document.get("trimmed") is None else _offsets(document["trimmed"]),
        known_from={int(partition): text for partition, text in document.get("known_from", {}).items()},
        lost=document.get("lost"),
        set_aside=SetAside.from_json(document["set_aside"]) if document.get("set_aside") else None,
        incomplete=document.get("incomplete"),
        is_recreated=document.get("anew", False),
        loads=LoadRecord.from_json(document.get("loads")),
        feeds=document.get("feeds"),
    )
    return source, target_of_document(document)


def offsets_document(offsets: Mapping[int, int]) -> dict[str, int]:
    """Return the JSON form of offsets by partition."""
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def _offsets(document: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in document.items()}


def _table_state(document: Mapping[str, Any]) -> TableState:
    """Return the state of an entry. A version that noted no gaps left records out, too: in quarantine, or of a skipped table."""
    state = TableState.from_json(document["state"])
    if "gap" not in document["state"] and (document["quarantined"] or document["skipped"]):
        return replace(state, gap=Gap(_offsets(document["change_offsets"]), given_up=bool(document["skipped"])))
    return state


def retired_folders(before: JobState, sources: Mapping[SourceTable, SourceRecord]) -> tuple[str, ...]:
    """Return the tombstone folders that counted before this batch and count no more."""
    now = {item.path for record in sources.values() for item in record.tombstones}
    then = {item.path for record in before.sources.values() for item in record.tombstones}
    return tuple(sorted(then - now))
