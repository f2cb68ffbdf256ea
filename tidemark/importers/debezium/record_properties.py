"""The properties that shape records: what is published of which rows and columns, and how columns are masked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from schemas.errors import ConfigError
from tidemark.importers.debezium.connector_ledger import ConnectorLedger
from tidemark.importers.debezium.java_pattern_reader import parse
from tidemark.importers.debezium.java_patterns import (
    CharClass,
    Concat,
    Either,
    Literal,
    Node,
    PatternError,
    plain_text,
    written,
)
from tidemark.importers.debezium.name_lists import read_list, texts, without

_FLAGS: Final = {
    "tombstones.on.delete": ("tombstones", True),
    "skip.messages.without.change": ("skip_messages_without_change", False),
    "provide.transaction.metadata": ("provide_transaction_metadata", False),
    "include.query": ("include_query", False),
    "include.schema.changes": ("include_schema_changes", True),
    "include.schema.comments": ("include_schema_comments", False),
}
_TYPED: Final = {
    "column.propagate.source.type": "records.column_propagate_source_type",
    "datatype.propagate.source.type": "records.datatype_propagate_source_type",
}
_OPERATIONS: Final = ("c", "u", "d", "t", "none")
_HASH: Final = re.compile(r"column\.mask\.hash\.(v2\.)?([^.]+)\.with\.salt\.(.+)")
_CHARS: Final = re.compile(r"column\.(truncate\.to|mask\.with)\.(\d+)\.chars")
_OLD_HASH: Final = (
    "hashes Java's serialised form. LEFT OUT: these columns would be written in clear, so they are excluded here; "
    "use records.column_mask_hash_v2, whose hashes are others"
)
_HASH_NAME: Final = "column.mask.hash.v2...with.salt"
_KEY_PART: Final = re.compile(r"\s*([^:]+):([^:,]+(?:,[^:,]+)*)\s*")


def translate_records(ledger: ConnectorLedger, hidden: Sequence[Node]) -> None:
    """Translate the properties of records: heartbeats, operations, keys, columns. `hidden` are columns that a transform hides."""
    for name, (key, default) in _FLAGS.items():
        if name in ledger.open:
            ledger.translate(name, f"records.{key}", ledger.flag(name, default=default))
    _heartbeats(ledger)
    _operations(ledger)
    if "message.key.columns" in ledger.open:
        _keys(ledger)
    for name, path in _TYPED.items():
        if patterns := read_list(ledger, name):
            ledger.translate(name, path, texts(patterns))
        ledger.close(name, path)
    _columns(ledger, hidden)


def _heartbeats(ledger: ConnectorLedger) -> None:
    ledger.whole("heartbeat.interval.ms", "records.heartbeat_interval_ms")
    query = ledger.text("heartbeat.action.query").strip()
    if query and ledger.out.get("records", {}).get("heartbeat_interval_ms"):
        ledger.translate("heartbeat.action.query", "records.heartbeat_action_query", query)
    elif query:
        ledger.report("heartbeat.action.query", "is never run without heartbeats (heartbeat.interval.ms)")


def _operations(ledger: ConnectorLedger) -> None:
    name = "skipped.operations"
    words = [word.lower() for word in ledger.words(name)]
    if not words:
        return
    kept = [word for word in words if word in _OPERATIONS]
    for word in words:
        if word == "r":
            ledger.note(name, "rows of snapshots are always published (r is left out)", word)
        elif word not in _OPERATIONS:
            ledger.note(name, "is no operation: c, u, d, t or none", word)
    if "none" in kept and len(set(kept)) > 1:
        kept.remove("none")
        ledger.note(name, "none excludes the others: it is left out", "none")
    ledger.translate(name, "records.skipped_operations", list(dict.fromkeys(kept)) or ["none"])


# ── keys ────────────────────


def _keys(ledger: ConnectorLedger) -> None:
    """Translate the chosen keys. Debezium matches `table.column` as one pattern, and puts the columns of all entries together."""
    name, found = "message.key.columns", dict[str, str]()
    entries = [part for part in ledger.text(name).split(";") if part.strip()]
    several = False
    for entry in entries:
        match = _KEY_PART.fullmatch(entry)
        if match is None:
            ledger.note(name, "is not of the form table:column,column: the key of the table stays", entry)
            continue
        columns = [column.strip() for column in match[2].split(",")]
        try:
            node = parse(match[1])
            pattern = written(node)
            patterned = [column for column in columns if plain_text(parse(column)) != column]
        except PatternError as error:
            raise ConfigError(f"{name}: {entry.strip()!r} is no regular expression that can be used ({error})") from None
        for note in _key_notes(node, patterned):
            ledger.note(name, note, entry)
        several = several or (bool(found) and plain_text(node) is None)
        found[pattern] = f"{found[pattern]},{','.join(columns)}" if pattern in found else ",".join(columns)
    if several:
        ledger.note(name, "a table that several entries match has the columns of the first one here, and those of all in Debezium")
    if found:
        ledger.translate(name, "records.message_key_columns", found)
    ledger.skip(name)


def _key_notes(node: Node, patterned: list[str]) -> Iterable[str]:
    if patterned:
        yield f"{', '.join(patterned)} is a name here, and a pattern in Debezium: write the names of the columns"
    if isinstance(node, Either):
        yield "Debezium reads the columns as part of the last alternative only; here they are of every table that matches"
    elif not isinstance(node.nodes[-1] if isinstance(node, Concat) and node.nodes else node, (Literal, CharClass)):
        yield "Debezium also takes columns whose names end so, if the pattern reaches into the name: name the tables"


# ── columns ────────────────────


def _columns(ledger: ConnectorLedger, hidden: Sequence[Node]) -> None:
    """Translate lists and masks of columns. As in Debezium, a column has one mask: truncated, asterisks, old hash or hash."""
    masked: list[Node] = []
    old = list(hidden)
    for name, match in _masks(ledger, _CHARS):
        key = "column_mask_with_chars" if match[1] == "mask.with" else "column_truncate_to_chars"
        _mask(ledger, name, name, (key, {"chars": int(match[2])}), masked)
    for name, match in _masks(ledger, _HASH):
        if match[1]:
            continue
        columns = list(without(read_list(ledger, name), masked))
        ledger.note("column.mask.hash...with.salt", _OLD_HASH, ", ".join(texts(columns)))
        ledger.close(name, "records.column_exclude_list")
        old += columns
    for name, match in _masks(ledger, _HASH):
        item = {"algorithm": match[2], "salt": match[3]}
        if _mask(ledger, name, _HASH_NAME, ("column_mask_hash_v2", item), [*masked, *old]):
            ledger.note(_HASH_NAME, "the salt was copied: it is in the written file")
    included, excluded = (read_list(ledger, f"column.{kind}.list") for kind in ("include", "exclude"))
    if included:
        ledger.put("records.column_include_list", texts(without(included, [*excluded, *old])) or [_NEVER])
    elif excluded or old:
        ledger.put("records.column_exclude_list", texts([*excluded, *old]))
    for kind in ("include", "exclude"):
        ledger.close(f"column.{kind}.list", "records.column_include_list" if included else "records.column_exclude_list")


_NEVER: Final = "(?!)"


def _masks(ledger: ConnectorLedger, pattern: re.Pattern[str]) -> list[tuple[str, re.Match[str]]]:
    found = [(name, match) for name in sorted(ledger.open) if (match := pattern.fullmatch(name)) is not None]
    return sorted(found, key=lambda one: "truncate" not in one[0])


def _mask(ledger: ConnectorLedger, name: str, shown_name: str, mask: tuple[str, dict[str, Any]], masked: list[Node]) -> bool:
    """Translate a mask of columns, and return whether a column is left for it."""
    columns = read_list(ledger, name)
    ours = texts(without(columns, masked))
    key, item = mask
    if ours:
        ledger.out.setdefault("records", {}).setdefault(key, []).append(item | {"columns": ours})
    elif columns:
        ledger.note(shown_name, "is left out: its columns have another mask, or are left out", ledger.text(name))
    ledger.close(name, f"records.{key}")
    masked += columns
    return bool(ours)


def settle_records(ledger: ConnectorLedger) -> None:
    """Leave out settings of records that exclude each other: the safer one stays, the other is reported."""
    records = ledger.out.get("records", {})
    shaping = [key for key in records if key.startswith("column_") and f"records.{key}" not in _TYPED.values()]
    if records.get("include_query") and shaping:
        del records["include_query"]
        ledger.note("include.query", "is left out: statements hold the values that column.* masks or leaves out", "true")
    skipped = records.get("skipped_operations", ["t"])
    if records.get("unwrap") and "t" not in skipped:
        records["skipped_operations"] = [*(op for op in skipped if op != "none"), "t"]
        ledger.note("skipped.operations", "a truncate has no row, and rows are flat: t is added")
