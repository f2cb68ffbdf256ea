"""`tidemark schema`: the columns of a table, the statements that made them, and what differs between two versions."""

from __future__ import annotations

import argparse
import difflib
from typing import TYPE_CHECKING, Final, NoReturn

from schemas.errors import ConfigError
from schemas.identity import TableName
from schemas.json_codec import encode
from schemas.readable import aligned, moment
from tidemark.commands.action import Action, add_output, emit
from tidemark.process import config

if TYPE_CHECKING:
    from schemas.settings import Settings
    from schemas.state import State
    from tidemark.api.schema_history import (
        SchemaColumn,
        SchemaDifference,
        SchemaHistory,
        TableColumns,
    )

HELP: Final = "show the columns of a table, the DDL statements and versions before, and what differs between two versions"


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="database.table; a name with a dot in it in backticks")
    add_output(parser)


def _configure_diff(parser: argparse.ArgumentParser) -> None:
    _configure(parser)
    parser.add_argument("--from", dest="first", type=int, metavar="VERSION", help="the older version (default: the one before)")
    parser.add_argument("--to", dest="second", type=int, metavar="VERSION", help="the newer version (default: the last one)")


def _show(arguments: argparse.Namespace) -> int:
    """Print the columns that the table has at the committed offset."""
    settings = config.load(arguments.config)
    name = _name(arguments.table, settings)
    from schemas.documents import ColumnsDocument
    from schemas.schema_changes import TableModel
    from tidemark.api.schema_history import columns_of

    state = _state(settings)
    model = state.all(TableModel).get(f"{TableModel.PREFIX}{name.plain}")
    if model is not None:
        columns = columns_of(model)
        document = {"table": name.plain, **encode(columns)}
        emit(arguments, document, "\n".join(_column_lines(columns)))
        return 0
    known = state.all(ColumnsDocument).get(f"{ColumnsDocument.PREFIX}{name.plain}")
    if known is None or not known.present:
        _refuse_unknown(name, state)
    why = "their types are not known: records.include_schema_changes is off"
    document = {"table": name.plain, "columns": [{"name": one} for one in known.present], "unknown": why}
    emit(arguments, document, "\n".join([*known.present, why]))
    return 0


def _history(arguments: argparse.Namespace) -> int:
    """Print every statement on the table that Kafka has, with its version."""
    history = _history_of(arguments)
    document = {
        "table": history.table,
        "complete": history.is_complete,
        "version": history.version,
        "events": [encode(event) for event in history.events],
    }
    emit(arguments, document, "\n".join(history_lines(history)))
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    """Print what differs between two versions: 1 where something does, as `diff` does."""
    history = _history_of(arguments)
    last = max(history.versions, default=0)
    second = last if arguments.second is None else arguments.second
    first = arguments.first if arguments.first is not None else (second - 1 or second)  # the first version has none before it
    for option, version in (("--from", first), ("--to", second)):
        if version not in history.versions:
            there = f"1 to {last}" if last > 1 else "only 1"
            raise ConfigError(f"{option}: {history.table} has no version {version}; there is {there}: tidemark schema history")
    from tidemark.api.schema_history import difference

    found = difference(history.versions[first], history.versions[second])
    document = {"table": history.table, "from": first, "to": second, **encode(found)}
    emit(arguments, document, "\n".join([f"{history.table}: version {first} to version {second}", *difference_lines(found)]))
    return 0 if found.is_empty else 1


def _history_of(arguments: argparse.Namespace) -> SchemaHistory:
    settings = config.load(arguments.config)
    name = _name(arguments.table, settings)
    from tidemark.api.schema_history import history_of
    from tidemark.api.schema_reader import read_schema_topic

    topic = read_schema_topic(settings)
    if topic.missing:
        raise ConfigError(topic.missing)
    history = history_of(name, topic.records, is_complete=topic.is_complete)
    if not history.events:
        _refuse_unknown(name, _state(settings))
    return history


def _state(settings: Settings) -> State:
    from tidemark.api.observe import Observer

    with Observer(settings) as observer:
        return observer.state()


