"""How a batch was begun: one document, stored before its first write, which the repeat of the batch reads.

A sink knows a step by query, batch, table and name: the second attempt at a batch skips the steps of the first. That is right only
while both compute the same. What the offsets of the batch do not fix is in this document: rules, ids of topics, settings that
change rows. The schemas by which a table was read are kept before its first write, too (`schema_sources`).

A repeat either is the same batch, or it is refused. A target that no attempt has written to takes the world as it is now.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from kafkaio.slices import Offsets
from schemas.errors import SinkError
from schemas.identity import SourceTable, Target
from schemas.json_codec import decode, encode
from schemas.settings import SchemaChangeSettings, Settings
from schemas.settings.schema_change_section import KINDS, applied_kinds
from spark_jobs.merge.job_state import MergeState, SourceRecord
from spark_jobs.merge.spark_checkpoint import SparkCheckpoint
from spark_jobs.pipeline.table_plan import require_same_batch
from spark_jobs.pipeline.table_routes import Feed
from spark_jobs.pipeline.udfs import udf_sources
from spark_jobs.store.files import LocalFiles
from spark_jobs.store.sink_layout import BATCH

_VERSION: Final = 1
_DIGITS: Final = 16
_OF_COLUMNS: Final = ("add.column", "alter.column.type")


@dataclass(frozen=True, slots=True)
class BegunBatch:
    """A batch as its last attempt began it.

    `targets` has the rule of each source table, by the texts of target and table; `topics` the ids of topics that no batch before
    has read; `offsets` a digest of those between which a topic is read, None if an older version began the batch. `sink` has
    digests of settings that change the rows of any target, `records` the digest of those that change rows of the source (masks).
    `rebuilt` counts, by the name of a source table, how often a target of it was made again since the batch began.
    """

    query_id: str
    batch_id: int
    targets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)
    offsets: Mapping[str, str] | None = None
    sink: Mapping[str, str] = field(default_factory=dict)
    records: str = ""
    rebuilt: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def unknown(query_id: str, batch_id: int) -> BegunBatch:
        """Return the document of a batch of which an older version may have made an attempt."""
        return BegunBatch(query_id, batch_id)

    @property
    def all_targets(self) -> tuple[Target, ...]:
        """The targets."""
        return tuple(Target.parse(text) for text in sorted(self.targets))

    def require_same(self, now: BegunBatch, written: Collection[Target], topics: Collection[str]) -> None:
        """Raise `SinkError` if the repeat of the batch would make something else of a target that was written to.

        `topics` are those of the tables that go into these targets.
        """
        kept = {target.text: self.targets[target.text] for target in written if target.text in self.targets}
        changed = [name for name, digest in sorted(self.sink.items()) if now.sink.get(name, "") != digest]
        require_same_batch(self.batch_id, kept, now.targets, changed)
        before, after = self.offsets or {}, now.offsets or {}
        moved = sorted(topic for topic in topics if topic in before and before[topic] != after.get(topic))
        if moved:
            message = (
                f"batch {self.batch_id} has written records of {', '.join(moved)} between other offsets than its checkpoint has "
                "now: put the checkpoint back"
            )
            raise SinkError(message)

    def of_repeat(self, now: BegunBatch, written: Collection[Target]) -> BegunBatch:
        """Return the document of the repeat: what was written counts as before."""
        kept = {target.text: {**self.targets.get(target.text, {}), **now.targets.get(target.text, {})} for target in written}
        return replace(now, targets={**now.targets, **kept}, rebuilt=self.rebuilt)

    def without(self, targets: Collection[Target]) -> BegunBatch:
        """Return the document of a batch that has written nothing to these targets."""
        kept = {text: rules for text, rules in self.targets.items() if Target.parse(text) not in targets}
        tables = {table.name.plain for target in targets for table in self.tables_into(target)}
        rebuilt = {**self.rebuilt, **{name: self.rebuilt.get(name, 0) + 1 for name in tables}}
        return replace(self, targets=kept, rebuilt=rebuilt)

    def tables_into(self, target: Target) -> tuple[SourceTable, ...]:
        """Return the source tables of a target."""
        return tuple(SourceTable.parse(text) for text in sorted(self.targets.get(target.text, {})))


@dataclass(frozen=True, slots=True)
class EarlierBatch:
    """An attempt at a batch that was cut off: how it was begun, and where it has written. Empty for a batch that is new.

    `quarantined` are the names of tables of which it left records in quarantine.
    """

    begun: BegunBatch | None = None
    written: frozenset[Target] = frozenset()
    quarantined: frozenset[str] = frozenset()

    @property
    def is_unknown(self) -> bool:
        """Whether an older version may have made an attempt: it stored no document."""
        return self.begun is not None and self.begun.offsets is None

    @property
    def touched(self) -> frozenset[Target]:
        """The targets that were written to, and those of tables with records in quarantine."""
        if self.begun is None:
            return frozenset()
        targets = {target for target in self.begun.all_targets if self._has_quarantined(target)}
        return self.written | targets

    def _has_quarantined(self, target: Target) -> bool:
        return self.begun is not None and any(table.name.plain in self.quarantined for table in self.begun.tables_into(target))

    @property
    def tables(self) -> frozenset[SourceTable]:
        """The source tables of the targets that were touched."""
        if self.begun is None:
            return frozenset()
        return frozenset(table for target in self.touched for table in self.begun.tables_into(target))

    def known(self, before: MergeState) -> MergeState:
        """Return the state before the batch with the topics that the attempt has read, and their tables."""
        if self.begun is None or not self.tables:
            return before
        begun = {table for target in self.begun.all_targets for table in self.begun.tables_into(target)}
        sources = {**{table: SourceRecord() for table in sorted(begun)}, **before.sources}
        return replace(before, sources=sources, topics={**self.begun.topics, **before.topics})

    def has_read(self, table: SourceTable, target: Target) -> bool:
        """Return whether the attempt has put records of a table into a target, or has left some in quarantine."""
        if self.begun is None or table.name.plain in self.quarantined:
            return self.begun is not None
        return target in self.written and (self.is_unknown or table in self.begun.tables_into(target))


class BegunBatches:
    """The document of the batch that was begun last, beside Spark's checkpoint."""

    def __init__(self, files: LocalFiles) -> None:
        self._files = files

    def load(self) -> BegunBatch | None:
        """Return the document; None if no batch was begun, or by an older version only. `SinkError` if it cannot be read."""
        try:
            document: dict[str, Any] = json.loads(self._files.read(BATCH))
            if document.pop("v") != _VERSION:
                message = "a later version wrote it"
                raise ValueError(message)
            return decode(BegunBatch, document)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            where = self._files.location(BATCH)
            message = f"cannot read {where}, which says how the last batch was begun: {error}; put the file back from a backup"
            raise SinkError(message) from error

    def cut_off(self, checkpoint: SparkCheckpoint) -> BegunBatch | None:
        """Return the document of a batch that has begun and not ended; None if there is no such batch, or no document of it."""
        begun = self.load()
        if begun is None or begun.query_id != checkpoint.query_id:
            return None
        return begun if begun.batch_id == checkpoint.newest_begun > checkpoint.newest_done else None

    def save(self, begun: BegunBatch) -> None:
        """Replace the document."""
        self._files.write(BATCH, json.dumps({"v": _VERSION, **encode(begun)}, separators=(",", ":")))

    def remove(self) -> None:
        """Remove the document: its batch has written nothing, and gets other offsets."""
        self._files.remove(BATCH)


