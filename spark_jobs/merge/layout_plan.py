"""How the records of one table are decoded in one batch: its schemas and the target's columns enter, a `TableLayout` leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import structlog

from kafkaio.schema_registry import RegisteredSchema
from schemas.merge_rule import NOTHING
from schemas.topics import key_subject, value_subject
from spark_jobs.decode.avro_records import newest_positions
from spark_jobs.decode.record_columns import POSITION
from spark_jobs.decode.table_layout import TableLayout, kept_to, layout
from spark_jobs.decode.writer_schemas import WriterSchema, key_writer, value_writer
from spark_jobs.merge.job_state import SourceRecord
from spark_jobs.merge.schema_sources import LOST, Part, SchemaSources
from spark_jobs.merge.table_input import RawRecords
from spark_jobs.pipeline.schema_rules import SchemaRule, differences, require_key, require_none_left_out
from spark_jobs.pipeline.target_layout import outgrown
from spark_jobs.sinks.contract import Columns

log = structlog.get_logger()

MANY_VERSIONS: Final = 6
NO_KEY: Final = "no primary key and no unique key: a mirror needs one"

Writers = Sequence[WriterSchema]


class LayoutPlanner:
    """The choice of a table's schemas in one batch. `record` is what is to be remembered of the table, as far as schemas go.

    `folder` names the table among the schemas that are kept; `rule` says what becomes of changes of them.
    """

    def __init__(
        self,
        schemas: SchemaSources,
        raw: RawRecords,
        record: SourceRecord,
        change_topic: str,
        folder: str,
        full_name: str,
        rule: SchemaRule,
    ) -> None:
        self._rule = rule
        self._schemas = schemas
        self._raw = raw
        self.record = record
        self._folder = folder
        self._full_name = full_name
        self._subjects: dict[Part, str] = {"key": key_subject(change_topic), "value": value_subject(change_topic)}

    def plan(self, existing: Columns, *, is_waited_for: bool, has_target: bool = False) -> TableLayout | None:
        """Return how the records are decoded; None while the registry lacks a schema of the table, and if that has no key.

        `has_target` says that rows of the table are in a target, also where `existing` does not name its columns.
        `SchemaChangeError` where the sink is to end before a change of the schema.
        """
        found = {part: self._found(part) for part in self._subjects}
        lost = [subject for part, subject in self._subjects.items() if not found[part] and self._was_registered(part)]
        if lost and not is_waited_for:
            return None
        if lost and self._folder in self._schemas.kept:
            self.record = replace(self.record, skipped=None, lost=LOST.format(" and ".join(lost)))
            return None
        if lost:
            found |= self._schemas.waited_for(self._full_name, self._subjects, lost)
        for part, subject in self._subjects.items():
            if found[part]:
                self._schemas.lost.pop(subject, None)
        lost = [subject for subject in lost if subject in self._schemas.lost]
        if lost:
            self.record = replace(self.record, skipped=None, lost=LOST.format(" and ".join(lost)))
            return None
        self.record = replace(self.record, lost=None)
        subjects, folder = self._subjects, self._folder
        versions = self._schemas.usable(folder, subjects["value"], "value", found["value"], value_writer)
        keys = self._schemas.usable(folder, subjects["key"], "key", found["key"], key_writer)
        if not versions or not (found["key"] or self._raw):
            return None  # without records it is not known whether the table has a key
        if not found["key"]:
            if self.record.skipped is None:
                log.error("merge.table_skipped", table=self._full_name, reason=NO_KEY)
            self.record = replace(self.record, skipped=NO_KEY)
            return None
        if not keys:
            return None
        self.record = replace(self.record, skipped=None)
        return self._ruled_layout(keys, versions, existing, has_target=has_target)

    def value_writers(self) -> list[WriterSchema]:
        """Return the writers of the values, oldest first."""
        return self._schemas.usable(self._folder, self._subjects["value"], "value", self._found("value"), value_writer)

    def key_writers(self) -> list[WriterSchema]:
        """Return the writers of the keys, the one of today's key last."""
        return self._todays_key_last(
            self._schemas.usable(self._folder, self._subjects["key"], "key", self._found("key"), key_writer)
        )

    def _found(self, part: Part) -> tuple[RegisteredSchema, ...]:
        """Return the schemas of keys or values, as this batch has them."""
        return self._schemas.of_batch(self._folder, part, self._subjects[part])

    def _ruled_layout(self, keys: Writers, versions: list[WriterSchema], existing: Columns, *, has_target: bool) -> TableLayout:
        """Return the layout as the rule of the sink has it."""
        rule = self._rule
        if rule.drops:
            versions = sorted(versions, key=lambda one: one.id not in self.record.superseded)
        if has_target or existing:
            self._require_allowed(keys, versions, existing)
        plan = self._layout(keys, versions, existing)
        if not existing:
            self.record = replace(self.record, left_out=())
            return plan
        if rule.adds:
            have = dict(existing)
            require_none_left_out(self._full_name, [name for name in plan.names if name not in have], self.record.left_out)
        if rule.adds and rule.retypes:
            return plan
        kept = kept_to(plan, existing, adds=rule.adds, retypes=rule.retypes)
        require_key(self._full_name, kept.columns, kept.keys)
        self._note_left_out(frozenset(plan.names) - frozenset(kept.names))
        return kept

    def _note_left_out(self, names: frozenset[str]) -> None:
        """Remember the columns that are kept out of the target; log those that are new."""
        found = {*self.record.left_out, *(name.lower() for name in names)}
        if len(found) > len(self.record.left_out):
            log.warning("merge.columns_left_out", table=self._full_name, columns=sorted(names))
            self.record = replace(self.record, left_out=tuple(sorted(found)))

    def _layout(self, keys: Sequence[WriterSchema], versions: list[WriterSchema], existing: Columns) -> TableLayout:
        versions = self._todays_value_last(keys, versions, existing)
        present = self._present(versions)
        retired = self._retired(keys, versions, existing, present)
        plan = layout(keys, versions, existing, present, retired)
        if len({writer.text for writer in keys}) == 1:
            return plan
        self._find_key(plan)
        return layout(self._todays_key_last(keys), versions, existing, plan.value_writers, retired)

    def _require_allowed(self, keys: Sequence[WriterSchema], versions: list[WriterSchema], existing: Columns) -> None:
        """Raise `SchemaChangeError` for a schema that differs from that of the newest merged record, if the rule says so."""
        if self._rule.behaviour != "exception" or len(versions) == 1:
            return
        known = self.record.written_by
        if known is None and self.record.merged == 0:
            return  # no record was merged yet
        base = next((one for one in versions if known is not None and one.id == known[0]), versions[0])
        later = versions[versions.index(base) + 1 :]
        if self._raw and any(one.frame in self._raw.frames[1] for one in versions if one is not base and one not in later):
            seen = newest_positions(self._raw.frame, layout(keys, versions, existing), self._raw.snapshot_topic).values
            since = NOTHING if known is None else known[1]
            later += [one for one in versions if one is not base and one not in later and seen.get(one.id, NOTHING) > since]
        for one in later:
            self._rule.require_allowed(self._full_name, differences(base, one))

    def _was_registered(self, part: Part) -> bool:
        """Return whether there must be a schema: this sink has used one, or records have its id (those without a key have none)."""
        if self._schemas.used.known(self._folder, part):
            return True
        return bool(self._raw) and part in self._raw.framed_parts[0]

    def _retired(
        self, keys: Writers, versions: Writers, existing: Columns, present: Writers | None
    ) -> tuple[int, ...]:
        """Return the schemas whose types do not count: none of those with a record above the floor in this batch."""
        too_wide = outgrown(existing, (*versions, *keys))
        retired = tuple(one for one in self.record.retired if one in too_wide)
        if retired and self._raw:
            parts = ((self._raw.frames[0], keys), (self._raw.frames[1], versions))
            if any(one.id in retired and one.frame in read for read, writers in parts for one in writers):
                plan = layout(keys, versions, existing, present)
                seen = newest_positions(self._raw.frame, plan, self._raw.snapshot_topic)
                newest = {one: max(part.get(one, NOTHING) for part in (seen.keys, seen.values)) for one in retired}
                retired = tuple(one for one in retired if newest[one] < self.record.state.floor)
        self.record = replace(self.record, retired=retired)
        return retired

    def _find_key(self, plan: TableLayout) -> None:
        """Remember which of several keys the newest record has."""
        if not self._raw:
            return
        positions = newest_positions(self._raw.frame, plan, self._raw.snapshot_topic)
        known = [] if self.record.keyed_by is None else [self.record.keyed_by]
        newest = max([*known, *positions.keys.items()], key=lambda item: item[1], default=None)
        self.record = replace(self.record, keyed_by=newest)

    def _todays_key_last(self, keys: Sequence[WriterSchema]) -> list[WriterSchema]:
        today = None if self.record.keyed_by is None else self.record.keyed_by[0]
        return sorted(keys, key=lambda writer: writer.id == today)

    def _todays_value_last(self, keys: Writers, versions: list[WriterSchema], existing: Columns) -> list[WriterSchema]:
        """Return the versions, last the one of the newest record, if that may have a column that sink and last version lack.

        A schema that comes back (a column is dropped and added again as it was) keeps its old rank in the registry.
        """
        have = {name.lower() for name, _ in existing} | set(versions[-1].by_name)
        more = [writer for writer in versions[:-1] if not have.issuperset(writer.by_name)]
        free = sorted(versions, key=lambda writer: POSITION not in writer.by_name)  # the last one has a layout, if any has
        is_refused = free[-1] is not versions[-1]
        if not more and not is_refused:
            return versions
        seen: Mapping[int, str] = {}
        if self._raw:
            if not is_refused and self._raw.frames[1].isdisjoint(writer.frame for writer in more):
                return versions
            seen = newest_positions(self._raw.frame, layout(keys, free, existing), self._raw.snapshot_topic).values
        known = [] if self.record.written_by is None else [self.record.written_by]
        today, _ = max([*known, *seen.items()], key=lambda item: item[1], default=(versions[-1].id, ""))
        return sorted(versions, key=lambda writer: writer.id == today)

    def _present(self, versions: Sequence[WriterSchema]) -> list[WriterSchema] | None:
        """Return the versions that records of this batch have, looked up if there are many; None for all."""
        if len(versions) <= MANY_VERSIONS or not self._raw:
            return None
        return [writer for writer in versions if writer.frame in self._raw.frames[1]] or list(versions[-1:])
