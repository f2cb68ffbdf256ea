"""Writer schemas: an Avro schema of a registry enters; how its records are read, and to which columns, leaves.

A record is decoded with the schema it was written with, and only as far as the sink needs it: key, `after`, `op`, position.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kafkaio.schema_registry import RegisteredSchema
from schemas.errors import RegistryError
from spark_jobs.decode.spark_types import Field, field_of, without_logical_type

Avro = dict[str, Any]


@dataclass(frozen=True)
class WriterSchema:
    """A schema that records of a topic were written with: its id, its columns, and how to read it.

    `has_time` says whether its records have `source.ts_ms`. `reader_of_both` reads `before` as well, of an envelope.
    """

    id: int
    text: str
    reader: str
    fields: tuple[Field, ...]
    has_time: bool = False
    reader_of_both: str = ""

    @cached_property
    def by_name(self) -> dict[str, Field]:
        """The fields by lower-case name: MySQL's column names do not differ in case only."""
        return {item.name.lower(): item for item in self.fields}

    @property
    def frame(self) -> bytes:
        """The five bytes every record of this schema begins with."""
        return b"\0" + self.id.to_bytes(4, "big")


def value_writer(schema: RegisteredSchema) -> WriterSchema:
    """Return the writer of an envelope, which reads `after`, `op`, `source.sequence` and `source.ts_ms` and skips the rest."""
    document = schema.document
    named = named_records(document)
    members = {member["name"]: member for member in document["fields"]}
    try:
        row = record_in(members["after"]["type"], named)
        source = record_in(members["source"]["type"], named)
        sequence = next(member for member in source["fields"] if member["name"] == "sequence")
        times = [member for member in source["fields"] if member["name"] == "ts_ms" and member["type"] == "long"]
        parts = [
            {"name": "after", "type": ["null", _readable(row)], "default": None},
            {"name": "source", "type": {**source, "fields": [sequence, *times]}},
            members["op"],
        ]
    except (KeyError, StopIteration) as error:
        message = f"schema id {schema.id} is no envelope: {error} is missing"
        raise RegistryError(message) from error
    reader = json.dumps({**document, "fields": parts})
    both = [{"name": "before", "type": ["null", _readable(row)], "default": None}, {**parts[0], "type": ["null", _name_of(row)]}]
    reader_of_both = json.dumps({**document, "fields": [*both, *parts[1:]]})
    fields = tuple(field_of(_defined(member, named)) for member in row["fields"])
    return WriterSchema(schema.id, schema.text, reader, fields, bool(times), reader_of_both)


def key_writer(schema: RegisteredSchema) -> WriterSchema:
    """Return the writer of a key record."""
    document = schema.document
    fields = tuple(field_of(member) for member in document["fields"])
    return WriterSchema(schema.id, schema.text, json.dumps(_readable(document)), fields)


def named_records(node: Any) -> dict[str, Avro]:
    """Return every record defined anywhere in a schema, by its short and its full name."""
    found: dict[str, Avro] = {}

    def collect(part: Any, namespace: str) -> None:
        if isinstance(part, list):
            for branch in part:
                collect(branch, namespace)
        elif isinstance(part, dict) and part.get("type") == "record":
            own = part.get("namespace", namespace)
            found[part["name"]] = found[f"{own}.{part['name']}"] = part
            for member in part["fields"]:
                collect(member["type"], own)

    collect(node, "")
    return found


def record_in(node: Any, named: Mapping[str, Avro]) -> Avro:
    """Return the record of a field's type: defined here, or by name, or the branch of a union that is not null."""
    if isinstance(node, list):
        return record_in(next(branch for branch in node if branch != "null"), named)
    return named[node] if isinstance(node, str) else dict(node)


def _name_of(record: Avro) -> str:
    """Return the name by which a record that is defined already is used again."""
    return f"{record['namespace']}.{record['name']}" if "namespace" in record else str(record["name"])


def _defined(member: Avro, named: Mapping[str, Avro]) -> Avro:
    """Return the field with its record in full: the second use of a record is its name."""
    node = member["type"]
    branches = node if isinstance(node, list) else [node]
    found = [named.get(branch, branch) if isinstance(branch, str) else branch for branch in branches]
    return {**member, "type": found if isinstance(node, list) else found[0]}


def _readable(record: Avro) -> Avro:
    """Return the record with plain bytes and numbers for what Spark would misread."""
    return {
        **record,
        "fields": [{**member, "type": _plain_bytes(member["type"])} for member in record["fields"]],
    }


def _plain_bytes(node: Any) -> Any:
    if isinstance(node, list):
        return [_plain_bytes(branch) for branch in node]
    return without_logical_type(node)
