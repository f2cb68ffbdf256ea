"""What the merge job remembers from batch to batch: of each source table, of each target, of the topics.

The state after a batch is one document, saved before the batch ends. A batch that is run again after a crash starts from the state
of the batch before it, so running it again changes nothing. `JobStates` is the one place that reads and writes these documents.

A document of version 1 has one entry per table, with what is remembered of the source table and of its one target, which has its
name: it is written where no routes are given. One of version 2 has the targets beside the tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from schemas.errors import DecodeError, SinkError
from schemas.identity import SourceId, SourceTable, TableName, Target
from schemas.json_codec import INLINE, Form, decode, encode, json_field
from schemas.merge_progress import SetAside
from schemas.merge_rule import NOTHING, TableState
from spark_jobs.merge.load_record import LoadRecord
from spark_jobs.merge.tombstones import TombstoneFolder
from spark_jobs.pipeline.table_routes import Routes
from spark_jobs.sinks.contract import REMEDY, StateStore, TargetRecord

_ONE_TO_ONE: Final = 1
_ROUTED: Final = 2
_QUOTED: Final = "quoted"


def _of_older_record(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry of a table with what older versions did not note.

    A version that noted no gaps left records out, too: in quarantine, or of a table that was skipped.
    """
    state, is_skipped = document["state"], bool(document["skipped"])
    if "gap" not in state and (document["quarantined"] or is_skipped):
        gap = {"changes": document["change_offsets"], "seen": [], "until": NOTHING, "given_up": is_skipped}
        document = {**document, "state": {**state, "gap": gap}}
    return document if document.get("loads", ()) is not None else {name: one for name, one in document.items() if name != "loads"}


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
    Kafka no longer had (`table_topics`): where its change topic began, and per partition of the snapshot topic the first marker
    after which everything is there. `is_recreated` says that the change topic was created again: it does not have everything that
    was read. `loads` are the chunks that this job reads itself. `feeds` has the rule of each feed by the text of its target, where
    routes are given; None where the table goes as it is into the target of its name.
    """

    JSON: ClassVar = Form(of_older=_of_older_record)

    state: TableState = json_field(factory=TableState, required=True)
    tombstones: tuple[TombstoneFolder, ...] = json_field((), required=True)
    merged: int = json_field(0, required=True)
    quarantined: int = json_field(0, required=True)
    change_offsets: Mapping[int, int] = json_field(factory=dict, required=True)
    snapshot_offsets: Mapping[int, int] = json_field(factory=dict, required=True)
    skipped: str | None = json_field(None, required=True)
    keyed_by: tuple[int, str] | None = None
    written_by: tuple[int, str] | None = None
    retired: tuple[int, ...] = ()
    retype: bool = False
    superseded: tuple[int, ...] = json_field((), omits_default=True)
    left_out: tuple[str, ...] = json_field((), omits_default=True)
    floors: Mapping[str, str] = json_field(factory=dict, omits_default=True)
    trimmed: Mapping[int, int] | None = None
    known_from: Mapping[int, str] = field(default_factory=dict)
    lost: str | None = None
    set_aside: SetAside | None = None
    incomplete: str | None = None
    is_recreated: bool = json_field(default=False, name="anew")
    loads: LoadRecord = json_field(factory=LoadRecord, omits_default=True)
    feeds: Mapping[str, str] | None = json_field(None, omits_default=True)


@dataclass(frozen=True, slots=True)
class MergeState:
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


@dataclass(frozen=True, slots=True)
class TableEntry:
    """What a state document has of a table: of the source table, and of the target that has its name."""

    source: SourceRecord = field(metadata=INLINE)
    target: TargetRecord = field(metadata=INLINE)


@dataclass(frozen=True, slots=True)
class StateDocument:
    """A `MergeState` as it is saved.

    With `names` "quoted" a part with a dot is in backticks; in older documents none is, and `Naming.tables` is asked.
    """

    v: int
    query_id: str
    batch_id: int
    names: str = json_field("", omits_default=True)
    tables: Mapping[str, TableEntry] = json_field(factory=dict, required=True)
    retired: tuple[str, ...] = json_field((), required=True)
    topics: Mapping[str, str] = field(default_factory=dict)
    targets: Mapping[str, TargetRecord] = json_field(factory=dict, omits_default=True)


class JobStates:
    """The states of the last batches. A damaged or missing one is a `SinkError`."""

    def __init__(self, store: StateStore, naming: Naming) -> None:
        self._store = store
        self._naming = naming

    def load(self, query_id: str, batch_id: int) -> MergeState:
        """Return the state after a batch; before the first batch (-1) there is none."""
        if batch_id < 0:
            return MergeState(query_id, -1)
        try:
            state = self._parsed(decode(StateDocument, json.loads(self._store.load(batch_id))))
        except (OSError, ValueError, KeyError, TypeError, DecodeError) as error:
            where = self._store.location(batch_id)
            message = f"cannot read the merge job's state of batch {batch_id} in {where}: {error}; {REMEDY}"
            raise SinkError(message) from error
        if state.query_id != query_id or state.batch_id != batch_id:
            where = self._store.location(batch_id)
            message = f"{where} belongs to batch {state.batch_id} of query {state.query_id}; {REMEDY}"
            raise SinkError(message)
        return state

    def saved(self, query_id: str, batch_id: int) -> MergeState | None:
        """Return the state that an attempt at this batch has saved before it ended; None where there is none that can be read."""
        try:
            return self.load(query_id, batch_id)
        except SinkError:
            return None

    def save(self, state: MergeState) -> None:
        """Save the state after a batch."""
        tables = {
            table.name.text: TableEntry(record, state.target(self._naming.own_target(table)))
            for table, record in state.sources.items()
        }
        document = StateDocument(_ONE_TO_ONE, state.query_id, state.batch_id, _QUOTED, tables, state.retired, state.topics)
        if any(record.feeds is not None for record in state.sources.values()):
            document = replace(document, v=_ROUTED, targets={target.text: one for target, one in state.targets.items()})
        self._store.save(state.batch_id, json.dumps(encode(document), separators=(",", ":")))

    def _parsed(self, document: StateDocument) -> MergeState:
        sources: dict[SourceTable, SourceRecord] = {}
        targets: dict[Target, TargetRecord] = {}
        for name, entry in document.tables.items():
            if document.names == _QUOTED:
                table = SourceTable(self._naming.source, TableName.parse(name))
            else:
                table = self._naming.table(*self._naming.tables(name, document.topics))
            sources[table], targets[self._naming.own_target(table)] = entry.source, entry.target
        if document.v == _ROUTED:
            targets = {Target.parse(text): one for text, one in document.targets.items()}
        return MergeState(document.query_id, document.batch_id, sources, targets, document.retired, document.topics)


def retired_folders(before: MergeState, sources: Mapping[SourceTable, SourceRecord]) -> tuple[str, ...]:
    """Return the tombstone folders that counted before this batch and count no more."""
    now = {item.path for record in sources.values() for item in record.tombstones}
    then = {item.path for record in before.sources.values() for item in record.tombstones}
    return tuple(sorted(then - now))
