"""The settings: one file per section, each setting declared once; see `declaration` for how, `tree` for the whole."""

from schemas.settings.declaration import Problems
from schemas.settings.described import Described, bounds_of, describe, file_keys, json_schema, secret_keys
from schemas.settings.format_section import FormatSettings, RegistrySettings
from schemas.settings.kafka_section import KafkaSettings, KafkaTlsSettings, SaslSettings
from schemas.settings.order_section import OrderSettings
from schemas.settings.records_section import (
    CharsMaskSettings,
    HashMaskSettings,
    OutboxSettings,
    RecordSettings,
)
from schemas.settings.route_section import RouteSettings, TransformSettings, UdfSettings
from schemas.settings.schema_change_section import SchemaChangeSettings
from schemas.settings.service_section import ServiceSettings, SignalSettings
from schemas.settings.sink_section import SessionSettings, SinkSettings, SparkSettings
from schemas.settings.snapshot_section import PauseWhen, SnapshotFlags, SnapshotSettings, StartBehaviour
from schemas.settings.source_section import SourceSettings, StartAtSettings, TlsSettings
from schemas.settings.task_section import (
    ApplySettings,
    TaskSettings,
    TaskSource,
    TaskTarget,
    task_from_mapping,
)
from schemas.settings.tree import Settings, from_mapping, parse_text, why_no_merge

__all__ = [
    "ApplySettings",
    "CharsMaskSettings",
    "Described",
    "FormatSettings",
    "HashMaskSettings",
    "KafkaSettings",
    "KafkaTlsSettings",
    "OrderSettings",
    "OutboxSettings",
    "PauseWhen",
    "Problems",
    "RecordSettings",
    "RegistrySettings",
    "RouteSettings",
    "SaslSettings",
    "SchemaChangeSettings",
    "ServiceSettings",
    "SessionSettings",
    "Settings",
    "SignalSettings",
    "SinkSettings",
    "SnapshotFlags",
    "SnapshotSettings",
    "SourceSettings",
    "SparkSettings",
    "StartAtSettings",
    "StartBehaviour",
    "TaskSettings",
    "TaskSource",
    "TaskTarget",
    "TlsSettings",
    "TransformSettings",
    "UdfSettings",
    "bounds_of",
    "describe",
    "file_keys",
    "from_mapping",
    "json_schema",
    "parse_text",
    "secret_keys",
    "task_from_mapping",
    "why_no_merge",
]
