"""The JSON Schema of the configuration file says what the settings accept, from the same declarations."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.errors import ConfigError
from schemas.settings import describe, from_mapping, json_schema

MINIMAL: dict[str, Any] = {"name": "shop", "source": {"tables": [r"shop\\..*"]}}
ROOT = Path(__file__).parents[2]
TYPES = {
    "object": Mapping, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None),
}  # fmt: skip


def fits(schema: Mapping[str, Any], value: object) -> bool:
    """As a validator judges, for the keywords that are used."""
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if not any(isinstance(value, TYPES[kind]) and (kind == "boolean") == isinstance(value, bool) for kind in kinds):
        return False
    if value not in schema.get("enum", [value]):
        return False
    if isinstance(value, Mapping):
        known, others = schema.get("properties", {}), schema["additionalProperties"]
        parts = all(fits(known[key], one) if key in known else others and fits(others, one) for key, one in value.items())
        return parts and all(key in value for key in schema.get("required", ()))
    if isinstance(value, list):
        return all(fits(schema["items"], one) for one in value)
    if isinstance(value, int):
        return schema.get("minimum", value) <= value <= schema.get("maximum", value)
    return True


def accepted(mapping: Mapping[str, object]) -> bool:
    try:
        from_mapping(mapping)
    except ConfigError:
        return False
    return True


def at(path: str) -> dict[str, Any]:
    schema = json_schema()
    for part in path.split("."):
        schema = schema["properties"][part.removesuffix("[]")]
        schema = schema["items"] if part.endswith("[]") else schema
    return schema


@pytest.mark.parametrize("one", describe(), ids=lambda one: one.path)
def test_every_setting_is_in_the_schema_with_its_help_and_default(one: Any) -> None:
    schema = at(one.path)
    assert schema["description"] == one.help
    assert schema.get("writeOnly", False) == one.secret
    if one.default not in {"required", "none", "`{}`"} and not isinstance(schema["default"], (list, dict)):
        text = schema["default"] if isinstance(schema["default"], str) else json.dumps(schema["default"])
        assert one.default == f"`{text}`"


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"source": {"tables": "shop"}},
        {"source": {}},
        {"source": {"tables": ["a"], "port": 0}},
        {"source": {"tables": ["a"], "port": 65535}},
        {"source": {"tables": ["a"], "port": "3306"}},
        {"source": {"tables": ["a"], "read_only": 1}},
        {"source": {"tables": ["a"], "signal_table": None}},
        {"source": {"tables": ["a"], "tls": {"mode": "always"}}},
        {"source": {"tables": ["a"], "tabels": []}},
        {"kafka": {"options": {"a": 1, "b": True}}},
        {"kafka": {"options": {"a": []}}},
        {"format": {"type": None}},
        {"sinks": [{"path": "/lake"}]},
        {"sinks": [{"path": "/lake", "type": "paimon"}]},
        {"records": {"column_truncate_to_chars": [{"chars": -1, "columns": ["a"]}]}},
        {"name": 5},
        {"nmae": "shop"},
    ],
    ids=str,
)
def test_the_schema_accepts_what_the_settings_accept(change: dict[str, object]) -> None:
    mapping = MINIMAL | change
    assert fits(json_schema(), mapping) == accepted(mapping)


def test_the_readmes_example_fits_the_schema_and_the_schema_is_json() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    schema = json.loads(json.dumps(json_schema()))
    assert fits(schema, yaml.safe_load(example))
    assert schema["required"] == ["name", "source"]
    assert not fits(schema, {})
