"""Expressions of Flink CDC as Spark SQL has them: the text of `projection` or `filter` enters, text and notes leave. Pure.

Most functions have the same name and meaning in both. Others are renamed or written otherwise (`_REWRITTEN`), and those that Spark
SQL does not have, or that give another value when a batch is run again, are named: `Translated.missing`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tidemark.importers.flink_cdc.null_logic import two_valued
from tidemark.importers.flink_cdc.table_patterns import divided

_PIECE: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\\\*|\d+(?:\.\d+)?|\w+|\|\||<>|[<>!=]=|\s+|.", re.DOTALL)
_ALIAS: Final = re.compile(r"(?P<inner>.+?)\s+(?:AS\s+)?(?P<name>`[^`]+`|[A-Za-z_]\w*)", re.IGNORECASE | re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z_]\w*")

SAME: Final = frozenset({
    "ABS", "CEIL", "CEILING", "FLOOR", "ROUND", "CHAR_LENGTH", "UPPER", "LOWER", "TRIM", "BTRIM", "REGEXP_REPLACE",
    "REGEXP_COUNT", "REGEXP_INSTR", "REGEXP_SUBSTR", "REGEXP_EXTRACT_ALL", "SUBSTR", "SUBSTRING", "OVERLAY", "POSITION",
    "LOCATE", "INSTR", "CONCAT", "CONCAT_WS", "LPAD", "RPAD", "REPLACE", "REPEAT", "LEFT", "RIGHT", "STARTSWITH", "ENDSWITH",
    "EXTRACT", "YEAR", "QUARTER", "MONTH", "DAYOFYEAR", "DAYOFMONTH", "DAYOFWEEK", "HOUR", "MINUTE", "SECOND",
    "DATE_FORMAT", "TIMESTAMPADD", "TIMESTAMPDIFF", "TO_DATE", "FROM_UNIXTIME", "DATE_ADD", "COALESCE",
    "IF", "IFNULL", "NULLIF", "CAST", "TRY_CAST", "PARSE_JSON", "TRY_PARSE_JSON", "CARDINALITY", "ARRAY_CONTAINS",
    "ARRAY_POSITION", "MAP", "ARRAY", "MD5", "SHA1", "SHA2", "MOD", "POWER", "SQRT",
})  # fmt: skip
"""Functions that Spark SQL has under the same name."""
_NOT_FUNCTIONS: Final = frozenset({
    "AND", "OR", "NOT", "IN", "AS", "IS", "CASE", "WHEN", "THEN", "ELSE", "END", "BETWEEN", "LIKE", "ESCAPE", "INTERVAL",
    "FROM", "FOR", "DECIMAL", "NUMERIC", "VARCHAR", "CHAR", "TIMESTAMP", "VARBINARY", "TIME", "TIMESTAMP_LTZ", "BINARY",
    "USING", "ON", "SIMILAR", "TO",
})  # fmt: skip
_CLOCK: Final = frozenset({
    "LOCALTIME", "LOCALTIMESTAMP", "CURRENT_TIME", "CURRENT_DATE", "CURRENT_TIMESTAMP", "NOW", "UUID", "LOCAL_TIME",
})  # fmt: skip
_TYPES: Final[Mapping[str, str]] = {
    "VARCHAR": "STRING", "CHAR": "STRING", "BYTES": "BINARY", "VARBINARY": "BINARY", "TIMESTAMP": "TIMESTAMP_NTZ",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}  # fmt: skip
_EPOCHS: Final = {"0": "timestamp_seconds", "3": "timestamp_millis"}
_METADATA: Final[Mapping[str, str]] = {
    "__SCHEMA_NAME__": "__database__", "__NAMESPACE_NAME__": "__database__", "__TABLE_NAME__": "__table__",
    "__DATA_EVENT_TYPE__": "CASE __op__ WHEN 'u' THEN '+U' WHEN 'd' THEN '-D' ELSE '+I' END",
    "OP_TS": "coalesce(unix_millis(__ts__), 0)",
}  # fmt: skip


def _renamed(name: str) -> Callable[[Sequence[str]], str]:
    return lambda arguments: f"{name}({', '.join(arguments)})"


def _trimmed(side: str, name: str) -> Callable[[Sequence[str]], str]:
    def write(arguments: Sequence[str]) -> str:
        return f"trim({side} {arguments[1]} FROM {arguments[0]})" if len(arguments) == 2 else f"{name}({', '.join(arguments)})"

    return write


def _extracted(arguments: Sequence[str]) -> str:
    group = arguments[2] if len(arguments) > 2 else "0"
    return f"regexp_extract({', '.join(arguments[:2])}, {group})"


def _local_timestamp(arguments: Sequence[str]) -> str:
    """Write TO_TIMESTAMP_LTZ: a number has milliseconds, or seconds with the precision 0; a text has a pattern, perhaps."""
    value = arguments[0] if arguments else ""
    precision = arguments[1] if len(arguments) > 1 else "3"
    if precision in _EPOCHS and (len(arguments) > 1 or re.fullmatch(r"-?\d+", value)):
        return f"{_EPOCHS[precision]}({value})"
    return f"TO_TIMESTAMP_LTZ({', '.join(arguments)})"


_REWRITTEN: Final[Mapping[str, Callable[[Sequence[str]], str]]] = {
    "TO_TIMESTAMP": _renamed("to_timestamp_ntz"),
    "TO_BASE64": _renamed("base64"),
    "FROM_BASE64_BINARY": _renamed("unbase64"),
    "FROM_BASE64": lambda arguments: f"CAST(unbase64({', '.join(arguments)}) AS STRING)",
    "ROW": _renamed("struct"),
    "LTRIM": _trimmed("LEADING", "ltrim"),
    "RTRIM": _trimmed("TRAILING", "rtrim"),
    "REGEXP_EXTRACT": _extracted,
    "WEEK": _renamed("weekofyear"),
    "TO_TIMESTAMP_LTZ": _local_timestamp,
}
_NOTES: Final[Mapping[str, str]] = {
    "REGEXP_EXTRACT": "regexp_extract gives '' where nothing matches, not NULL",
    "DATE_FORMAT": "date_format has the patterns of Java's DateTimeFormatter, not of SimpleDateFormat",
    "CONCAT": "concat is NULL where an argument is NULL, and has the text null in Flink CDC: write coalesce(column, 'null')",
    "||": "|| is NULL if a side is NULL, and has the text null in Flink CDC: write coalesce(column, 'null')",
    "/": "whole numbers are divided without a fraction in Flink CDC (7 / 2 is 3), and with one here: write 7 DIV 2",
    "__NAMESPACE_NAME__": "__namespace_name__ is the database, as __schema_name__ is: MySQL has one level",
    "__DATA_EVENT_TYPE__": "__data_event_type__ is of the newest record of a row, and the row before an update has +U as well",
}


@dataclass(frozen=True, slots=True)
class Translated:
    """An expression in Spark SQL, what to know of it, and what of it Spark SQL does not have: then it cannot be used."""

    text: str
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def split_items(text: str) -> list[str]:
    """Return the items of a projection: commas outside of brackets and quotes divide."""
    return divided(_pieces(text), "([", ")]")


def alias_of(item: str) -> tuple[str, str | None]:
    """Return an item of a projection without its alias, and the alias; None where it has none (`id`, `*`)."""
    found = _ALIAS.fullmatch(item)
    if found is None or found["name"].upper() in _NOT_FUNCTIONS:
        return item, None
    inner = found["inner"].rstrip()
    is_whole = inner.endswith((")", "'", "]", "`")) or re.search(r"\s+AS\s+\S+\Z", item, re.IGNORECASE) or _is_operand(inner)
    return (inner, found["name"].strip("`")) if is_whole else (item, None)


def _is_operand(text: str) -> bool:
    last = [piece for piece in _PIECE.findall(text) if not piece.isspace()][-1]
    return bool(re.fullmatch(r"\w+", last)) and last.upper() not in _NOT_FUNCTIONS


def is_metadata(text: str) -> bool:
    """Return whether an expression is one name of metadata, which is the name of its column in Flink CDC."""
    return text.strip().upper() in _METADATA


def names_in(text: str) -> set[str]:
    """Return the names of columns in an expression, and other words outside of quotes that are no function, in lower case."""
    pieces = [*_pieces(text), ""]
    words = {piece.lower() for at, piece in enumerate(pieces[:-1]) if _WORD.fullmatch(piece) and pieces[_next(pieces, at)] != "("}
    return words | {piece.strip("`").lower() for piece in pieces if piece.startswith("`")}


def translated(
    text: str,
    own: AbstractSet[str] = frozenset(),
    models: AbstractSet[str] = frozenset(),
    *,
    is_value: bool = False,
    computed: Mapping[str, str] = MappingProxyType({}),
) -> Translated:
    """Return an expression in Spark SQL; `own` are user-defined functions and `models` AI models, by their names in lower case.

    `is_value`: it is a column, not a condition. `computed` are the expressions of columns, by their names in lower case.
    """
    writer = _Writer(own, models, computed)
    out = writer.written(two_valued(_pieces(text), is_value=is_value))
    return Translated(out.strip(), tuple(dict.fromkeys(writer.notes)), tuple(dict.fromkeys(writer.missing)))


class _Writer:
    """Writes pieces in Spark SQL, and notes what it cannot write."""

    def __init__(self, own: AbstractSet[str], models: AbstractSet[str], computed: Mapping[str, str]) -> None:
        self._own = own
        self._models = models
        self._computed = computed
        self.notes: list[str] = []
        self.missing: list[str] = []

    def written(self, pieces: Sequence[str]) -> str:
        out: list[str] = []
        at = 0
        while at < len(pieces):
            piece = pieces[at]
            following = _next(pieces, at)
            is_called = following < len(pieces) and pieces[following] == "(" and piece.upper() not in _NOT_FUNCTIONS
            if is_called and _WORD.fullmatch(piece):
                end = _closing(pieces, following)
                out.append(self._call(piece, pieces[following + 1 : end]))
                at = end + 1
            elif piece.upper() in ("ARRAY", "MAP") and following < len(pieces) and pieces[following] == "[":
                end = _closing(pieces, following)
                out.append(f"{piece.lower()}({self.written(pieces[following + 1 : end])})")
                at = end + 1
            else:
                out.append(self._piece(piece, pieces, at))
                at += 1
        return "".join(out)

    def _call(self, name: str, inside: Sequence[str]) -> str:
        word = name.upper()
        if word in _NOTES:
            self.notes.append(_NOTES[word])
        if word == "TO_TIMESTAMP_LTZ" and "," not in inside and not re.match(r"\s*('|-?\d+\s*\Z)", "".join(inside)):
            self.notes.append("TO_TIMESTAMP_LTZ of a number is timestamp_millis(number) in Spark SQL; a text stays")
        if name.lower() in self._models or word.startswith("AI_"):
            self.missing.append(f"{name}() asks an AI model")
        elif word in _CLOCK or (word == "UNIX_TIMESTAMP" and not "".join(inside).strip()):
            self.missing.append(f"{name}() gives another value when a batch is run again")
        elif word in ("CAST", "TRY_CAST"):
            return f"{word}({self._cast(inside)})"
        elif word in _REWRITTEN:
            return _REWRITTEN[word]([self.written(_pieces(part)).strip() for part in split_items("".join(inside))])
        elif name.lower() not in self._own and word not in SAME and word != "UNIX_TIMESTAMP":
            self.missing.append(f"{name}() is no function of Spark SQL with the same meaning")
        return f"{name}({self.written(inside)})"

    def _cast(self, inside: Sequence[str]) -> str:
        at = [number for number, piece in enumerate(inside) if piece.upper() == "AS"]
        if not at:
            return self.written(inside)
        value, kind = inside[: at[-1]], "".join(inside[at[-1] + 1 :]).strip()
        base = re.split(r"[\s(]", kind, maxsplit=1)[0].upper()
        return f"{self.written(value).rstrip()} AS {_TYPES.get(base, kind)}"

    def _piece(self, piece: str, pieces: Sequence[str], at: int) -> str:
        word = piece.upper()
        if (name := piece.strip('`"').lower()) in self._computed and not piece.startswith("'"):
            return f"({self._computed[name]})"
        if word in ("||", "/"):
            self.notes.append(_NOTES[word])
        if piece.startswith("'"):
            return "'" + piece[1:-1].replace("\\", "\\\\").replace("''", "\\'") + "'"
        if piece.startswith('"'):
            return f"`{piece[1:-1]}`"
        if word in _METADATA:
            if word in _NOTES:
                self.notes.append(_NOTES[word])
            return _METADATA[word]
        if word in _CLOCK:
            self.missing.append(f"{piece} gives another value when a batch is run again")
        if word == "LIKE" and "ESCAPE" not in {one.upper() for one in pieces[at:]}:
            self.notes.append("LIKE without ESCAPE is a regular expression in Flink CDC, and SQL's LIKE here: else write RLIKE")
        if word == "SIMILAR":
            self.missing.append("SIMILAR TO is no operator of Spark SQL: write RLIKE")
        if piece == "[":
            self.missing.append("[n] begins at 1 in Flink CDC and at 0 in Spark SQL: write element_at(value, n)")
        return "*" if piece == "\\*" else piece


def _pieces(text: str) -> list[str]:
    return _PIECE.findall(text)


def _next(pieces: Sequence[str], at: int) -> int:
    """Return the index of the next piece that is no space."""
    following = at + 1
    while following < len(pieces) and pieces[following].isspace():
        following += 1
    return following


def _closing(pieces: Sequence[str], at: int) -> int:
    """Return the index of the bracket that closes the one at an index; that behind the last piece without one."""
    depth = 0
    for number in range(at, len(pieces)):
        depth += (pieces[number] in ("(", "[")) - (pieces[number] in (")", "]"))
        if not depth:
            return number
    return len(pieces)
