"""What the text of a query event is, by its first words: the frame of a transaction, data, or anything else."""

from __future__ import annotations

from enum import Enum
from itertools import islice
from typing import Final

from mysqlio.definitions.tokens import scan, tokenise, without_set_statement


class QueryKind(Enum):
    """What a query event holds."""

    BEGIN = "begin"
    COMMIT = "commit"
    SAVEPOINT = "savepoint"
    ROLLBACK = "rollback"
    XA = "xa"
    DML = "dml"
    OTHER = "other"


_FIRST_WORDS: Final = {
    "BEGIN": QueryKind.BEGIN,
    "COMMIT": QueryKind.COMMIT,
    "SAVEPOINT": QueryKind.SAVEPOINT,
    "RELEASE": QueryKind.SAVEPOINT,
    "ROLLBACK": QueryKind.ROLLBACK,
    "XA": QueryKind.XA,
    "INSERT": QueryKind.DML,
    "UPDATE": QueryKind.DML,
    "DELETE": QueryKind.DML,
    "REPLACE": QueryKind.DML,
    "CALL": QueryKind.DML,
    "DO": QueryKind.DML,
    "SELECT": QueryKind.DML,
    "WITH": QueryKind.DML,
    "VALUES": QueryKind.DML,
    "TABLE": QueryKind.DML,
}


def classify_query(sql: str, flavour: str = "mysql") -> QueryKind:
    """Return what a query event's text is, by its first words; comments in front do not hide them."""
    if sql == "BEGIN":
        return QueryKind.BEGIN
    tokens = scan(sql, flavour)
    words = [token.upper or token.text for token in islice(tokens, 3)]
    words += [""] * (3 - len(words))
    if words[:2] == ["START", "TRANSACTION"]:
        return QueryKind.BEGIN
    if words[:2] in (["LOAD", "DATA"], ["LOAD", "XML"]):
        return QueryKind.DML
    if words[:2] == ["SET", "STATEMENT"]:
        return _classify_after_for(sql, flavour)
    return _FIRST_WORDS.get(words[1] if words[0] == "(" else words[0], QueryKind.OTHER)


def savepoint_name(sql: str, flavour: str = "mysql") -> str | None:
    """Return the name in SAVEPOINT and ROLLBACK TO, folded as servers compare it; None for a ROLLBACK of everything."""
    tokens = [token for token in tokenise(sql, flavour) if token.upper not in ("WORK", "TO", "SAVEPOINT")]
    return tokens[-1].text.lower() if len(tokens) > (0 if sql.upper().startswith("SAVEPOINT") else 1) else None


def _classify_after_for(sql: str, flavour: str) -> QueryKind:
    tokens = without_set_statement(tokenise(sql, flavour))
    return _FIRST_WORDS.get(tokens[0].upper, QueryKind.OTHER) if tokens else QueryKind.OTHER
