"""The one codec between dataclasses and JSON.

`encode` turns a dataclass into what `json.dumps` writes, `decode` does the opposite; both follow the annotations of the fields and
are compiled once per class:

    int, float, str, bool, None, Any     as they are
    X | None                             null, or X
    an Enum, a Literal                   its value
    a class with `text` and `parse`      its text (Position, SourceId, SourceTable ...)
    tuple[X, ...], tuple[X, Y]           a list
    frozenset[X]                         a sorted list
    Mapping[str, X], Mapping[int, X]     an object; numbers become text, in ascending order
    a dataclass                          an object with the fields in their order, or what its `JSON: ClassVar[Form]` says

A field without a default is required: a missing one is a `KeyError`. One with a default may be missing, as in documents of versions
that did not have it yet. Fields that are not known are ignored. A value of another type is a `TypeError` or a `ValueError`.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
_OPTIONS: Final = "json"
INLINE: Final[Mapping[str, Any]] = {_OPTIONS: {"inline": True}}
"""Metadata of a field whose keys are among those of the object around it."""
ABSENT: Final[Mapping[str, Any]] = {_OPTIONS: {"absent": True}}
"""Metadata of a field without a default that is in no document."""
_NO_OPTIONS: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How the objects of a class look in JSON, where it is not the plain form.

    `head` gives the keys that come first and are no fields. `as_list` writes a list of the values. `omits_defaults` leaves out what
    has its default. `refuses_unknown` raises `ValueError` for a field that is not known, where ignoring it would lose something.
    `of_older` returns the object of today for one that an older version may have written.
    """

    head: Callable[[Any], Mapping[str, Any]] | None = None
    as_list: bool = False
    omits_defaults: bool = False
    refuses_unknown: bool = False
    of_older: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None


def json_field(
    default: Any = MISSING,
    *,
    factory: Any = MISSING,
    name: str = "",
    required: bool = False,
    listed: bool = False,
    omits_default: bool = False,
    absent: bool = False,
    empty_as_null: bool = False,
    compare: bool = True,
) -> Any:
    """Return a dataclass field with a form of its own.

    `name` is that in JSON. `required`: must be there although the field has a default. `listed`: the dataclasses that a mapping has
    are lists there. `omits_default`: is left out where it has its default. `absent`: is in no document. `empty_as_null`: an empty
    text is null.
    """
    options = {
        "name": name,
        "required": required,
        "listed": listed,
        "omits_default": omits_default,
        "absent": absent,
        "empty_as_null": empty_as_null,
    }
    if factory is not MISSING:
        return field(default_factory=factory, metadata={_OPTIONS: options}, compare=compare)
    if default is MISSING:
        return field(metadata={_OPTIONS: options}, compare=compare)
    return field(default=default, metadata={_OPTIONS: options}, compare=compare)


def encode(value: Any) -> Any:
    """Return the JSON form of a dataclass, and None for None."""
    kind: Any = type(value)
    return None if value is None else _codec(kind).encode(value)


def decode(kind: type[T], value: object) -> T:
    """Return the dataclass of a JSON form; `KeyError`, `TypeError` or `ValueError` if it is none."""
    annotation: Any = kind
    decoded: T = _codec(annotation).decode(value)
    return decoded


class _Codec(NamedTuple):
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


class _Member(NamedTuple):
    field: str
    name: str  # in JSON
    codec: _Codec
    required: bool
    inline: bool
    default: Callable[[], Any] | None  # of a field that is left out where it has its default


@cache
def _codec(kind: Any) -> _Codec:
    codec = _generic(kind) if get_origin(kind) is not None else _plain(kind)
    if codec is None:
        message = f"{kind!r} has no JSON form"
        raise TypeError(message)
    return codec


