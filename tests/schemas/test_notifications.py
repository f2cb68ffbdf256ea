"""Notifications are Debezium's, and their Avro is what their schema says."""

from __future__ import annotations

import io
import json

import fastavro
import pytest

from schemas.avro import to_avro
from schemas.jsonschema import to_json_schema
from schemas.notifications import (
    INITIAL,
    NOTIFICATION_KEY,
    NOTIFICATION_VALUE,
    ChunkProgress,
    Notification,
    ScanStatus,
    SnapshotNotifier,
    signal_accepted,
    signal_rejected,
)
from tests.support.encoded_notifications import as_avro, as_json

TABLES = ("shop.a", "shop.b")
NOTIFIER = SnapshotNotifier("srv", "e1")
ALL = [
    NOTIFIER.started(1, TABLES),
    NOTIFIER.in_progress(2, TABLES, "shop.a", ChunkProgress(5, 100, ("9", None), ("5", "x"))),
    NOTIFIER.in_progress(2, TABLES, "shop.a", ChunkProgress(0)),
    NOTIFIER.table_scan_completed(3, TABLES, "shop.a", 12, ScanStatus.SUCCEEDED),
    NOTIFIER.paused(4, TABLES),
    NOTIFIER.resumed(5, TABLES),
    NOTIFIER.aborted(6, TABLES),
    NOTIFIER.completed(2**50),
    SnapshotNotifier("srv", "uuid", INITIAL).started(1, TABLES),
    signal_accepted("srv", "s1", "execute-snapshot", 7),
    signal_rejected("srv", "s1", "exe\u00fc", 7, "unknown \N{PILE OF POO}"),
    Notification("", "a", "b", 0),
]


def test_the_schema_blocks_are_those_debezium_wrote() -> None:
    string = {"type": "string", "optional": False}
    assert to_json_schema(NOTIFICATION_VALUE) == {
        "type": "struct",
        "fields": [
            string | {"field": "id"},
            string | {"field": "type"},
            string | {"field": "aggregate_type"},
            {"type": "map", "keys": string, "values": string, "optional": True, "field": "additional_data"},
            {"type": "int64", "optional": False, "field": "timestamp"},
        ],
        "optional": False,
        "name": "io.debezium.connector.common.Notification",
        "version": 1,
    }
    assert to_json_schema(NOTIFICATION_KEY)["name"] == "io.debezium.connector.common.NotificationKey"


@pytest.mark.parametrize("notification", ALL)
def test_avro_and_json_hold_the_same(notification: Notification) -> None:
    value = fastavro.parse_schema(json.loads(to_avro(NOTIFICATION_VALUE)))
    avro_key, avro_value = as_avro(notification)
    read = fastavro.schemaless_reader(io.BytesIO(avro_value[5:]), value, None)
    assert read == json.loads(as_json(notification)[1]) == notification.value()
    key = fastavro.parse_schema(json.loads(to_avro(NOTIFICATION_KEY)))
    assert fastavro.schemaless_reader(io.BytesIO(avro_key[5:]), key, None) == {
        "id": notification.id
    }
    assert json.loads(as_json(notification, schemas=True)[1])["payload"] == notification.value()


def test_progress_names_what_debezium_names_and_adds_ours() -> None:
    assert ALL[1].value() == {
        "id": "e1",
        "type": "IN_PROGRESS",
        "aggregate_type": "Incremental Snapshot",
        "additional_data": {
            "connector_name": "srv",
            "current_collection_in_progress": "shop.a",
            "data_collections": "shop.a,shop.b",
            "rows_done": "5",
            "rows_estimated": "100",
            "percent": "5",
            "maximum_key": "9,<null>",
            "last_processed_key": "5,x",
        },
        "timestamp": 2,
    }


def test_an_initial_snapshot_names_no_collections_at_its_start() -> None:
    assert ALL[8].additional_data == {"connector_name": "srv"}
    assert ALL[8].aggregate_type == "Initial Snapshot"


def test_a_rejected_signal_says_why() -> None:
    rejected = ALL[10]
    assert (rejected.aggregate_type, rejected.type, rejected.id) == ("Signal", "REJECTED", "s1")
    assert rejected.additional_data["signal_type"] == "exe\u00fc"
    assert rejected.additional_data["reason"] == "unknown \N{PILE OF POO}"
