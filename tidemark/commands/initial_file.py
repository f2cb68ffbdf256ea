"""The text of a first `tidemark.yaml`, with comments, by what a source has (pure). No secret enters."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from schemas.readable import counted

_SHOWN: Final = 30
SIGNAL_TABLE: Final = "tidemark_signal"


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialFile:
    """What the file says. `server` is what the source calls itself, `tables` have the server's estimates of rows, None for none.

    `statements` are those that an administrator of the source is to run, `notes` what else was seen. `password_file` is None where
    the password comes from the environment.
    """

    name: str
    server: str
    host: str
    port: int
    user: str
    password_file: str | None
    patterns: tuple[str, ...]
    tables: Mapping[str, int | None]
    signal_table: str
    kafka: str
    registry: str
    lake: str
    statements: Sequence[str] = ()
    notes: Sequence[str] = field(default=())

    @property
    def text(self) -> str:
        """The file."""
        lines = [
            f"# Settings of Tidemark for {_comment(self.server)} at {self.host}:{self.port}, written by `tidemark init`.",
            "# What a key means: tidemark config reference source.tables. Every key is a variable, too: TIDEMARK_SOURCE__HOST.",
            "# No server but the source was asked: `tidemark doctor` asks them all.",
            *self._statement_lines(),
            "",
            f"name: {_quoted(self.name)}  # the prefix of every topic; another one begins from nothing",
            "source:",
            f"  host: {_quoted(self.host)}",
            f"  port: {self.port}",
            f"  user: {_quoted(self.user)}",
            *self._password_lines(),
            *self._table_lines(),
            f"  signal_table: {_quoted(self.signal_table)}  # snapshots write small rows to it; made where rights allow it",
            "kafka:",
            f"  bootstrap_servers: {_quoted(self.kafka)}",
            "format:",
            "  type: avro  # the merge job reads nothing else",
            f"  registry: {_quoted(self.registry)}  # the schema registry (Confluent's API)",
            "snapshot:",
            "  mode: initial  # the first start reads all tables; no_data: only what is asked for (tidemark snapshot start)",
            "sinks:",
            "  - name: lake",
            "    type: delta",
            f"    path: {_quoted(self.lake)}  # a table is in <path>/<database>/<table>",
        ]
        return "\n".join(lines) + "\n"

    def _statement_lines(self) -> list[str]:
        lines = ["#", "# To be run at the source by an administrator:"] if self.statements else []
        lines += [f"#   {_comment(statement)}" for statement in self.statements]
        if self.notes:
            lines += ["#", "# Also seen at the source:", *(f"#   {_comment(note)}" for note in self.notes)]
        return lines

    def _password_lines(self) -> list[str]:
        if self.password_file is not None:
            return [f"  password_file: {_quoted(self.password_file)}  # its first line; it is read again for each connection"]
        return ["  # The password: in the variable TIDEMARK_SOURCE__PASSWORD, or in a file:", "  # password_file: /run/secrets/db"]

    def _table_lines(self) -> list[str]:
        lines = [f"  # Regular expressions on database.table. Of the source's tables {len(self.tables):,} match:"]
        shown = list(self.tables.items())[:_SHOWN]
        lines += [f"  #   {_comment(table)}{_about(rows)}" for table, rows in shown]
        if len(self.tables) > len(shown):
            lines.append(f"  #   and {len(self.tables) - len(shown):,} more")
        return [*lines, "  tables:", *(f"    - {_quoted(pattern)}" for pattern in self.patterns)]


def name_of(database: str) -> str:
    """Return a name of a source, made of that of a database: 1 to 100 of `A-Z a-z 0-9 . _ -`."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", database)[:100] or "source"


def pattern_of(database: str) -> str:
    """Return the regular expression for all tables of a database."""
    return f"{re.escape(database)}\\..*"


def _about(rows: int | None) -> str:
    return "" if rows is None else f"  about {counted(rows, 'row')}"


def _quoted(text: str) -> str:
    """Return a text as YAML reads it in double quotes; JSON's are."""
    return json.dumps(text)


def _comment(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())