def _generic(kind: Any) -> _Codec | None:
    """Return the codec of an annotation with parameters."""
    origin = get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _optional(kind)
    if origin is Literal:
        return _literal(get_args(kind))
    if origin is tuple:
        return _tuple(get_args(kind))
    if origin is frozenset:
        return _set(_codec(get_args(kind)[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        key, item = get_args(kind)
        return _mapping(key, _codec(item))
    return None


def _plain(kind: Any) -> _Codec | None:
    """Return the codec of a class."""
    if kind in (Any, object):
        return _Codec(_same, _same)
    if kind in _SCALARS:
        return _Codec(_same, _SCALARS[kind])
    if issubclass(kind, Enum):
        return _Codec(lambda value: value.value, kind)
    if hasattr(kind, "text") and hasattr(kind, "parse"):
        return _Codec(lambda value: value.text, lambda value: kind.parse(_text(value)))
    return _object(kind) if is_dataclass(kind) else None


def _same(value: Any) -> Any:
    return value


def _expected(what: str, value: object) -> typing.NoReturn:
    message = f"{what} expected, got {value!r}"
    raise TypeError(message)


def _text(value: object) -> str:
    return value if isinstance(value, str) else _expected("text", value)


def _integer(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else _expected("an integer", value)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else _expected("a number", value)


def _boolean(value: object) -> bool:
    return value if isinstance(value, bool) else _expected("true or false", value)


_SCALARS: Final[Mapping[Any, Callable[[object], Any]]] = {str: _text, int: _integer, float: _number, bool: _boolean}


_NULLABLE_TEXT: Final = _Codec(lambda value: value or None, lambda value: "" if value is None else _text(value))


def _optional(kind: Any) -> _Codec:
    (inner,) = (part for part in get_args(kind) if part is not type(None))
    codec = _codec(inner)
    return _Codec(
        lambda value: None if value is None else codec.encode(value),
        lambda value: None if value is None else codec.decode(value),
    )


def _literal(choices: tuple[Any, ...]) -> _Codec:
    def read(value: Any) -> Any:
        if value not in choices:
            message = f"one of {', '.join(map(repr, choices))} expected, got {value!r}"
            raise ValueError(message)
        return value

    return _Codec(_same, read)


def _items(value: object) -> typing.Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else _expected("a list", value)


def _tuple(kinds: tuple[Any, ...]) -> _Codec:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        item = _codec(kinds[0])
        return _Codec(
            lambda value: [item.encode(one) for one in value],
            lambda value: tuple(item.decode(one) for one in _items(value)),
        )
    codecs = tuple(_codec(kind) for kind in kinds)
    return _Codec(
        lambda value: [codec.encode(one) for codec, one in zip(codecs, value, strict=True)],
        lambda value: tuple(codec.decode(one) for codec, one in zip(codecs, _items(value), strict=True)),
    )


def _set(item: _Codec) -> _Codec:
    return _Codec(
        lambda value: sorted(item.encode(one) for one in value),
        lambda value: frozenset(item.decode(one) for one in _items(value)),
    )


def _members(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else _expected("an object", value)


def _mapping(key: Any, item: _Codec) -> _Codec:
    if key is int:
        return _Codec(
            lambda value: {str(number): item.encode(value[number]) for number in sorted(value)},
            lambda value: {int(number): item.decode(one) for number, one in _members(value).items()},
        )
    return _Codec(
        lambda value: {name: item.encode(one) for name, one in value.items()},
        lambda value: {_text(name): item.decode(one) for name, one in _members(value).items()},
    )


def _object(kind: Any) -> _Codec:
    form: Form = getattr(kind, "JSON", None) or Form()
    members = _fields(kind, form)
    return _list(kind) if form.as_list else _Codec(_object_writer(members, form), _object_reader(kind, members, form))


def _fields(kind: Any, form: Form) -> tuple[_Member, ...]:
    hints = get_type_hints(kind)
    found = ((item, item.metadata.get(_OPTIONS, _NO_OPTIONS)) for item in fields(kind))
    return tuple(_member(item, hints[item.name], options, form) for item, options in found if not options.get("absent"))


def _member(item: Field[Any], hint: Any, options: Mapping[str, Any], form: Form) -> _Member:
    has_default = item.default is not MISSING or item.default_factory is not MISSING
    default = item.default_factory if item.default_factory is not MISSING else lambda: item.default
    omits = has_default and (form.omits_defaults or bool(options.get("omits_default")))
    listed = options.get("listed")
    codec = _mapping(get_args(hint)[0], _list(get_args(hint)[1])) if listed else _codec(hint)
    return _Member(
        item.name,
        options.get("name") or item.name,
        _NULLABLE_TEXT if options.get("empty_as_null") else codec,
        required=not has_default or bool(options.get("required")),
        inline=bool(options.get("inline")),
        default=default if omits else None,
    )


def _list(kind: Any) -> _Codec:
    """Return the codec of a dataclass as a list of its values."""
    members = _fields(kind, Form())
    return _Codec(
        lambda value: [member.codec.encode(getattr(value, member.field)) for member in members],
        lambda value: kind(
            **{member.field: member.codec.decode(one) for member, one in zip(members, _items(value), strict=True)}
        ),
    )


def _object_writer(members: tuple[_Member, ...], form: Form) -> Callable[[Any], dict[str, Any]]:
    head = form.head

    def write(value: Any) -> dict[str, Any]:
        document = {} if head is None else dict(head(value))
        for attribute, name, codec, _, inline, default in members:
            one = getattr(value, attribute)
            if default is not None and one == default():
                continue
            if inline:
                document.update(codec.encode(one))
            else:
                document[name] = codec.encode(one)
        return document

    return write


def _object_reader(kind: Any, members: tuple[_Member, ...], form: Form) -> Callable[[Any], Any]:
    known = frozenset(member.name for member in members)

    def read(value: Any) -> Any:
        document = _members(value) if form.of_older is None else form.of_older(_members(value))
        found = {}
        for attribute, name, codec, required, inline, _ in members:
            if inline:
                found[attribute] = codec.decode(document)
            elif name in document:
                found[attribute] = codec.decode(document[name])
            elif required:
                raise KeyError(name)
        if form.refuses_unknown and not known.issuperset(document):
            message = f"unknown fields: {', '.join(sorted(document.keys() - known))}"
            raise ValueError(message)
        return kind(**found)

    return read