@dataclass(frozen=True, slots=True)
class RowSettings:
    """Digests of the settings that change rows, besides routes and transforms, as this run of the job has them."""

    sink: Mapping[str, str]
    records: str
    udfs: str = ""

    @staticmethod
    def of(settings: Settings) -> RowSettings:
        """Return those of a configured sink. `ConfigError` for a function that cannot be had."""
        one = settings.sink
        sink: dict[str, str] = {"mode": one.mode, "format": one.format or ""}
        if withheld := _withheld(one.schema_changes):
            sink["schema_changes"] = withheld
        udfs = _digest(udf_sources(settings.udfs)) if settings.udfs else ""
        return RowSettings(sink, _digest(asdict(settings.records)), udfs)

    def begin(
        self, query_id: str, batch_id: int, bounds: tuple[Offsets, Offsets], feeds: Iterable[Feed], topics: Mapping[str, str]
    ) -> BegunBatch:
        """Return the document of a batch between these offsets; `topics` are the ids of topics that no batch before has read."""
        targets: dict[str, dict[str, str]] = {}
        for feed in feeds:
            rule = feed.rule if feed.transform is None else feed.rule + self.udfs
            targets.setdefault(feed.target.text, {})[feed.table.text] = rule
        start, ends = bounds
        offsets = {topic: _digest([start.get(topic), end]) for topic, end in ends.items() if start.get(topic) != end}
        return BegunBatch(query_id, batch_id, targets, dict(topics), offsets, self.sink, self.records)


def _withheld(settings: SchemaChangeSettings) -> str:
    """Return the kinds of changes that leave the columns as they are: values of such a batch are missing for good.

    An attempt that made a change, or ended before it, has written nothing that another behaviour would not write.
    """
    ignores = settings.behaviour == "ignore"
    return ",".join(kind for kind in KINDS if kind not in applied_kinds(settings) or (ignores and kind in _OF_COLUMNS))


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
