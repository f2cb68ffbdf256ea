"""From a mapping, or from a text, to declared settings; whatever does not fit is a `ConfigError` with the path of its key."""

from __future__ import annotations

import difflib
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, is_dataclass
from datetime import datetime
from typing import Any, Literal, get_args, get_origin

from schemas.errors import ConfigError
from schemas.settings.declaration import Problems, declared, hints_of, refuse


def build(kind: type, value: object, path: str) -> object:
    """Return the section of a mapping, checked key by key; `ConfigError` with everything that is wrong."""
    problems = Problems()
    built = build_members(kind, value, path, problems)
    problems.raise_all()
    return kind(**built)


def build_members(kind: type, value: object, path: str, problems: Problems) -> dict[str, Any]:
    """Return the values of those keys of a section that are right; what is wrong with others is noted."""
    if not isinstance(value, Mapping):
        refuse(path or "configuration", f"expected a mapping of keys, got {_kind(value)}")
    known = {item.name: item for item in declared(kind)}
    built: dict[str, Any] = {}
    for key, given in value.items():
        with problems.noted():
            if key not in known:
                _refuse_key(str(key), given, known, path)
            built[key] = _member(kind, known[key], given, join(path, key))
            _check_bounds(known[key], built[key], join(path, key))
    for name, item in known.items():
        with problems.noted():
            if name not in value and item.default is MISSING and item.default_factory is MISSING:
                refuse(join(path, name), f"is missing: {item.metadata['help']}")
    return built


def check_members(built: Mapping[str, Any], checks: Mapping[str, Callable[[Any], None]], problems: Problems) -> None:
    """Note all problems that the checks of sections report; `built` has the sections that were read without an error."""
    for section, check in checks.items():
        if section in built:
            with problems.noted():
                check(built[section])


def _refuse_key(key: str, given: object, known: Mapping[str, object], path: str) -> typing.NoReturn:
    name = _key_alone(key)
    if given is None and name != key:
        refuse(join(path, name), "its colon needs a blank behind it, else what follows is a part of the key")
    _unknown(key, known, path)


def _member(kind: type, item: Field[Any], value: object, path: str) -> object:
    """Return the value of one key; an error about a secret does not show it."""
    reason = item.metadata["unavailable"].get(str(value).lower())
    if reason is not None:
        choices = get_args(hints_of(kind)[item.name])
        refuse(path, f"{value!r} is unavailable: {reason}. There {'are' if choices[1:] else 'is'} {', '.join(choices)}")
    try:
        return _convert(hints_of(kind)[item.name], value, path)
    except ConfigError as error:
        if not item.metadata["secret"]:
            raise
        shown = _typed(value) if isinstance(value, (int, float)) else "something else"
        raise ConfigError(*(f"{one.partition(', got ')[0]}, got {shown}" for one in error.problems)) from None


def join(path: str, key: str) -> str:
    """Return the path of a key in a section."""
    return f"{path}.{key}" if path else key


def _unknown(key: str, known: Mapping[str, object], path: str) -> typing.NoReturn:
    where = f" in {path}" if path else ""
    raise ConfigError(f"{join(path, key)}: unknown key {key!r}{where}; {_nearest(key, known)}")


