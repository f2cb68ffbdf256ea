"""Signals: rows `(id, type, data)` of the signal table turned into commands (Debezium's contract).

`parse_signal` gives one frozen command or raises `SignalError`, whose text is the answer its sender reads in
the notifications topic. Debezium only logs what is wrong, or takes it for something else; nothing is guessed.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from schemas.errors import SignalError
from schemas.identity import unquoted
from schemas.loads import LOAD_ANSWER

EXECUTE_SNAPSHOT: Final = "execute-snapshot"
STOP_SNAPSHOT: Final = "stop-snapshot"
PAUSE_SNAPSHOT: Final = "pause-snapshot"
RESUME_SNAPSHOT: Final = "resume-snapshot"
LOG: Final = "log"
RELOAD_TABLES: Final = "reload-tables"
PAUSE_SOURCE: Final = "pause-source"
RESUME_SOURCE: Final = "resume-source"
CLOSE_SOURCE: Final = "close-source"
WINDOW_OPEN: Final = "snapshot-window-open"
WINDOW_CLOSE: Final = "snapshot-window-close"
WINDOW_TYPES: Final = frozenset({WINDOW_OPEN, WINDOW_CLOSE})

LARGEST_SIGNAL: Final = 64 * 1024
LONGEST_ID: Final = 256
"""Characters. The signal table's columns have room for less; Kafka's topic, a file or wider columns could have anything."""

_MAX_GROUPS: Final = 100  # one in another takes a part of Python's stack
_SHOWN_CHARACTERS: Final = 200
_NOT_YET: Final = frozenset({"schema-changes", "set-binlog-position"})


@dataclass(frozen=True, slots=True)
class Condition:
    """A predicate for the tables whose `db.table` the pattern matches in full, in any letter case."""

    data_collection: str
    filter: str


@dataclass(frozen=True, slots=True)
class ExecuteSnapshot:
    """Read tables: in chunks, or `blocking`, in one view. `data_collections` are patterns over `db.table`.

    `surrogate_key` is the column by which they are divided into chunks instead of their key. `merge` and `via` are ours: who merges
    the rows with the log, "spark" or "producer", and the way of the rows, "auto", "kafka" or "spark"; None as the settings say.
    """

    id: str
    data_collections: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()
    merge: str | None = None
    surrogate_key: str | None = None
    blocking: bool = False
    via: str | None = None

    def condition_for(self, table: str) -> str | None:
        """Return the predicate for a table: the first condition that matches, None for the whole table."""
        for condition in self.conditions:
            if re.fullmatch(condition.data_collection, table, re.IGNORECASE):
                return condition.filter
        return None


@dataclass(frozen=True, slots=True)
class StopSnapshot:
    """Give up the tables that match; no pattern means everything."""

    id: str
    data_collections: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PauseSnapshot:
    """Start no more chunks until resumed."""

    id: str


@dataclass(frozen=True, slots=True)
class ResumeSnapshot:
    """Continue with the chunks."""

    id: str


@dataclass(frozen=True, slots=True)
class LogMessage:
    """Write a message to the log; `{}` in it is replaced by the log position."""

    id: str
    message: str


@dataclass(frozen=True, slots=True)
class ReloadTables:
    """Take `source.tables` and `source.exclude_tables` from the producer's YAML file again."""

    id: str


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """Pause, resume or close the source in its group (`order.group`); `type` is the one of the signal."""

    id: str
    type: str


Command = ExecuteSnapshot | StopSnapshot | PauseSnapshot | ResumeSnapshot | LogMessage | ReloadTables | ChangeSource


def parse_signal(signal_id: str, signal_type: str, data: str | None) -> Command:
    """Return the command of a signal row; `SignalError` explains what is wrong with it.

    NULL or blank `data` counts as `{}`. The window rows the chunk readers write (`WINDOW_TYPES`) are no
    commands and not for this function.
    """
    parser = _PARSERS.get(signal_type)
    if parser is None:
        raise SignalError(_unknown_type(signal_type))
    return parser(signal_id, _document(data))


def signal_document(ident: str, kind: str, data: str | None) -> str:
    """Return a signal as topic, file and HTTP endpoint take it; `data` is JSON, "" for none of its members."""
    document: dict[str, Any] = {"id": ident, "type": kind}
    if data is not None:
        document["data"] = json.loads(data) if data.strip() else {}
    return json.dumps(document, ensure_ascii=False)


