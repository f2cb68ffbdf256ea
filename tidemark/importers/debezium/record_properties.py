"""The properties that shape records: what is published of which rows and columns, and how columns are masked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tidemark.importers.debezium.translation import Draft, split_patterns

_SAME: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "tombstones.on.delete": ("tombstones", lambda text: text == "true"),
    "skip.messages.without.change": ("skip_messages_without_change", lambda text: text == "true"),
    "provide.transaction.metadata": ("provide_transaction_metadata", lambda text: text == "true"),
    "heartbeat.action.query": ("heartbeat_action_query", str),
    "include.query": ("include_query", lambda text: text == "true"),
    "include.schema.changes": ("include_schema_changes", lambda text: text == "true"),
    "column.include.list": ("column_include_list", split_patterns),
    "column.exclude.list": ("column_exclude_list", split_patterns),
    "include.schema.comments": ("include_schema_comments", lambda text: text == "true"),
    "column.propagate.source.type": ("column_propagate_source_type", split_patterns),
    "datatype.propagate.source.type": ("datatype_propagate_source_type", split_patterns),
}
_KEEPS_VALUES: Final = "column_propagate_source_type"
_HASH: Final = re.compile(r"column\.mask\.hash\.(v2\.)?([^.]+)\.with\.salt\.(.+)")
_CHARS: Final = re.compile(r"column\.(mask\.with|truncate\.to)\.(\d+)\.chars")


def translate_records(draft: Draft) -> None:
    """Translate the properties of records: heartbeats, operations, keys, columns."""
    for name, (key, read) in _SAME.items():
        if text := draft.consume(name):
            draft.put(f"records.{key}", read(text))
    if interval := draft.number("heartbeat.interval.ms", "records.heartbeat_interval_ms"):
        draft.put("records.heartbeat_interval_ms", interval)
    elif "heartbeat_action_query" in draft.out.get("records", {}):
        query = draft.out["records"].pop("heartbeat_action_query")
        draft.report("heartbeat.action.query", query, "is never run without heartbeats")
    if text := draft.consume("skipped.operations"):
        skipped = [part.strip() for part in text.split(",")]
        if "r" in skipped:
            draft.report("skipped.operations", text, "rows of snapshots are always published (r is left out)")
        draft.put("records.skipped_operations", [op for op in skipped if op != "r"])
    if keys := draft.consume("message.key.columns"):
        parts = [part.strip() for part in keys.split(";") if part.strip()]
        draft.put("records.message_key_columns", {p.rpartition(":")[0]: p.rpartition(":")[2] for p in parts})
    for name in sorted(draft.left):
        hashed, truncation = _HASH.fullmatch(name), _CHARS.fullmatch(name)
        if hashed is not None and hashed[1]:
            item = {"algorithm": hashed[2], "salt": hashed[3], "columns": split_patterns(draft.consume(name))}
            draft.out.setdefault("records", {}).setdefault("column_mask_hash_v2", []).append(item)
            draft.report("column.mask.hash.v2...with.salt", "", "the salt was copied: it is in the written file")
        elif hashed is not None:
            columns = split_patterns(draft.consume(name))
            draft.report(
                "column.mask.hash...with.salt",
                ", ".join(columns),
                "hashes Java's serialised form. LEFT OUT: these columns would be written in clear, so they are excluded here; "
                "use records.column_mask_hash_v2, whose hashes are others",
            )
            _exclude(draft, columns)
        elif truncation is not None:
            key = "column_mask_with_chars" if truncation[1] == "mask.with" else "column_truncate_to_chars"
            item = {"chars": int(truncation[2]), "columns": split_patterns(draft.consume(name))}
            draft.out.setdefault("records", {}).setdefault(key, []).append(item)


def keep_secrets(draft: Draft) -> None:
    """Leave out statements where columns are masked or left out: statements have their values."""
    records = draft.out.get("records", {})
    shaping = [key for key in records if key.startswith("column_") and key != _KEEPS_VALUES]
    if records.get("include_query") and shaping:
        del records["include_query"]
        draft.report("include.query", "true", "is left out: statements hold the values that column.* masks or leaves out")


def _exclude(draft: Draft, columns: list[str]) -> None:
    """Leave columns out; where only some are included, those are named by a pattern that excludes them."""
    records = draft.out.setdefault("records", {})
    if "column_include_list" in records:
        ahead = f"(?!(?:{'|'.join(columns)})$)"
        records["column_include_list"] = [ahead + pattern for pattern in records["column_include_list"]]
    else:
        records["column_exclude_list"] = [*records.get("column_exclude_list", []), *columns]
