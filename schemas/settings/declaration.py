"""The declaration of a setting: one dataclass field with its type, default, help and bounds.

From this one declaration come validation (`parsing`), the configuration reference and JSON Schema (`described`). It is a plain
dataclass and not a pydantic model: `schemas` needs no library, and messages name the path, the value and the nearest key as users
know them. Passwords never appear in a `repr`.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, field, fields
from functools import cache, wraps
from typing import Any, ParamSpec, get_type_hints

from schemas.errors import ConfigError
from schemas.settings.text_forms import path as path_form

_Arguments = ParamSpec("_Arguments")


def setting(
    default: Any = MISSING,
    *,
    help: str,  # noqa: A002 - reads as what it is at every use below
    minimum: int | None = None,
    maximum: int | None = None,
    secret: bool = False,
    file: bool = False,
    form: Callable[[str], str] | None = None,
    unavailable: Mapping[str, str] | None = None,
    types: Sequence[str] = (),
) -> Any:
    """Return a dataclass field with the text of the configuration reference and its bounds.

    A `secret` is in no `repr` and no message. `file` names a file: a relative one is beside the YAML file. `unavailable` are values
    that users may expect, each with the reason why it is none. `form` returns what is wrong with a text, "" if nothing is
    (`text_forms`). `types` are the types of sections that have the setting, if others do not.
    """
    metadata = {
        "help": help, "minimum": minimum, "maximum": maximum, "secret": secret, "file": file,
        "form": form or (path_form if file else None), "unavailable": unavailable or {}, "types": tuple(types),
    }  # fmt: skip
    if isinstance(default, (dict, list)):
        return field(default_factory=default.copy, metadata=metadata, repr=not secret)
    if default is MISSING:
        return field(metadata=metadata, repr=not secret)
    return field(default=default, metadata=metadata, repr=not secret)


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """Return the types of a section's settings, by name."""
    return get_type_hints(kind)


def declared(kind: type) -> tuple[Field[Any], ...]:
    """Return the settings of a section, in their order."""
    return fields(kind)


def refuse(path: str, reason: str) -> typing.NoReturn:
    """Raise `ConfigError` for the key at `path`."""
    raise ConfigError(f"{path}: {reason}")


def problem(path: str, reason: str) -> str:
    """Return what is wrong with the key at `path`, for a function with `checking`."""
    return f"{path}: {reason}"


def checking(check: Callable[_Arguments, Iterator[str]]) -> Callable[_Arguments, None]:
    """Return a check that raises one `ConfigError` with everything that a generator finds: a person mends all of it at once."""

    @wraps(check)
    def raising(*arguments: _Arguments.args, **more: _Arguments.kwargs) -> None:
        found = dict.fromkeys(check(*arguments, **more))
        if found:
            raise ConfigError(*found)

    return raising


def found_by(check: Callable[_Arguments, object], *arguments: _Arguments.args, **more: _Arguments.kwargs) -> Iterator[str]:
    """Yield what a check that raises `ConfigError` has found."""
    try:
        check(*arguments, **more)
    except ConfigError as error:
        yield from error.problems


def settings_of_other_types(where: str, section: Any, noun: str) -> Iterator[str]:
    """Yield a problem for each setting that a section of this `type` does not have, if its value is not the default."""
    for item in declared(type(section)):
        types = item.metadata["types"]
        if types and section.type not in types and getattr(section, item.name) != item.default:
            yield problem(f"{where}.{item.name}", f"a {noun} of type {section.type} has no such setting, only {', '.join(types)}")


class Problems:
    """What is wrong with settings, collected: `noted` continues after an error, `raise_all` raises what was found."""

    def __init__(self) -> None:
        self._errors: list[ConfigError] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note a `ConfigError` of the block instead of raising it."""
        try:
            yield
        except ConfigError as error:
            self._errors.append(error)

    def raise_all(self) -> None:
        """Raise the only error as it was, or one `ConfigError` that has all problems."""
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise ConfigError(*dict.fromkeys(one for error in self._errors for one in error.problems))


@checking
def check_patterns(path: str, patterns: Sequence[str]) -> Iterator[str]:
    """Raise `ConfigError` if one of the patterns is not a regular expression."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            yield problem(path, f"{pattern!r} is not a regular expression: {error}")


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern as it is applied to names: upper and lower case alike."""
    return re.compile(pattern, re.IGNORECASE)
