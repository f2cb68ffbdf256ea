"""Statements of DDL with the mark of a channel (`schemas.loop_marks`) (pure).

Servers log most statements with their comments. They log a DROP of tables, sequences and views as a text of their own.
"""

from __future__ import annotations

from typing import Final

from mysqlio.definitions.tokens import Kind, tokenise
from schemas.errors import SinkError
from schemas.loop_marks import META, drop_table, with_comment

_SHOWN: Final = 300
_KEEPS_COMMENTS: Final = frozenset({"DATABASE", "SCHEMA", "INDEX", "ONLINE", "OFFLINE"})
"""Words behind DROP; the last two are of an index."""


def with_mark(sql: str, channel: str, flavour: str, sql_mode: int | None = None) -> str:
    """Return a statement that begins with the comment of the channel. `SinkError`: servers would log it without comments."""
    words = [token.upper for token in tokenise(sql, flavour, sql_mode)[:2]]
    if words[:1] == ["DROP"] and not _KEEPS_COMMENTS & {*words}:
        raise _refused(sql, channel, "DROP that keeps a comment in the log")
    return with_comment(sql, channel)


def with_drop(sql: str, channel: str, flavour: str, sql_mode: int | None = None) -> str:
    """Return a DROP TABLE that drops the table of the channel first. `SinkError` for any other statement."""
    tokens = tokenise(sql, flavour, sql_mode)
    words = [token.upper for token in tokens]
    first = 4 if words[2:4] == ["IF", "EXISTS"] else 2
    is_drop = words[:1] == ["DROP"] and words[1:2] in (["TABLE"], ["TABLES"])
    if not is_drop or len(tokens) <= first or not (tokens[first].kind in (Kind.WORD, Kind.NAME) or tokens[first].double_quoted):
        raise _refused(sql, channel, "DROP TABLE that can be marked")
    at = tokens[first].start
    return f"{sql[:at]}`{META}`.`{drop_table(channel)}`, {sql[at:]}"


def _refused(sql: str, channel: str, expected: str) -> SinkError:
    message = (
        f"target.channel {channel}: this is no {expected}, and the producer of the target would publish it without a mark: "
        f"{sql[:_SHOWN]}. Run it at the target by hand, and name both transactions in apply.skip_transactions of the two tasks"
    )
    return SinkError(message)
