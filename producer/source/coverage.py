"""What the settings want captured and the source does not show: patterns without a table, tables without SELECT.

The tables that the account may see, its grants and the settings enter; warnings as sentences leave. The server lists no table on
which an account has no right, so a missing grant looks like a missing table.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from schemas.documents import CoverageDocument
from schemas.identity import unquoted
from schemas.json_codec import encode

if TYPE_CHECKING:
    from schemas.settings import SourceSettings

_READS: Final = frozenset({"SELECT", "ALL PRIVILEGES"})
_NAME: Final = r"(\*|`(?:[^`]|``)+`|[^.`]+)"
_GRANTED: Final = re.compile(rf"{_NAME}\.{_NAME}", re.DOTALL)


def coverage(
    source: SourceSettings, tables: Sequence[tuple[str, str]], grants: Mapping[str, frozenset[str]]
) -> dict[str, Any]:
    """Return the JSON form of the `CoverageDocument` of these tables and grants."""
    names = [".".join(table) for table in tables if table != source.signal_names]
    unmatched = {
        pattern: _advice(pattern, names, source.user)
        for pattern in source.tables
        if not any(re.fullmatch(pattern, name, re.IGNORECASE) for name in names)
    }
    captured = [table for table in tables if source.captures(*table)]
    unreadable = [".".join(table) for table in unreadable_tables(source, tables, grants)]
    form: dict[str, Any] = encode(CoverageDocument(len(captured), unmatched, tuple(unreadable)))
    return form


def unreadable_tables(
    source: SourceSettings, tables: Sequence[tuple[str, str]], grants: Mapping[str, frozenset[str]]
) -> list[tuple[str, str]]:
    """Return the captured tables that the account may not read."""
    return [table for table in tables if source.captures(*table) and not privileges_on(grants, *table) & _READS]


def _advice(pattern: str, names: list[str], user: str) -> str:
    plain = re.sub(r"\\(.)", r"\1", pattern)
    near = difflib.get_close_matches(plain.lower(), [name.lower() for name in names], n=3, cutoff=0.6)
    found = [name for name in names if name.lower() in near]
    hint = f"; did you mean {', '.join(found)}?" if found else "."
    database = re.match(r"(\w+)\.[^.]*", plain)
    where = "<database>.*" if database is None or database.end() < len(plain) else f"`{database[1]}`.*"
    return f"no table that {user!r} can see matches{hint} A table without a right is not seen: GRANT SELECT ON {where}"


def privileges_on(grants: Mapping[str, frozenset[str]], database: str, table: str) -> frozenset[str]:
    """Return the privileges that these grants give on a table; a database in a grant may be a pattern of LIKE."""
    found: set[str] = set()
    for where, privileges in grants.items():
        parts = _GRANTED.fullmatch(where)
        if parts is None:
            continue  # a procedure, a role
        first, second = (unquoted(part) for part in parts.groups())
        is_all = parts[1] == "*" or (parts[2] == "*" and _is_like(database, first))
        if is_all or (second.lower() == table.lower() and first.lower() == database.lower()):
            found |= privileges
    return frozenset(found)


def _is_like(name: str, pattern: str) -> bool:
    """Return whether a name is LIKE a pattern; a backslash escapes."""
    parts = re.findall(r"\\.|.", pattern)
    regex = "".join({"%": ".*", "_": "."}.get(part, re.escape(part[-1])) for part in parts)
    return re.fullmatch(regex, name, re.IGNORECASE) is not None
