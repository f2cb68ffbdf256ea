"""The properties of snapshots and signals."""

from __future__ import annotations

from typing import Final

from schemas.settings import SnapshotSettings
from tidemark.importers.debezium.connector_ledger import ConnectorLedger
from tidemark.importers.key_ledger import choices

_FLAGS: Final = ("snapshot_data", "start_stream", "snapshot_on_data_error")
_BASED: Final = "snapshot.mode.configuration.based"
_TODAY: Final = {"schema_only": "no_data", "schema_only_recovery": "recovery"}
_READS: Final = ("initial", "initial_only", "always", "when_needed")
_ONE_VIEW: Final = (
    "is not set: the tables of a start are read as the connector did, in one transaction, behind a lock (snapshot.consistency: "
    "one_transaction). With a signal table, or read_only, they are read in chunks without a lock, and signals can ask for snapshots"
)
_CHANNELS: Final = ("source", "kafka", "file")


def translate_snapshot(ledger: ConnectorLedger, *, reads_tables: bool) -> None:
    """Translate when and how tables are read; a start at an offset does not read them (`reads_tables`)."""
    mode = _mode(ledger)
    ledger.put("snapshot.merge", "producer")  # rows of snapshots in the change topics, as the consumers know them
    name = "incremental.snapshot.watermarking.strategy"
    if ledger.word(name) in choices(SnapshotSettings, "watermarking_strategy"):
        ledger.translate(name, "snapshot.watermarking_strategy", ledger.word(name))
    elif name in ledger.open:
        ledger.report(name, f"is none of {', '.join(choices(SnapshotSettings, 'watermarking_strategy'))}")
    name = "snapshot.max.threads"
    if ledger.text(name).strip().isascii() and ledger.text(name).strip().isdecimal() and int(ledger.text(name)) > 64:
        ledger.note(name, "is more than the 64 readers there are: 64", ledger.text(name))
        ledger.open[name] = "64"
    ledger.whole(name, "snapshot.readers")
    name = "incremental.snapshot.chunk.size"
    if name in ledger.open:
        ledger.note(name, "chunks of 50000 rows, our default, are read faster", ledger.text(name))
        ledger.whole(name, "snapshot.chunk_rows")
    source = ledger.out["source"]
    flags = ledger.out["snapshot"].get("configuration_based", {})
    reads = mode in _READS or flags.get("snapshot_data") or flags.get("snapshot_on_data_error")
    _locking(ledger, in_one_view=reads_tables and bool(reads) and "signal_table" not in source and not source.get("read_only"))


def _mode(ledger: ConnectorLedger) -> str:
    name = "snapshot.mode"
    given = ledger.word(name, "initial")
    mode = _TODAY.get(given, given)
    if mode == "recovery":
        ledger.report(name, "there is no schema history to be rebuilt: no_data continues from the offset")
        mode = "no_data"
    elif mode not in choices(SnapshotSettings, "mode"):
        ours = ", ".join(choices(SnapshotSettings, "mode"))
        ledger.report(name, f"is unavailable: no_data is written, which reads no table; one of {ours}, and signals for the rest")
        mode = "no_data"
    if mode == "configuration_based":
        flags = {flag: ledger.flag(f"{_BASED}.{flag.replace('_', '.')}", default=False) for flag in _FLAGS}
        if flags["snapshot_data"] or flags["start_stream"]:
            ledger.put("snapshot.configuration_based", flags)
        else:
            ledger.report(name, "neither reads tables nor follows the log with these flags: no_data is written")
            mode = "no_data"
            if flags["snapshot_on_data_error"]:
                ledger.report(f"{_BASED}.snapshot.on.data.error", "is left out: no_data reads no tables when the log is lost")
        ledger.close_all([f"{_BASED}.{flag.replace('_', '.')}" for flag in _FLAGS], "snapshot.configuration_based")
    ledger.put("snapshot.mode", mode)
    ledger.close(name, "snapshot.mode")
    for other in list(ledger.keys(_BASED)):
        ledger.report(other, "has no meaning here: the log has the columns of its rows, and flags are of configuration_based")
    return mode


def _locking(ledger: ConnectorLedger, *, in_one_view: bool) -> None:
    """Keep a lock that was asked for; without one tables are read in chunks, if there is a way to mark these in the log."""
    name = "snapshot.locking.mode"
    if "snapshot.minimal.locks" in ledger.open and name not in ledger.open:
        ledger.open[name] = "minimal" if ledger.flag("snapshot.minimal.locks", default=True) else "extended"
        ledger.close("snapshot.minimal.locks", "snapshot.locking_mode")
    mode = ledger.word(name)
    if mode in ("minimal", "extended"):
        ledger.translate(name, "snapshot.locking_mode", mode)
        in_one_view = True
    elif mode == "none" and not in_one_view:
        ledger.report(name, "tables are read in chunks, without locks and also safe from DDL")
    elif mode and in_one_view:
        ledger.report(name, "is unavailable without a signal table: there is a lock while the transaction begins (minimal)")
    elif mode:
        ledger.report(name, "is unavailable: tables are read in chunks, without locks; or one_transaction (snapshot.consistency)")
    if in_one_view:
        ledger.put("snapshot.consistency", "one_transaction")
        ledger.whole("snapshot.lock.timeout.ms", "snapshot.lock_timeout_ms")
    if in_one_view and "signal_table" not in ledger.out["source"] and not ledger.out["source"].get("read_only"):
        ledger.note("signal.data.collection", _ONE_VIEW)
    name = "snapshot.isolation.mode"
    if ledger.word(name).replace("-", "_") not in ("", "repeatable_read"):
        ledger.report(name, "reads are repeatable, whichever way tables are read")
    ledger.close(name, "snapshot")


def translate_signals(ledger: ConnectorLedger) -> None:
    """Translate the channels of signals."""
    name = "signal.enabled.channels"
    asked = [word.lower() for word in ledger.words(name)] or ["source"]
    channels = list(dict.fromkeys(channel for channel in asked if channel in _CHANNELS))
    for channel in asked:
        if channel not in channels:
            ledger.note(name, "is a channel of Java processes: use kafka or file", channel)
    topic, file = ledger.text("signal.kafka.topic").strip(), ledger.text("signal.file").strip()
    if "kafka" in channels and topic:
        ledger.translate("signal.kafka.topic", "signal.kafka_topic", topic)
    if "file" in channels:
        ledger.put("signal.file", file or "file-signals.txt")
        ledger.note("signal.file", "is only read: it may be appended to, Debezium empties it", file)
        ledger.close("signal.file", "signal.file")
    if channels not in ([], ["source"]):
        ledger.put("signal.channels", channels)
        ledger.whole("signal.poll.interval.ms", "signal.poll_interval_ms")
    ledger.close(name, "signal.channels")
    for unused in ("signal.kafka.topic", "signal.file"):
        ledger.skip(unused)