def channel_signal(text: str, fallback_id: str) -> tuple[str, str, str | None]:
    """Id, type and data of a signal as Kafka topic and file carry it: `{"id": …, "type": …, "data": {…}}`.

    A signal without an id gets `fallback_id`. Raises `SignalError` for what is none.
    """
    _require_size("a signal", text)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"a signal must be a JSON object, this is not JSON: {text[:80]!r}"
        raise SignalError(message) from error
    _require_text("a signal", text, document)
    if not isinstance(document, dict):
        message = f"a signal must be a JSON object, not {_json_type(document)}"
        raise SignalError(message)
    ident, kind, data = document.get("id"), document.get("type"), document.get("data")
    if not isinstance(kind, str):
        message = 'a signal lacks its type; example: {"id": "1", "type": "log", "data": {"message": "at {}"}}'
        raise SignalError(message)
    if ident is not None and not isinstance(ident, (str, int)):
        message = f"the id of a signal must be text, not {_json_type(ident)}"
        raise SignalError(message)
    if len(str(ident)) > LONGEST_ID:
        message = f"the id of a signal has {LONGEST_ID} characters at most"
        raise SignalError(message)
    named = str(ident) if ident not in (None, "") else fallback_id
    return named, kind, data if data is None or isinstance(data, str) else json.dumps(data)


# ── the types ────────────────────────────────


def _parse_execute(signal_id: str, data: dict[str, Any]) -> Command:
    _require_known_keys(
        EXECUTE_SNAPSHOT, data, ("data-collections", "type", "additional-conditions", "surrogate-key", "merge", "via")
    )
    blocking = _is_blocking(data)
    if "data-collections" not in data:
        message = 'data-collections is missing; example: {"data-collections": ["shop\\\\.orders"]}'
        raise SignalError(message)
    collections = _patterns(data["data-collections"])
    if not collections:
        message = "data-collections is empty; name at least one table"
        raise SignalError(message)
    return ExecuteSnapshot(
        signal_id,
        collections,
        _conditions(data.get("additional-conditions"), selects=blocking),
        _merge(data.get("merge")),
        _surrogate(data.get("surrogate-key")),
        blocking,
        _via(data.get("via")),
    )


def _parse_stop(signal_id: str, data: dict[str, Any]) -> Command:
    _require_known_keys(STOP_SNAPSHOT, data, ("data-collections", "type"))
    _is_blocking(data)  # of either kind: its tables say what is stopped
    collections = data.get("data-collections")
    return StopSnapshot(signal_id, () if collections is None else _patterns(collections))


def _parse_pause(signal_id: str, _data: dict[str, Any]) -> Command:
    return PauseSnapshot(signal_id)


def _parse_resume(signal_id: str, _data: dict[str, Any]) -> Command:
    return ResumeSnapshot(signal_id)


def _parse_log(signal_id: str, data: dict[str, Any]) -> Command:
    message = data.get("message")
    if not isinstance(message, str):
        reason = (
            f"message must be text, not {_json_type(message)}" if "message" in data else "message is missing"
        )
        raise SignalError(reason)
    return LogMessage(signal_id, message)


def _parse_reload(signal_id: str, _data: dict[str, Any]) -> Command:
    return ReloadTables(signal_id)


_PARSERS: Final[dict[str, Callable[[str, dict[str, Any]], Command]]] = {
    EXECUTE_SNAPSHOT: _parse_execute,
    STOP_SNAPSHOT: _parse_stop,
    PAUSE_SNAPSHOT: _parse_pause,
    RESUME_SNAPSHOT: _parse_resume,
    LOG: _parse_log,
    RELOAD_TABLES: _parse_reload,
    PAUSE_SOURCE: lambda signal_id, _data: ChangeSource(signal_id, PAUSE_SOURCE),
    RESUME_SOURCE: lambda signal_id, _data: ChangeSource(signal_id, RESUME_SOURCE),
    CLOSE_SOURCE: lambda signal_id, _data: ChangeSource(signal_id, CLOSE_SOURCE),
}


# ── their data ────────────────────────────────


