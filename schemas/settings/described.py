"""What is generated from the declarations: the configuration reference, the lists of secrets and of files, and JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, is_dataclass
from typing import Any, Literal, get_args, get_origin

from schemas.settings.declaration import declared, hints_of
from schemas.settings.parsing import alternatives, is_optional, join, type_name
from schemas.settings.tree import Settings


@dataclass(frozen=True, slots=True)
class Described:
    """One key of the configuration reference."""

    path: str
    type: str
    default: str
    help: str
    secret: bool = False
    file: bool = False
    bounds: tuple[int | None, int | None] = (None, None)


def secret_keys(tree: type = Settings) -> frozenset[str]:
    """Return the paths of all keys with secrets, as the configuration reference has them."""
    return frozenset(item.path for item in describe(tree) if item.secret)


def file_keys(tree: type = Settings) -> frozenset[str]:
    """Return the paths of all keys that name a file: a secret's, a certificate's, a key's."""
    return frozenset(item.path for item in describe(tree) if item.file)


def bounds_of(path: str) -> tuple[int, int]:
    """Return the least and the largest value of a key that has both."""
    lowest, highest = next(item.bounds for item in describe() if item.path == path)
    assert lowest is not None
    assert highest is not None
    return lowest, highest


def describe(tree: type = Settings) -> tuple[Described, ...]:
    """Return every key, in the order of the tree: the configuration reference is generated from them."""
    return tuple(_describe(tree, ""))


def _describe(kind: type, path: str) -> Iterator[Described]:
    for item in declared(kind):
        hint = hints_of(kind)[item.name]
        (inner,) = alternatives(hint)
        here = join(path, item.name)
        nested = get_args(inner)[0] if get_origin(inner) is tuple else inner
        if isinstance(nested, type) and is_dataclass(nested):
            yield from _describe(nested, here if nested is inner else f"{here}[]")
            continue
        meta = item.metadata
        yield Described(
            here, type_name(inner), _default_text(item), meta["help"], secret=meta["secret"], file=meta["file"],
            bounds=(meta["minimum"], meta["maximum"]),
        )  # fmt: skip


def _default_text(item: Field[Any]) -> str:
    if item.default_factory is not MISSING:
        return "`{}`"
    if item.default is MISSING:
        return "required"
    if item.default in (None, "", ()):
        return "none"
    return f"`{json.dumps(item.default)}`" if not isinstance(item.default, str) else f"`{item.default}`"


def json_schema(tree: type = Settings) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the YAML file of a tree: what it refuses, `from_mapping` refuses too.

    Checks that go beyond one value are not in it.
    """
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_object_schema(tree)}


def _object_schema(kind: type) -> dict[str, Any]:
    items = declared(kind)
    required = [item.name for item in items if item.default is MISSING and item.default_factory is MISSING]
    return {
        "type": "object",
        "properties": {item.name: _property(kind, item) for item in items},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _property(kind: type, item: Field[Any]) -> dict[str, Any]:
    hint, meta = hints_of(kind)[item.name], item.metadata
    (inner,) = alternatives(hint)
    schema = {"description": meta["help"], **_value_schema(inner)}
    bounds = {"minimum": meta["minimum"], "maximum": meta["maximum"]}
    schema |= {name: bound for name, bound in bounds.items() if bound is not None}
    if meta["secret"]:
        schema["writeOnly"] = True
    default = item.default_factory() if item.default_factory is not MISSING else item.default
    if default is not MISSING and default is not None and not is_dataclass(default):
        schema["default"] = list(default) if isinstance(default, tuple) else default
    if is_optional(hint):
        schema["type"] = [schema["type"], "null"]
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
    return schema


def _value_schema(kind: Any) -> dict[str, Any]:
    origin = get_origin(kind)
    if origin is Literal:
        return {"type": "string", "enum": list(get_args(kind))}
    if origin is tuple:
        return {"type": "array", "items": _value_schema(get_args(kind)[0])}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
    if is_dataclass(kind):
        return _object_schema(kind)  # type: ignore[arg-type]
    return {"type": {str: "string", int: "integer", float: "number", bool: "boolean"}[kind]}
