"""Heartbeats (topic `__debezium-heartbeat.<prefix>`): the log is read, also where nothing captured changes.

Names, fields and values are Debezium 3.6's.
"""

from __future__ import annotations

from typing import Any, Final

from schemas.connect_types import ConnectField, ConnectSchema, ConnectType

HEARTBEAT_KEY: Final = ConnectSchema(
    ConnectType.STRUCT,
    name="io.debezium.connector.common.ServerNameKey",
    version=1,
    fields=(ConnectField("serverName", ConnectSchema(ConnectType.STRING)),),
)

HEARTBEAT_VALUE: Final = ConnectSchema(
    ConnectType.STRUCT,
    name="io.debezium.connector.common.Heartbeat",
    version=1,
    fields=(ConnectField("ts_ms", ConnectSchema(ConnectType.INT64)),),
)


def heartbeat_key(prefix: str) -> dict[str, Any]:
    """Return the key's payload."""
    return {"serverName": prefix}


def heartbeat_value(ts_ms: int) -> dict[str, Any]:
    """Return the value's payload; `ts_ms` is our clock."""
    return {"ts_ms": ts_ms}