def _unknown_type(signal_type: str) -> str:
    if not signal_type.strip():
        return "a signal lacks its type; example: 'execute-snapshot'"
    if signal_type in WINDOW_TYPES:
        return f"rows of type {signal_type!r} are written by chunk readers; ask for a snapshot by 'execute-snapshot'"
    if signal_type == LOAD_ANSWER:
        return f"rows of type {signal_type!r} are written by the merge job, to the signal table"
    if signal_type in _NOT_YET:
        return f"signal type {signal_type!r} is not supported yet"
    known = ", ".join(sorted(_PARSERS))
    nearest = difflib.get_close_matches(signal_type.lower(), _PARSERS, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"known are {known}"
    return f"unknown signal type {signal_type!r}; {hint}"


def _document(data: str | None) -> dict[str, Any]:
    if data is None or not data.strip():
        return {}
    _require_size("data", data)
    try:
        document = json.loads(data)
    except json.JSONDecodeError as error:
        message = f"data is not valid JSON: {error.msg} at line {error.lineno} column {error.colno}"
        raise SignalError(message) from error
    except (RecursionError, ValueError) as error:
        message = f"data is not valid JSON: {_refusal_of(error)}"
        raise SignalError(message) from error
    _require_text("data", data, document)
    if not isinstance(document, dict):
        message = f"data must be a JSON object, not {_json_type(document)}"
        raise SignalError(message)
    return document


def _refusal_of(error: Exception) -> str:
    """Return what Python's parser minds that JSON allows."""
    return "nested too deeply" if isinstance(error, RecursionError) else "a number of too many digits"


def _require_size(what: str, text: str) -> None:
    if len(text) > LARGEST_SIGNAL:
        message = f"{what} has {len(text)} characters; a signal has {LARGEST_SIGNAL} at most"
        raise SignalError(message)


def _require_text(what: str, text: str, document: object) -> None:
    """Refuse halves of surrogate pairs, which JSON can escape and no answer can be written with."""
    if "\\u" not in text and text.isascii():
        return
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        message = f"{what} holds a half of a surrogate pair, which is no character"
        raise SignalError(message) from error


def _require_known_keys(signal_type: str, data: dict[str, Any], known: Sequence[str]) -> None:
    """Refuse keys that look like a misspelt one; others are ignored, as Debezium does."""
    for key in data:
        if key in known:
            continue
        nearest = difflib.get_close_matches(key.lower().replace("_", "-"), known, n=1, cutoff=0.8)
        if nearest:
            message = f"{signal_type} has no key {key!r}; did you mean {nearest[0]!r}?"
            raise SignalError(message)


def _is_blocking(data: dict[str, Any]) -> bool:
    kind = data.get("type")
    if kind is None:
        return False
    if not isinstance(kind, str):
        message = f"type must be text, not {_json_type(kind)}"
        raise SignalError(message)
    if kind.upper() not in ("INCREMENTAL", "BLOCKING"):
        message = f"unknown snapshot type {kind!r}; known are INCREMENTAL and BLOCKING"
        raise SignalError(message)
    return kind.upper() == "BLOCKING"


def _patterns(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        message = f"data-collections must be a list of texts, not {_json_type(value)}"
        raise SignalError(message)
    return tuple(_pattern(item, f"data-collections[{index}]") for index, item in enumerate(value))


def _pattern(value: object, where: str) -> str:
    text = _non_empty_text(value, where)
    try:
        if text.count("(") > _MAX_GROUPS:
            raise RecursionError
        re.compile(text, re.IGNORECASE)
    except RecursionError as error:
        message = f"{where} has more than {_MAX_GROUPS} parentheses"
        raise SignalError(message) from error
    except (re.error, ValueError, OverflowError) as error:  # the last two: flags and numbers that it minds
        message = f"{where} is not a regular expression: {error} in {_shown(text)}"
        raise SignalError(message) from error
    return text


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]!r} ..."


def _non_empty_text(value: object, where: str) -> str:
    if not isinstance(value, str):
        message = f"{where} must be text, not {_json_type(value)}"
        raise SignalError(message)
    if not value.strip():
        message = f"{where} is empty"
        raise SignalError(message)
    return value.strip()


