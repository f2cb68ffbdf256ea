"""A connector's configuration as people have it: JSON, Kafka Connect's `{"name", "config"}`, or a .properties file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from schemas.errors import ConfigError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)")
_SEPARATOR = re.compile(r"((?:\\.|[^\\\s=:])*)\s*[=:]?\s*(.*)", re.DOTALL)


def read_properties(text: str, where: str) -> dict[str, str]:
    """Read every property as text; `ConfigError` naming `where` for what is no connector configuration."""
    found = _json(text, where) if text.lstrip().startswith("{") else _lines(text)
    if not any(name in found for name in ("connector.class", "database.hostname", "topic.prefix")):
        raise ConfigError(
            f"{where}: no connector.class, database.hostname or topic.prefix: this is no configuration of a Debezium "
            'connector. Give its JSON (flat, or {"name": ..., "config": {...}}) or its .properties file'
        )
    return found


def _json(text: str, where: str) -> dict[str, str]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from None
    config = document.get("config", document)
    if not isinstance(config, Mapping):
        raise ConfigError(f"{where}: config is {config!r}, not an object of properties")
    return {str(name): _text(value) for name, value in config.items()}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _lines(text: str) -> dict[str, str]:
    """Java's format: `#` and `!` comments, `=` or `:` or a blank between, a backslash at the end continues."""
    found: dict[str, str] = {}
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.lstrip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        match = _SEPARATOR.fullmatch(line)
        if match is not None:
            found[_unescaped(match[1])] = _unescaped(match[2])
    return found


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)

    return _ESCAPED.sub(plain, text)
