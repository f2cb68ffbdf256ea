"""Names of sources, of the tables in them, and of the targets they are merged into.

A source is one log: a producer with its `name`, which is the prefix of its topics. A table is known by its name only within a
source, and a position only within a source's log (`schemas.position.SourcePosition`). The text forms can be parsed again:

    SourceId      shop
    TableName     orders.lines             `a.b`.lines where a database has a dot in its name
    SourceTable   shop:orders.lines
    Target        lake:orders.lines        sink and the target's name there

Text of an earlier version names no source: `SourceTable.parse` takes that of the reader.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from schemas.overriding import override

_SOURCE: Final = re.compile(r"[A-Za-z0-9._-]{1,100}\Z")
_SINK: Final = re.compile(r"[^:]+\Z")
_PLAIN_PART: Final = r"[^.:`]+"
_QUOTED_PART: Final = r"`(?:[^`]|``)+`"
_TABLE: Final = re.compile(rf"({_QUOTED_PART}|{_PLAIN_PART})\.({_QUOTED_PART}|{_PLAIN_PART})\Z")
_WRITTEN_PART: Final = r"[^.`][^.]*"
_WRITTEN: Final = re.compile(rf"({_QUOTED_PART}|{_WRITTEN_PART})\.({_QUOTED_PART}|{_WRITTEN_PART})", re.DOTALL)
_NEEDS_QUOTES: Final = re.compile(r"[.:`]")


TableId = tuple[str, str]
"""Database and name of a table, where neither a text nor a source is asked for."""


@dataclass(frozen=True, slots=True, order=True)
class SourceId:
    """The logical name of a source, as the setting `name` has it: 1 to 100 of `A-Z a-z 0-9 . _ -`."""

    name: str

    def __post_init__(self) -> None:
        if _SOURCE.match(self.name) is None:
            message = f"{self.name!r} is not the name of a source: 1 to 100 of A-Z a-z 0-9 . _ -"
            raise ValueError(message)

    @property
    def text(self) -> str:
        """Return the text form, which `parse` reads: the name itself."""
        return self.name

    @staticmethod
    def parse(text: str) -> SourceId:
        """Return the source of a text form; `ValueError` if it is none."""
        return SourceId(text)

    @override
    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """Database and name of a table, as the server spells them."""

    database: str
    table: str

    def __post_init__(self) -> None:
        if not self.database or not self.table:
            message = f"{self.database!r}.{self.table!r} is not the name of a table: database and table are needed"
            raise ValueError(message)

    @property
    def text(self) -> str:
        """Return the text form, which `parse` reads: a part with `.`, `:` or a backtick is quoted."""
        return f"{_quoted(self.database)}.{_quoted(self.table)}"

    @property
    def plain(self) -> str:
        """Return `database.table` without quotes, as markers, documents and messages have it; two names may share it."""
        return f"{self.database}.{self.table}"

    @staticmethod
    def parse(text: str) -> TableName:
        """Return the table of a text form; `ValueError` if it is none."""
        match = _TABLE.match(text)
        if match is None:
            message = f"not a table: {text!r}; expected database.table"
            raise ValueError(message)
        return TableName(unquoted(match[1]), unquoted(match[2]))

    @staticmethod
    def written(text: str) -> TableName:
        """Return the table that a person has written; `ValueError` for a text of another form.

        Only a part with a dot, or one that begins with a backtick, has to be quoted.
        """
        match = _WRITTEN.fullmatch(text)
        if match is None:
            message = f"{text!r} is not of the form database.table; write a name that has a dot in backticks: `my.db`.orders"
            raise ValueError(message)
        return TableName(unquoted(match[1]), unquoted(match[2]))

    @override
    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, order=True)
class SourceTable:
    """A table of a source: what markers, floors, tombstones and positions are about."""

    source: SourceId
    name: TableName

    @property
    def text(self) -> str:
        """Return the text form, which `parse` reads: `source:database.table`."""
        return f"{self.source.text}:{self.name.text}"

    @staticmethod
    def of(source: SourceId, database: str, table: str) -> SourceTable:
        """Return the table of a source, by database and name."""
        return SourceTable(source, TableName(database, table))

    @staticmethod
    def parse(text: str, default: SourceId | None = None) -> SourceTable:
        """Return the table of a text form; of one without a source, the table of the source `default`.

        `ValueError` if it is none, or if it names no source and there is no default.
        """
        source, colon, table = text.partition(":")
        if colon and _SOURCE.match(source) is not None:
            return SourceTable(SourceId(source), TableName.parse(table))
        if default is None:
            message = f"not a table of a source: {text!r}; expected source:database.table"
            raise ValueError(message)
        return SourceTable(default, TableName.parse(text))

    @override
    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """A table, topic or folder of a sink, fed by one or more source tables."""

    sink: str
    name: str

    def __post_init__(self) -> None:
        if _SINK.match(self.sink) is None or not self.name:
            message = f"{self.sink!r}, {self.name!r} is not a target: a sink (without a colon) and a name are needed"
            raise ValueError(message)

    @property
    def text(self) -> str:
        """Return the text form, which `parse` reads: `sink:name`."""
        return f"{self.sink}:{self.name}"

    @staticmethod
    def parse(text: str) -> Target:
        """Return the target of a text form; `ValueError` if it is none."""
        sink, colon, name = text.partition(":")
        if not colon:
            message = f"not a target: {text!r}; expected sink:name"
            raise ValueError(message)
        return Target(sink, name)

    @override
    def __str__(self) -> str:
        return self.text


def _quoted(part: str) -> str:
    return "`" + part.replace("`", "``") + "`" if _NEEDS_QUOTES.search(part) else part


def unquoted(part: str) -> str:
    """Return the name of a part that may be in backticks."""
    return part[1:-1].replace("``", "`") if part.startswith("`") else part
