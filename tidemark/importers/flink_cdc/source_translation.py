"""The section `source` of a Flink CDC pipeline to ours: address, tables, where the first start begins."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from schemas.settings.source_section import StartAtSettings
from tidemark.importers.flink_cdc.table_patterns import split_tables, table_pattern
from tidemark.importers.key_ledger import Ledger, has_setting

_SECRET: Final = "/run/secrets/tidemark-source"  # noqa: S105  a path
_OUR_EXCLUDED: Final = r".*\._.+_(gho|ghc|del|new|old)"
_NOT_NEEDED: Final = (
    "name", "server-time-zone", "scan.snapshot.fetch.size", "connect.max-retries", "connection.pool.size", "heartbeat.interval",
    "scan.incremental.close-idle-reader.enabled", "use.legacy.json.format", "chunk-meta.group.size",
    "scan.incremental.snapshot.unbounded-chunk-first.enabled", "scan.incremental.snapshot.enabled", "connection.encrypt",
    "chunk-key.even-distribution.factor.lower-bound", "chunk-key.even-distribution.factor.upper-bound",
)  # fmt: skip
_ADVICE: Final = {
    "include-comments.enabled": "comments of tables and columns are not carried",
    "scan.newly-added-table.enabled": "is always so: a table that comes into source.tables is read (`tidemark reload`)",
    "scan.binlog.newly-added-table.enabled": "is always so: a table is captured from its CREATE on",
    "scan.parse.online.schema.changes.enabled": "the swap of gh-ost and pt-osc arrives as a change of the table, without an option",
    "scan.incremental.snapshot.backfill.skip": "is unavailable: a snapshot is exact, its rows are never repeated or lost",
    "scan.incremental.snapshot.chunk.key-column": "chunks follow the key; a signal can name another column (surrogate-key)",
    "ignore-no-primary-key-table": "a table without a key has no row in a sink: leave it out of source.tables",
    "metadata.list": "op_ts alone is known here, and expressions may name __database__, __table__ and __ts__ without it",
    "host": "is no option of Flink CDC: write hostname",
}
_TINYINT: Final = "TINYINT(1) is a number here, where Flink CDC has BOOLEAN by default: write `column <> 0 AS column` in select"
_START: Final = "scan.startup."
_OFFSET: Final = {"file": "file", "pos": "pos", "gtid-set": "gtids", "skip-events": "skip_events", "skip-rows": "skip_rows"}


def translate_source(ledger: Ledger) -> None:
    """Translate every key of the section."""
    kind = ledger.text("source.type")
    if kind == "mysql":
        ledger.close("source.type", "source")
    else:
        ledger.report("source.type", "only MySQL and MariaDB are read: no setting below is of use")
    _address(ledger)
    _tables(ledger)
    _startup(ledger)
    _rows(ledger, kind)
    if {one.strip() for one in ledger.text("source.metadata.list").split(",")} <= {"op_ts", ""}:
        ledger.skip("source.metadata.list")
    for name in _NOT_NEEDED:
        ledger.skip(f"source.{name}")
    for name, what in _ADVICE.items():
        ledger.report_given(f"source.{name}", what)
    for key in ledger.keys("source.debezium"):
        ledger.report(key, "belongs to the Debezium inside Flink CDC; `tidemark import-debezium` knows its properties")
    for key in ledger.keys("source.jdbc.properties"):
        ledger.report(key, "belongs to the JDBC driver: encryption is source.tls, a time limit source.connect_timeout_s")


def _rows(ledger: Ledger, kind: str) -> None:
    """Translate what is about chunks, columns and values."""
    if rows := ledger.number("source.scan.incremental.snapshot.chunk.size"):
        ledger.translate("source.scan.incremental.snapshot.chunk.size", "snapshot.chunk_rows", min(rows, 10_000_000))
    if ledger.text("source.schema-change.enabled") == "true":
        ledger.close("source.schema-change.enabled", "sinks")
    elif ledger.text("source.schema-change.enabled"):
        ledger.report("source.schema-change.enabled", "columns always follow the source; choose them with select")
    if ledger.text("source.treat-tinyint1-as-boolean.enabled") == "false":
        ledger.close("source.treat-tinyint1-as-boolean.enabled", "format")
    elif ledger.text("source.treat-tinyint1-as-boolean.enabled"):
        ledger.report("source.treat-tinyint1-as-boolean.enabled", _TINYINT)
    elif kind == "mysql":
        ledger.note("source.treat-tinyint1-as-boolean.enabled", _TINYINT)


def _address(ledger: Ledger) -> None:
    for name, path in (("hostname", "source.host"), ("username", "source.user")):
        if text := ledger.text(f"source.{name}"):
            ledger.translate(f"source.{name}", path, text)
    if port := ledger.number("source.port"):
        ledger.translate("source.port", "source.port", port)
    if "source.password" in ledger.open:
        ledger.put("source.password_file", _SECRET)
        ledger.report("source.password", f"secrets are not copied: put it into {_SECRET}, first line, or name another file")
    first, _, last = ledger.text("source.server-id").replace(" ", "").partition("-")
    if first.isdigit():
        ledger.translate("source.server-id", "source.server_id", int(first))
        if last:
            ledger.note("source.server-id", f"one server id is enough: {first} alone of {first}-{last}")
    if seconds := ledger.seconds("source.connect.timeout"):
        ledger.translate("source.connect.timeout", "source.connect_timeout_s", seconds)


def _tables(ledger: Ledger) -> None:
    patterns = []
    for text in split_tables(ledger.text("source.tables")):
        found, notes = table_pattern(text)
        patterns.append(found)
        for note in notes:
            ledger.note("source.tables", f"{text}: {note}")
    if patterns:
        ledger.translate("source.tables", "source.tables", patterns)
    else:
        ledger.put("source.tables", [r".*\..*"])
        ledger.note("source.tables", "is missing: all tables are captured")
    excluded = [table_pattern(text)[0] for text in split_tables(ledger.text("source.tables.exclude"))]
    if excluded:
        ledger.translate("source.tables.exclude", "source.exclude_tables", [*excluded, _OUR_EXCLUDED])


def _startup(ledger: Ledger) -> None:
    mode = ledger.text(f"source.{_START}mode").lower()
    ours = {"": "", "initial": "initial", "latest-offset": "no_data", "snapshot": "initial_only"}.get(mode)
    if mode and ours:
        ledger.translate(f"source.{_START}mode", "snapshot.mode", ours)
    elif mode == "specific-offset":
        ledger.translate(f"source.{_START}mode", "snapshot.mode", "no_data")
    elif mode in ("earliest-offset", "timestamp"):
        _start_of_later_versions(ledger, mode)
    elif mode:
        ledger.report(f"source.{_START}mode", "is no mode of Flink CDC: set snapshot.mode")
    for name, path in _OFFSET.items():
        _start_at(ledger, f"source.{_START}specific-offset.{name}", path, is_used=mode == "specific-offset")
    _start_at(ledger, f"source.{_START}timestamp-millis", "timestamp", is_used=False)


def _start_of_later_versions(ledger: Ledger, mode: str) -> None:
    """Translate a start at the beginning of the log or at a time, where this version has it."""
    moment = ledger.number(f"source.{_START}timestamp-millis")
    ledger.put("snapshot.mode", "no_data")
    if mode == "earliest-offset" and has_setting(StartAtSettings, "position"):
        ledger.translate(f"source.{_START}mode", "source.start_at.position", "earliest")
        return
    if mode == "timestamp" and moment is not None and has_setting(StartAtSettings, "timestamp"):
        at = datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="milliseconds")
        ledger.translate(f"source.{_START}timestamp-millis", "source.start_at.timestamp", at)
        ledger.close(f"source.{_START}mode", "source.start_at.timestamp")
        return
    what = "there is no such start in this version: give source.start_at the GTIDs, or file and pos, from which to read"
    if mode == "timestamp" and moment is not None:
        what = f"{what} (those at {moment} ms)"
    ledger.report(f"source.{_START}mode", what)


def _start_at(ledger: Ledger, key: str, name: str, *, is_used: bool) -> None:
    value = ledger.number(key) if ledger.number(key) is not None else ledger.text(key)
    if key not in ledger.open or value in ("", None):
        return
    if not is_used:
        ledger.report(key, "is of another scan.startup.mode")
    elif not has_setting(StartAtSettings, name):
        ledger.report(key, "is unavailable: a start is at the beginning of a transaction")
    elif name in ("file", "pos") and ledger.text(f"source.{_START}specific-offset.gtid-set"):
        ledger.report(key, "GTIDs are given, which say more")
    else:
        ledger.translate(key, f"source.start_at.{name}", value)
