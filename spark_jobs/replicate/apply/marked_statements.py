"""Statements of DDL with the mark of a channel (`schemas.loop_marks`) (pure).

Servers log most statements with their comments. They log a DROP of tables, sequences and views as a text of their own.
"""

from __future__ import annotations

from typing import Final

from mysqlio.definitions.tokens import Kind, tokenise
from mysqlio.server_facts import flavour_of
from schemas.errors import SinkError
from schemas.loop_marks import META, drop_table, with_comment

_SHOWN: Final = 300
_KEEPS_COMMENTS: Final = frozenset({"DATABASE", "SCHEMA", "INDEX", "ONLINE", "OFFLINE"})
"""Words behind DROP; the last two are of an index."""


def with_mark(sql: str, channel: str, version: str, sql_mode: int | None = None) -> str:
    """Return a statement that begins with the comment of the channel; `version` is the server's.

    `SinkError`: servers would log it without comments.
    """
    words = [token.upper for token in tokenise(sql, flavour_of(version), sql_mode)[:2]]
    if words[:1] == ["DROP"] and not _KEEPS_COMMENTS & {*words}:
        raise _refused(sql, channel, "DROP that keeps a comment in the log")
    return with_comment(sql, channel)


def with_drop(sql: str, channel: str, version: str, sql_mode: int | None = None) -> str:
    """Return a DROP TABLE that drops the table of the channel first. `SinkError` for any other statement."""
    tokens = tokenise(sql, flavour_of(version), sql_mode)
    words = [token.upper for token in tokens]
    first = 4 if words[2:4] == ["IF", "EXISTS"] else 2
    is_drop = words[:1] == ["DROP"] and words[1:2] in (["TABLE"], ["TABLES"])
    if not is_drop or len(tokens) <= first or not (tokens[first].kind in (Kind.WORD, Kind.NAME) or tokens[first].double_quoted):
        raise _refused(sql, channel, "DROP TABLE that can be marked")
    at = tokens[first].start
    return f"{sql[:at]}`{META}`.`{drop_table(channel)}`, {sql[at:]}"


def _refused(sql: str, channel: str, expected: str) -> SinkError:
    message = (
        f"target.channel {channel}: a statement is not a {expected}. The producer of the target would publish it. Run it at the "
        f"target by hand, and name both transactions in apply.skip_transactions of the two tasks. The statement: {sql[:_SHOWN]}"
    )
    return SinkError(message)
