"""The section `format`: how keys and values are written, and the schema registry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from schemas.settings.declaration import checking, problem, setting
from schemas.settings.text_forms import http_url, plain


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """Who we are to the schema registry, and whom we trust to be it."""

    user: str | None = setting(None, help="user of the registry (basic authentication)", form=plain)
    password: str = setting("", help="that user's password; better: `password_file`", secret=True)
    password_file: str | None = setting(None, help="file whose first line is the password", file=True)
    ca: str | None = setting(
        None, help="file with the certificates that may sign the registry's; by default the system's", file=True
    )
    cert: str | None = setting(None, help="file with the client's certificate", file=True)
    key: str | None = setting(None, help="file with the client's private key", file=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSettings:
    """How keys and values are written."""

    type: Literal["avro", "json"] | None = setting(
        None, help="Avro in Confluent wire format, or JSON; by default Avro where a registry is given"
    )
    registry: str | None = setting(None, help="URL of the schema registry (Confluent API); Avro needs it", form=http_url)
    registry_access: RegistrySettings = setting(RegistrySettings(), help="how the registry is reached")
    schemas: bool = setting(default=False, help="JSON: write the schema block into every key and value")
    decimal: Literal["precise", "double", "string"] = setting(
        "precise", help="DECIMAL: exact (Connect's Decimal), the nearest double, or text"
    )
    bigint_unsigned: Literal["precise", "long"] = setting(
        "precise", help="BIGINT UNSIGNED: exact (Connect's Decimal), or int64, negative from 2^63 on"
    )
    binary: Literal["bytes", "base64", "base64-url-safe", "hex"] = setting(
        "bytes", help="BINARY, VARBINARY and BLOB: bytes, or text; BIT stays bytes"
    )
    time: Literal["adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"] = setting(
        "adaptive_time_microseconds",
        help="DATE, TIME and DATETIME as `time.precision.mode`: milliseconds up to three fraction digits and microseconds "
        "beyond, always microseconds, nanoseconds, ISO 8601 text, or Connect's own types (milliseconds). `connect` and "
        "`isostring` have no TIME outside a day, `nanoseconds` no DATETIME before 1677 or after 2262: NULL, as Debezium "
        "has it; in a NOT NULL column the producer stops",
    )


    schema_names: Literal["none", "avro", "avro_unicode"] = setting(
        "none",
        help="names of schemas as `schema.name.adjustment.mode`: as they are, other characters than Avro's as `_`, or as "
        "`_uXXXX`; Avro itself never has others",
    )
    field_names: Literal["none", "avro", "avro_unicode"] = setting(
        "none", help="names of columns as `field.name.adjustment.mode`, in the same ways"
    )


@checking
def check_format(wire: FormatSettings) -> Iterator[str]:
    """Raise `ConfigError` if settings of the section exclude each other."""
    access = wire.registry_access
    if wire.registry is not None and "@" in wire.registry.partition("://")[2].partition("/")[0]:
        yield problem("format.registry", "credentials in the URL would be logged; put them into registry_access")
    if access.password and access.password_file is not None:
        yield problem("format.registry_access.password_file", "password and password_file are both given; keep the file")
    if access.user is None and (access.password or access.password_file is not None):
        yield problem("format.registry_access.user", "is missing, and there is a password")
    if wire.type == "avro" and wire.registry is None:
        yield problem("format.registry", "Avro needs the URL of a schema registry; without one: type: json")
    if wire.type == "avro" and wire.schemas:
        yield problem("format.schemas", "is for type: json; Avro schemas are in the registry")
