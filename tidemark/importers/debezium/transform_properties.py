"""A connector's transforms: flat rows and outboxes become settings, columns that one hides are left out, others are reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidemark.importers.debezium.connector_ledger import ConnectorLedger
from tidemark.importers.debezium.java_patterns import ANY, DOT, Literal, Node, Repeat, concat

_OUTBOX: Final = "io.debezium.transforms.outbox.EventRouter"
_UNWRAP: Final = "io.debezium.transforms.ExtractNewRecordState"
_HIDES: Final = {
    "org.apache.kafka.connect.transforms.MaskField$Value": ("fields",),
    "org.apache.kafka.connect.transforms.ReplaceField$Value": ("exclude", "blacklist"),
}
"""Transforms of flat rows that hide columns, and the options that name these."""
_OUTBOX_OPTIONS: Final = {
    "table.field.event.id": "id",
    "table.field.event.key": "key",
    "table.field.event.payload": "payload",
    "route.by.field": "route_by",
    "route.topic.replacement": "topic",
}
_OTHER: Final = "no transforms run in Tidemark: do it in the consumer, or in a stream processor behind the topics"
_ADVICE: Final = {
    "ByLogicalTableRouter": "topics are not merged: consume by a pattern of topics",
    "ToLogicalTopicRouter": "topics are not merged: consume by a pattern of topics",
    "RegexRouter": "topics are called <name>.<database>.<table>: change the consumers' topic names",
    "Filter": "choose tables and columns (source.tables, records.column_*); filter rows in the consumer",
}
_KEPT: Final = "HIDES VALUES, and nothing is hidden here: name the columns in records.column_exclude_list or column_mask_with_chars"
_LEFT_OUT: Final = "LEFT OUT: these columns would be written in clear, so they are excluded here"


def translate_transforms(ledger: ConnectorLedger) -> list[Node]:
    """Translate every transform, and return patterns of the columns that one hides."""
    hidden: list[Node] = []
    translated: set[str] = set()
    skipped = [word.lower() for word in ledger.words("skipped.operations")]
    for alias in dict.fromkeys(ledger.words("transforms")):
        prefix = f"transforms.{alias}"
        kind = ledger.text(f"{prefix}.type").strip()
        if kind in translated:
            _leave_out(ledger, prefix, kind, "is left out: one transform of a kind is translated, the first one")
        elif kind == _OUTBOX and "c" in skipped:
            _leave_out(ledger, prefix, kind, "is left out: an event of an outbox is an inserted row, and c is skipped")
        elif kind in (_UNWRAP, _OUTBOX):
            translated.add(kind)
            if f"{prefix}.predicate" in ledger.open:
                ledger.report(f"{prefix}.predicate", "is left out: the transform counts for every table here")
                ledger.skip(f"{prefix}.negate")
            (_unwrap if kind == _UNWRAP else _outbox)(ledger, prefix)
        elif kind in _HIDES:
            hidden += _hidden(ledger, prefix, kind, flat=_UNWRAP in translated)
        else:
            _leave_out(ledger, prefix, kind, _ADVICE.get(kind.rpartition(".")[2].partition("$")[0], _OTHER))
    ledger.close("transforms", "records")
    for name in [*ledger.keys("transforms"), *ledger.keys("predicates"), "predicates"]:
        ledger.report_given(name, "goes with a transform that is not named or not translated")
    return hidden


def _leave_out(ledger: ConnectorLedger, prefix: str, kind: str, what: str) -> None:
    """Report a transform as a whole, and close its options."""
    ledger.note(prefix, what, kind)
    ledger.close_all(list(ledger.keys(prefix)), prefix)


def _unwrap(ledger: ConnectorLedger, prefix: str) -> None:
    """Translate flat rows. A tombstone of the connector passes the transform in the mode rewrite-with-tombstone only."""
    ledger.translate(f"{prefix}.type", "records.unwrap", value=True)
    name = f"{prefix}.delete.tombstone.handling.mode"
    mode = ledger.word(name, "tombstone")
    if mode not in ("rewrite", "rewrite-with-tombstone"):
        ledger.note(name, "records.unwrap writes a flat row with __deleted for a delete (rewrite); consumers see it", mode)
    if mode != "rewrite-with-tombstone":
        ledger.put("records.tombstones", mode not in ("rewrite", "drop"))
        ledger.skip("tombstones.on.delete")
    ledger.close(name, "records.tombstones")
    name = f"{prefix}.add.fields"
    fields = sorted(ledger.words(name))
    if fields != ["op", "source.ts_ms"]:
        ledger.note(name, "records.unwrap adds __op and __source_ts_ms, no others", ",".join(fields))
    ledger.close(name, "records.unwrap")
    for name in ledger.keys(prefix):
        ledger.report(name, "is unavailable with records.unwrap")


def _outbox(ledger: ConnectorLedger, prefix: str) -> None:
    ledger.translate(f"{prefix}.type", "records.outbox.tables", list(ledger.out["source"]["tables"]))
    ledger.note(f"{prefix}.type", "records.outbox.tables are all captured tables here: name the outbox table alone")
    for option, key in _OUTBOX_OPTIONS.items():
        name = f"{prefix}.{option}"
        value = ledger.text(name).strip()
        if key == "topic" and value and "${routedByValue}" not in value:
            ledger.report(name, "needs ${routedByValue} here: set records.outbox.topic")
        elif value:
            ledger.translate(name, f"records.outbox.{key}", value)
        ledger.close(name, f"records.outbox.{key}")
    for name in ledger.keys(prefix):
        ledger.report(name, "is unavailable: events have the payload as it is and the header id")


def _hidden(ledger: ConnectorLedger, prefix: str, kind: str, *, flat: bool) -> Iterator[Node]:
    """Yield the columns that a transform of flat rows hides; report one that cannot be translated, since it would hide nothing."""
    for option in _HIDES[kind]:
        name = f"{prefix}.{option}"
        columns = ledger.words(name)
        if flat and columns:
            ledger.note(name, _LEFT_OUT, ", ".join(columns))
            anywhere = Repeat(ANY, "*")
            yield from [concat(anywhere, DOT, anywhere, DOT, *map(Literal, column)) for column in columns]
            ledger.close(name, "records.column_exclude_list")
    if flat:
        ledger.close(f"{prefix}.type", "records.column_exclude_list")
    for name in ledger.keys(prefix):
        ledger.report(name, _KEPT)