def _nearest(key: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(key.lower(), list(known), n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"valid keys: {', '.join(known)}"


def _key_alone(key: str) -> str:
    """Return a key without the value that follows it where a blank is missing, since that may be a password."""
    return re.split(r"[:=\s]", key, maxsplit=1)[0]


def _kind(value: object) -> str:
    """Return the type of a value, without the value: that of a section may have secrets."""
    return "nothing" if value is None else type(value).__name__


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    return f"{type(value).__name__} {value!r}"


def alternatives(kind: object) -> tuple[object, ...]:
    """Return the members of an optional type without None; the type itself otherwise."""
    if get_origin(kind) in (typing.Union, types.UnionType):
        return tuple(part for part in get_args(kind) if part is not type(None))
    return (kind,)


def is_optional(kind: object) -> bool:
    """Return whether a setting may be null."""
    return get_origin(kind) in (typing.Union, types.UnionType) and type(None) in get_args(kind)


def _convert(kind: object, value: object, path: str) -> object:
    if value is None and is_optional(kind):
        return None
    (inner,) = alternatives(kind)
    origin = get_origin(inner)
    if origin is Literal:
        return _choice(inner, value, path)
    if origin is tuple:
        return _items(get_args(inner)[0], value, path)
    if origin is Mapping:
        return _texts(value, path)
    if isinstance(inner, type) and is_dataclass(inner):
        return build(inner, value, path)
    return _scalar(inner, value, path)


def _scalar(kind: object, value: object, path: str) -> object:
    if kind is str and isinstance(value, datetime):  # YAML reads a time without quotes as one
        return value.isoformat()
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    fits = isinstance(value, bool) if kind is bool else type(value) is kind
    if not fits:
        names = {str: "text", int: "an integer", bool: "true or false"}
        quotes = "; put it in quotes" if kind is str and isinstance(value, (int, float)) else ""
        refuse(path, f"expected {names.get(typing.cast('type', kind), str(kind))}, got {_shown(value)}{quotes}")
    return value


def _typed(value: float) -> str:
    """Return the type of a value that stays secret, and what makes a text of it."""
    kind = "true or false" if isinstance(value, bool) else "an integer" if isinstance(value, int) else "a number"
    return f"{kind} without quotes; put it in quotes"


def _choice(kind: object, value: object, path: str) -> object:
    choices = get_args(kind)
    if value not in choices:
        hint = difflib.get_close_matches(str(value).lower(), choices, n=1, cutoff=0.5)
        nearest = f"; did you mean {hint[0]!r}?" if hint else ""
        refuse(path, f"expected one of {', '.join(choices)}, got {_shown(value)}{nearest}")
    return value


def _items(kind: object, value: object, path: str) -> tuple[object, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        refuse(path, f"expected a list, got {_kind(value) if is_dataclass(kind) else _shown(value)}")
    problems, items = Problems(), []
    for index, item in enumerate(value):
        with problems.noted():
            items.append(_convert(kind, item, f"{path}.{index}"))
    problems.raise_all()
    return tuple(items)


def _texts(value: object, path: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        refuse(path, f"expected a mapping, got {_shown(value)}")
    texts: dict[str, str] = {}
    for key, item in value.items():
        if isinstance(item, (Mapping, list, tuple)) or item is None:
            refuse(f"{path}.{_key_alone(str(key))}", f"expected text, got {_shown(item)}")
        texts[str(key)] = str(item).lower() if isinstance(item, bool) else str(item)
    return texts


def _check_bounds(item: Field[Any], value: object, path: str) -> None:
    minimum, maximum, form = item.metadata["minimum"], item.metadata["maximum"], item.metadata["form"]
    if isinstance(value, str) and form is not None and (reason := form(value)):
        refuse(path, reason)
    if isinstance(value, str) and "\0" in value:
        refuse(path, "has a character of code 0")
    if not isinstance(value, int) or isinstance(value, bool):
        return
    if minimum is not None and value < minimum:
        refuse(path, f"{value} is below the smallest value, {minimum}")
    if maximum is not None and value > maximum:
        refuse(path, f"{value} is above the largest value, {maximum}")


def member_type(kind: object, part: str, path: str, parent: tuple[str, ...]) -> object:
    """Return the type of a key in a section; `ConfigError` if there is no such key."""
    (inner,) = alternatives(kind)
    if get_origin(inner) is tuple and part.isdigit():
        return get_args(inner)[0]
    if not (isinstance(inner, type) and is_dataclass(inner)):
        refuse(path, f"{'.'.join(parent)} has no keys of its own")
    hints = hints_of(inner)
    if part not in hints:
        _unknown(part, hints, ".".join(parent))
    return hints[part]


def from_text(kind: object, text: str, path: str) -> object:
    """Return the value of a text, for `build` to check."""
    if text == "" and is_optional(kind):
        return None
    (inner,) = alternatives(kind)
    origin = get_origin(inner)
    if inner is str or origin is Literal:
        return text
    if origin is tuple and get_args(inner)[0] is str and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return json.loads(text)
    except ValueError:
        shown = repr(text) if inner in (int, bool) else "the text"  # mappings may have passwords
        raise ConfigError(f"{path}: cannot read {shown} as {type_name(inner)}") from None


def type_name(kind: object) -> str:
    """Return the name of a type in messages and in the reference."""
    origin = get_origin(kind)
    if origin is Literal:
        return " \\| ".join(f"`{choice}`" for choice in get_args(kind))
    if origin is tuple:
        return "list"
    if origin is Mapping:
        return "mapping"
    return {str: "text", int: "integer", bool: "true or false"}.get(typing.cast("type", kind), "mapping")
