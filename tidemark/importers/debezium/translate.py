"""Debezium's properties to Tidemark's settings, one by one: each is translated, reported with what to do, or named as not needed.

The records of the result are those of the connector: a property that is not given counts with Debezium's default if ours is another
one. Secrets are never copied.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from schemas.errors import ConfigError
from schemas.settings import from_mapping
from tidemark.importers.debezium.connector_ledger import ConnectorLedger
from tidemark.importers.debezium.format_properties import translate_format, translate_kafka
from tidemark.importers.debezium.name_lists import read_list, table_settings
from tidemark.importers.debezium.offsets import StartAt
from tidemark.importers.debezium.record_properties import settle_records, translate_records
from tidemark.importers.debezium.snapshot_properties import translate_signals, translate_snapshot
from tidemark.importers.debezium.transform_properties import translate_transforms
from tidemark.importers.debezium.unmapped_properties import close_unmapped
from tidemark.importers.key_ledger import Translation

_SECRET: Final = "/run/secrets/tidemark-source"  # noqa: S105  a path
_CLASSES: Final = ("io.debezium.connector.mysql.MySqlConnector", "io.debezium.connector.mariadb.MariaDbConnector")
_SHORT_CLASSES: Final = ("mysql", "mariadb", "MySqlConnector", "MariaDbConnector")
_TLS: Final = {
    "disable": "disabled", "disabled": "disabled", "preferred": "preferred", "trust": "required", "required": "required",
    "verify_ca": "verify_ca", "verify_full": "verify_identity", "verify_identity": "verify_identity",
}  # fmt: skip
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


def translate(properties: Mapping[str, str], start_at: StartAt | None = None) -> Translation:
    """Return settings for a connector that read the same tables.

    `start_at` is the position that the connector has reached: Tidemark begins there, without a snapshot. `ConfigError` for another
    connector, and for a list of names that cannot be translated: what it hides would be published.
    """
    return close_all(ConnectorLedger(dict(properties)), start_at)


def close_all(ledger: ConnectorLedger, start_at: StartAt | None = None) -> Translation:
    """Close every property of a ledger, and return the settings."""
    _refuse_others(ledger)
    ledger.report_provided()
    ledger.rename_old()
    _source(ledger)
    _tables(ledger)
    translate_kafka(ledger)
    translate_format(ledger)
    translate_records(ledger, translate_transforms(ledger))
    settle_records(ledger)
    translate_snapshot(ledger, reads_tables=start_at is None)
    translate_signals(ledger)
    if start_at is not None:
        _start(ledger, start_at)
    close_unmapped(ledger)
    from_mapping(ledger.out)  # settings that cannot be run are not written
    return ledger.translation()


def _refuse_others(ledger: ConnectorLedger) -> None:
    """Raise `ConfigError` for a connector of another database."""
    name = ledger.text("connector.class").strip()
    if name and name not in (*_CLASSES, *_SHORT_CLASSES):
        raise ConfigError(f"connector.class = {name}: only Debezium's connectors of MySQL and MariaDB can be imported")
    ledger.skip("connector.class")


# ── source ────────────────────


def _source(ledger: ConnectorLedger) -> None:
    prefix, name = ledger.text("topic.prefix").strip(), ledger.text("name").strip()
    ledger.put("name", next((one for one in (prefix, name) if _NAME.fullmatch(one)), "imported"))
    if not prefix:
        ours = ledger.out["name"]
        ledger.note("topic.prefix", f"is missing: topics are called {ours}.<database>.<table>; set `name`")
    elif ledger.out["name"] != prefix:
        ledger.report("topic.prefix", "is no name here: 1 to 100 of A-Z a-z 0-9 . _ -")
    ledger.close("topic.prefix", "name")
    ledger.skip("name")
    for property_name, path in (("database.hostname", "source.host"), ("database.user", "source.user")):
        if text := ledger.text(property_name).strip():
            ledger.translate(property_name, path, text)
    ledger.whole("database.port", "source.port")
    if "database.password" in ledger.open:
        ledger.put("source.password_file", _SECRET)
        ledger.report("database.password", f"secrets are not copied: put it into {_SECRET}, first line, or name another file")
    if "database.server.id" in ledger.open:
        ledger.whole("database.server.id", "source.server_id")
        if (number := ledger.out.get("source", {}).get("server_id")) is not None:
            what = "is kept: stop the connector before Tidemark starts, or choose another one"
            ledger.note("database.server.id", what, str(number))
    _tls(ledger)
    ledger.whole("connect.timeout.ms", "source.connect_timeout_s", scale=1000)
    if ledger.flag("read.only", default=False):
        ledger.put("source.read_only", value=True)
    ledger.close("read.only", "source.read_only")
    _signal_table(ledger)


def _signal_table(ledger: ConnectorLedger) -> None:
    name = "signal.data.collection"
    text = ledger.text(name).strip().replace("`", "")
    if text.count(".") == 1 and "," not in text and all(text.split(".")):
        ledger.translate(name, "source.signal_table", text)
    elif text:
        ledger.report(name, "is not of the form database.table: name one table in source.signal_table")
    ledger.close(name, "source.signal_table")


def _tls(ledger: ConnectorLedger) -> None:
    name = "database.ssl.mode"
    mode = ledger.word(name).replace("-", "_")
    if mode in _TLS:
        ledger.translate(name, "source.tls.mode", _TLS[mode])
    elif mode:
        ledger.report(name, f"is none of {', '.join(_TLS)}: set source.tls.mode")
    ledger.close(name, "source.tls.mode")
    for name in ledger.keys("database.ssl"):
        ledger.report(name, "Java key stores are not read: convert it to PEM, name it in source.tls.ca, cert or key")


def _start(ledger: ConnectorLedger, start_at: StartAt) -> None:
    index = {"gtids": start_at.gtids} if start_at.gtids else {"file": start_at.file, "pos": start_at.pos}
    ledger.put("source.start_at", index)
    ledger.put("snapshot.mode", "never")
    ledger.out["snapshot"].pop("configuration_based", None)
    if start_at.in_transaction:
        shown = start_at.gtids or f"{start_at.file}:{start_at.pos}"
        ledger.note("offset", "is inside a transaction: its rows before that are published once more", shown)
    ledger.note("offset", "snapshot.mode is never: the tables were read before. A sink that is empty needs a snapshot: signal one")


# ── tables ────────────────────


def _tables(ledger: ConnectorLedger) -> None:
    names = [f"{kind}.{which}.list" for kind in ("database", "table") for which in ("include", "exclude")]
    tables, left_out = table_settings(*(read_list(ledger, name) for name in names))
    ledger.put("source.tables", tables)
    ledger.put("source.exclude_tables", left_out)  # also without any: ours leaves out shadow tables, which Debezium captures
    for name in names:
        ledger.close(name, "source.exclude_tables" if "exclude" in name else "source.tables")
    name = "table.ignore.builtin"
    if not ledger.flag(name, default=True):
        ledger.report(name, "tables of the server's own databases are never captured")
    ledger.close(name, "source.tables")