def _conditions(value: object, *, selects: bool = False) -> tuple[Condition, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        message = f"additional-conditions must be a list of objects, not {_json_type(value)}"
        raise SignalError(message)
    named = enumerate(value)
    return tuple(_condition(item, f"additional-conditions[{index}]", selects=selects) for index, item in named)


def _surrogate(value: object) -> str | None:
    return None if value in (None, "") else _non_empty_text(value, "surrogate-key")


def _merge(value: object) -> str | None:
    if value is None or value in ("spark", "producer"):
        return None if value is None else str(value)
    message = f"merge must be 'spark' or 'producer', not {value!r}"
    raise SignalError(message)


def _via(value: object) -> str | None:
    if value is None or value in ("auto", "kafka", "spark"):
        return None if value is None else str(value)
    message = f"via must be 'auto', 'kafka' or 'spark', not {value!r}"
    raise SignalError(message)


def _condition(value: object, where: str, *, selects: bool) -> Condition:
    if not isinstance(value, dict):
        message = f"{where} must be an object, not {_json_type(value)}"
        raise SignalError(message)
    for name in ("data-collection", "filter"):
        if name not in value:
            message = f'{where} lacks {name!r}; example: {{"data-collection": "shop.t", "filter": "id > 5"}}'
            raise SignalError(message)
    pattern = _pattern(value["data-collection"], f"{where}.data-collection")
    predicate = _non_empty_text(value["filter"], f"{where}.filter")
    if selects:
        predicate = _selected(predicate, pattern, f"{where}.filter")
    require_predicate(predicate, f"{where}.filter")
    return Condition(pattern, predicate)


_NAME: Final = r"`(?:[^`]|``)+`|[\w$]+"
_SELECT: Final = re.compile(
    rf"SELECT\s+\*\s+FROM\s+(?P<first>{_NAME})(?:\s*\.\s*(?P<second>{_NAME}))?(?:\s+WHERE\s(?P<predicate>.+))?",
    re.IGNORECASE | re.DOTALL,
)


def _selected(text: str, pattern: str, where: str) -> str:
    """Return the predicate of a filter as Debezium's blocking snapshots take it: a whole SELECT; a predicate is itself."""
    if not re.match(r"select\b", text, re.IGNORECASE):
        return text
    found = _SELECT.fullmatch(text.rstrip().removesuffix(";").rstrip())
    names = [] if found is None else [unquoted(name) for name in (found["first"], found["second"]) if name]
    if found is None or (names[1:] and not re.fullmatch(pattern, ".".join(names), re.IGNORECASE)):
        message = f"{where} must be a predicate, or a SELECT of all columns of that very table with one, not {text[:80]!r}"
        raise SignalError(message)
    return (found["predicate"] or "TRUE").strip()


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    names = {dict: "an object", list: "a list", str: "text", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)


# ── predicates ────────────────────────────────

# One lexical element of a predicate; quotes take '' and \' as escapes, as the pinned sql_mode '' does.
_ELEMENT: Final = re.compile(
    r"""
      (?P<string>'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*"|`(?:[^`]|``)*`)
    | (?P<comment>\#|/\*|--(?=[\s\x00-\x1f]|\Z))
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def require_predicate(text: str, where: str) -> None:
    """Refuse what is not one predicate: it is put in parentheses into every chunk's WHERE.

    No `;`, no comments, quotes and parentheses balanced, no SELECT statement. It is not a sandbox: a client that
    may write to the signal table may use any expression the reader's account may evaluate.
    """
    if re.match(r"(select|with|table|values)\b", text, re.IGNORECASE):
        message = f'{where} must be a predicate such as "id > 5", not a statement'
        raise SignalError(message)
    depth = 0
    for element in _ELEMENT.finditer(text):
        if element["string"] is not None:
            continue
        column = element.start() + 1
        if element["comment"] is not None:
            message = f"{where} holds a comment at column {column}; leave it out"
            raise SignalError(message)
        depth = _checked_depth(element["other"], depth, where, column)
    if depth:
        message = f"{where} has {depth} unclosed parenthes{'is' if depth == 1 else 'es'}"
        raise SignalError(message)


def _checked_depth(character: str, depth: int, where: str, column: int) -> int:
    if character == "?":
        message = f"{where} holds a '?' at column {column}; parameters are not possible, write the value"
        raise SignalError(message)
    if character == ";":
        message = f"{where} holds a ';' at column {column}; it must be one predicate"
        raise SignalError(message)
    if character in "'\"`":
        message = f"{where} has an unclosed {character} at column {column}"
        raise SignalError(message)
    if character == "(":
        return depth + 1
    if character == ")":
        if depth == 0:
            message = f"{where} closes a parenthesis at column {column} that was not opened"
            raise SignalError(message)
        return depth - 1
    return depth
