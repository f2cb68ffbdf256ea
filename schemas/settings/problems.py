"""Everything that is wrong with a mapping of settings, where `from_mapping` ends at the first error.

Each key is checked by itself. The checks that go beyond one value follow for the sections whose keys are all right; of each such
check the first error is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, is_dataclass
from typing import Any, Final, get_args, get_origin

from schemas.errors import ConfigError
from schemas.settings.declaration import declared, hints_of
from schemas.settings.parsing import alternatives, build, check_bounds, join, member, require_default
from schemas.settings.tree import CHECKS, Settings, completed

_SUBSTITUTES: Final[Mapping[str, object]] = {"name": "name", "source": {"tables": ["database.table"]}}
"""What required keys have while another section is checked."""


def problems_of(mapping: Mapping[str, object]) -> tuple[str, ...]:
    """Return the errors in the order of the keys, each as `from_mapping` would say it; none for settings that it accepts."""
    found: list[str] = []
    broken = set[str]()
    for key, message in _of_sections(mapping):
        found.append(message)
        broken.add(key)
    rest = {key: value for key, value in mapping.items() if str(key) not in broken}
    rest |= {key: value for key, value in _SUBSTITUTES.items() if key in broken}
    try:
        settings = build(Settings, rest, "")
        assert isinstance(settings, Settings)
        settings = completed(settings)
    except ConfigError as error:
        return (*found, str(error))
    for sections, check in CHECKS:
        if broken.isdisjoint(sections):
            try:
                check(settings)
            except ConfigError as error:
                found.append(str(error))
    return tuple(found)


def _of_sections(mapping: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield each error of one key, with the top-level key that it is below."""
    known = {item.name: item for item in declared(Settings)}
    for key, value in mapping.items():
        for message in _of_key(Settings, known, key, value, ""):
            yield str(key), message
    for name, item in known.items():
        if name not in mapping:
            for message in _missing(item, name):
                yield name, message


def _of_section(kind: type, value: object, path: str) -> Iterator[str]:
    """Yield the errors in one section."""
    if not isinstance(value, Mapping):
        yield from _error(build, kind, value, path)
        return
    known = {item.name: item for item in declared(kind)}
    for key, given in value.items():
        yield from _of_key(kind, known, key, given, path)
    for name, item in known.items():
        if name not in value:
            yield from _missing(item, join(path, name))


def _of_key(kind: type, known: Mapping[str, Field[Any]], key: object, value: object, path: str) -> Iterator[str]:
    if key not in known:
        yield from _error(build, kind, {key: value}, path)  # it refuses an unknown key before all else
        return
    name = str(key)
    here = join(path, name)
    (inner,) = alternatives(hints_of(kind)[name])
    if isinstance(inner, type) and is_dataclass(inner) and value is not None:
        yield from _of_section(inner, value, here)
    elif get_origin(inner) is tuple and is_dataclass(part := get_args(inner)[0]) and isinstance(value, (list, tuple)):
        assert isinstance(part, type)
        for index, one in enumerate(value):
            yield from _of_section(part, one, f"{here}.{index}")
    else:
        yield from _error(_member_in_bounds, kind, known[name], value, here)


def _member_in_bounds(kind: type, item: Field[Any], value: object, path: str) -> None:
    check_bounds(item, member(kind, item, value, path), path)


def _missing(item: Field[Any], path: str) -> Iterator[str]:
    return _error(require_default, item, path)


def _error(check: Any, *arguments: object) -> Iterator[str]:
    """Yield the error that a check raises; nothing where it raises none."""
    try:
        check(*arguments)
    except ConfigError as error:
        yield str(error)
