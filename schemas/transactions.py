"""Transaction metadata (topic `<prefix>.transaction`): a BEGIN and an END record per transaction of the log.

Names, fields and values are Debezium 3.6's. The blocks in envelopes are `connect.TRANSACTION_BLOCK`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from schemas.connect_types import ConnectField, ConnectSchema, ConnectType

_STRING: Final = ConnectSchema(ConnectType.STRING)
_INT64: Final = ConnectSchema(ConnectType.INT64)
_COLLECTION: Final = ConnectSchema(
    ConnectType.STRUCT,
    optional=True,
    name="event.collection",
    version=1,
    fields=(ConnectField("data_collection", _STRING), ConnectField("event_count", _INT64)),
)

TRANSACTION_KEY: Final = ConnectSchema(
    ConnectType.STRUCT,
    name="io.debezium.connector.common.TransactionMetadataKey",
    version=1,
    fields=(ConnectField("id", _STRING),),
)

TRANSACTION_VALUE: Final = ConnectSchema(
    ConnectType.STRUCT,
    name="io.debezium.connector.common.TransactionMetadataValue",
    version=1,
    fields=(
        ConnectField("status", _STRING),
        ConnectField("id", _STRING),
        ConnectField("event_count", ConnectSchema(ConnectType.INT64, optional=True)),
        ConnectField("data_collections", ConnectSchema(ConnectType.ARRAY, optional=True, items=_COLLECTION)),
        ConnectField("ts_ms", _INT64),
    ),
)


def transaction_key(ident: str) -> dict[str, Any]:
    """Return the key's payload."""
    return {"id": ident}


def begin_value(ident: str, ts_ms: int) -> dict[str, Any]:
    """Return the payload of BEGIN; `ts_ms` is the source's time."""
    return {"status": "BEGIN", "id": ident, "event_count": None, "data_collections": None, "ts_ms": ts_ms}


def end_value(ident: str, ts_ms: int, events: Mapping[str, int]) -> dict[str, Any]:
    """Return the payload of END: how many change records each table got (`database.table`), in order of appearance."""
    return {
        "status": "END",
        "id": ident,
        "event_count": sum(events.values()),
        "data_collections": [
            {"data_collection": table, "event_count": count} for table, count in events.items()
        ],
        "ts_ms": ts_ms,
    }
