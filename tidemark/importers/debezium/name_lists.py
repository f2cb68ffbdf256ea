r"""Lists of names of databases, tables and columns: Debezium's rule for them, and patterns of ours that choose the same.

Debezium divides a list at each comma that has no backslash before it, also in brackets, and matches each part with the whole name,
upper and lower case alike. A part that is no regular expression of Java is refused there. Here, a part that a comma in brackets has
cut (`t{1,2}`) is joined with the next one and reported; any other is refused: the names that it hides would be published.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from schemas.errors import ConfigError
from tidemark.importers.debezium.connector_ledger import ConnectorLedger
from tidemark.importers.debezium.java_pattern_reader import parse
from tidemark.importers.debezium.java_patterns import (
    ANY,
    DOT,
    END,
    Node,
    PatternError,
    Repeat,
    ahead,
    concat,
    either,
    never_ahead,
    of_database,
    plain_text,
    written,
)  # fmt: skip

_PIECE: Final = re.compile(r"\\.|,|[^\\,]+|\\", re.DOTALL)
_SPACES: Final = "".join(map(chr, range(33)))  # what Java's trim() takes away
_JOINED: Final = r"a comma in brackets divides the list there, and Debezium refuses it: taken as {}; write \, for such a comma"
_WHOLE: Final = Repeat(ANY, "*")


def read_list(ledger: ConnectorLedger, key: str) -> list[Node]:
    """Return the patterns of a list; none for a list that is not given. `ConfigError` for a part that cannot be read."""
    found: list[Node] = []
    parts = _divided(ledger.text(key))
    while parts:
        node, text, count = _first(ledger.given_name(key), parts)
        if count > 1:
            ledger.note(key, _JOINED.format(text))
        found.append(node)
        del parts[:count]
    if not found and ledger.text(key).strip():
        raise ConfigError(f"{ledger.given_name(key)} = {ledger.text(key)!r} names nothing: Debezium captures nothing with it")
    return found


def _first(key: str, parts: Sequence[str]) -> tuple[Node, str, int]:
    """Return the first pattern of a list, its text, and how many parts it is made of."""
    problems: list[str] = []
    for count in range(1, len(parts) + 1):
        text = ",".join(parts[:count]).strip(_SPACES).replace("\\,", ",")
        try:
            node = parse(text)
            written(node)
        except PatternError as error:
            problems.append(str(error))
        else:
            return node, text, count
    raise ConfigError(f"{key}: {parts[0].strip()!r} is no regular expression that can be used ({problems[0]})")


def _divided(text: str) -> list[str]:
    parts = [""]
    for piece in _PIECE.findall(text):
        if piece == ",":
            parts.append("")
        else:
            parts[-1] += piece
    return [part for part in parts if part.strip(_SPACES)]


def texts(nodes: Iterable[Node]) -> list[str]:
    """Return patterns as our settings have them."""
    return [written(node) for node in nodes]


def table_settings(
    databases: Sequence[Node], no_databases: Sequence[Node], tables: Sequence[Node], no_tables: Sequence[Node]
) -> tuple[list[str], list[str]]:
    """Return `source.tables` and `source.exclude_tables` for the tables that four lists choose: database and table count."""
    inside = either(of_database(node, crossing=False) for node in databases) if databases else None
    if tables:
        chosen = [node if inside is None else concat(ahead(concat(inside, DOT)), node) for node in tables]
    elif databases:
        chosen = [concat(of_database(node, crossing=False), DOT, _WHOLE) for node in databases]
    else:
        chosen = [concat(_WHOLE, DOT, _WHOLE)]
    left_out = [concat(of_database(node, crossing=True), DOT, _WHOLE) for node in no_databases]
    return texts(chosen), texts([*left_out, *no_tables])


def without(nodes: Iterable[Node], left_out: Sequence[Node]) -> Iterator[Node]:
    """Yield patterns that match as before, but nothing that a pattern of `left_out` matches."""
    for node in nodes:
        overlapping = [one for one in left_out if _may_overlap(node, one)]
        if [one for one in overlapping if plain_text(one) is None or plain_text(node) is None]:
            yield concat(never_ahead(concat(either(overlapping), END)), node)
        elif not overlapping:
            yield node


def _may_overlap(first: Node, second: Node) -> bool:
    texts_of_both = plain_text(first), plain_text(second)
    if None in texts_of_both:
        return True
    one, other = (str(text).casefold() for text in texts_of_both)
    return one == other