def _name(text: str, settings: Settings) -> TableName:
    """Return the table that a person has written; one with several dots may be called as `tidemark tables` lists it."""
    try:
        return TableName.written(text)
    except ValueError as error:
        from tidemark.status.reckoning import tables_with_topics

        known = tables_with_topics(_state(settings)) if text.count(".") > 1 else {}
        if text not in known:
            raise ConfigError(f"TABLE: {error}") from None
        return TableName(*known[text])


def _refuse_unknown(name: TableName, state: State) -> NoReturn:
    """Raise `ConfigError` with the names that are near."""
    from tidemark.status.reckoning import tables_with_topics

    known = sorted(tables_with_topics(state))
    near = difflib.get_close_matches(name.plain.lower(), [one.lower() for one in known], n=1, cutoff=0.6)
    there = [one for one in known if one.lower() in near]
    hint = f"; did you mean {there[0]}?" if there else ": tidemark tables lists those that are captured"
    raise ConfigError(f"TABLE: nothing is known of the columns of {name.plain}{hint}")


def history_lines(history: SchemaHistory) -> list[str]:
    """Return a line for each statement, with the statement below it and what it changed."""
    from tidemark.api.schema_history import difference

    gone = "older statements are not in Kafka any more: versions are counted from the oldest there"
    lines = [] if history.is_complete else [gone]
    before: TableColumns | None = None
    for event in history.events:
        version = "no columns" if event.version is None else f"version {event.version}"
        lines.append(f"{moment(event.committed_ms)}  {version}  {event.kind}  {event.file}:{event.pos}".rstrip())
        lines += [f"    {line}" for line in event.ddl.splitlines()]
        if before is not None and event.columns is not None and event.columns != before:
            lines += [f"  {line}" for line in difference_lines(difference(before, event.columns))]
        before = event.columns
    return lines


def difference_lines(found: SchemaDifference) -> list[str]:
    """Return a line for each column that differs, and for key and character set."""
    if found.is_empty:
        return ["no column differs"]
    lines = [f"+ {_column_text(column)}" for column in found.added]
    lines += [f"- {_column_text(column)}" for column in found.dropped]
    lines += [f"~ {_column_text(one.before)}  →  {_column_text(one.after)}" for one in found.changed]
    lines += [f"~ {name} has another place" for name in found.moved]
    if found.key is not None:
        before, after = (", ".join(key) or "none" for key in (found.key.before, found.key.after))
        lines.append(f"~ key: {before}  →  {after}")
    if found.charset is not None:
        lines.append(f"~ character set: {found.charset.before}  →  {found.charset.after}")
    return lines


def _column_lines(columns: TableColumns) -> list[str]:
    rows = [("column", "type", "null", "key", "default", "more")]
    for column in columns.columns:
        more = [f"character set {column.charset}" if column.charset else "", "auto_increment" if column.auto_increment else ""]
        rows.append(
            (
                column.name,
                column.type,
                "yes" if column.nullable else "no",
                str(columns.key.index(column.name) + 1) if column.name in columns.key else "",
                "" if column.default is None else column.default,
                ", ".join([*(one for one in more if one), *([f"comment {column.comment!r}"] if column.comment else [])]),
            )
        )
    return aligned(rows)


def _column_text(column: SchemaColumn) -> str:
    parts = [
        column.name,
        column.type,
        "" if column.nullable else "NOT NULL",
        "" if column.default is None else f"default {column.default}",
        f"CHARACTER SET {column.charset}" if column.charset else "",
        "AUTO_INCREMENT" if column.auto_increment else "",
        f"COMMENT {column.comment!r}" if column.comment else "",
    ]
    return " ".join(part for part in parts if part)


ACTIONS: Final[dict[str, Action]] = {
    "show": Action("show the columns that a table has at the committed offset", _configure, _show),
    "history": Action("show every DDL statement on a table, and the version of its columns after it", _configure, _history),
    "diff": Action("show the columns that were added, dropped or changed between two versions", _configure_diff, _diff),
}
