"""The columns a TABLE_MAP announces, and whether a known table can be the one it announces."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mysqlio.definitions.character_sets import BINARY, BYTES_PER_CHARACTER, SUPPORTED
from mysqlio.definitions.column_definition import ColumnDefinition
from mysqlio.definitions.column_types import to_column
from mysqlio.information_schema import HIDDEN_HASH, hidden_column_refusal
from rowcodec.charsets import charset_of, decode_text
from schemas.columns import Column, ColumnType, TableSchema
from schemas.errors import DecodeError, SourceError, UnsupportedTypeError
from schemas.types.column_facts import (
    ADDRESS_TYPES,
    BINARY_TYPES,
    FACTS,
    FLOAT_BYTES,
    FRACTION_TYPES,
    LARGE_BINARIES,
    LARGE_TEXTS,
    MEMBER_TYPES,
    SHORT_BINARIES,
    SPATIAL_TYPES,
    TEXT_TYPES,
    Semantic,
    semantic_of,
    types_of,
)

if TYPE_CHECKING:
    from mysqlio.information_schema import TableFacts
    from producer.binlog.tablemap import TableMap, TableMetadata

_STRING: Final = 254
_VARCHAR: Final = 15
_BLOB: Final = 252
_COMPRESSED: Final = {140: _BLOB, 141: _VARCHAR}  # MariaDB's; a VARCHAR is one byte longer, for its head

_COMPRESSED_VARCHAR: Final = 141
_MEMBER_CODES: Final = (247, 248)
_NUMERIC: Final = {FACTS[kind].log[0] for kind in types_of(Semantic.INTEGER, Semantic.DECIMAL, Semantic.FLOATING)}

_PLAIN: Final = {facts.log[0]: kind for kind, facts in FACTS.items()}
"""The types that a code says. The codes of texts, bytes and geometries say several: what else is announced decides."""
_GEOMETRY: Final = 255
_UNSIZED_TYPES: Final = types_of(Semantic.FLOATING, Semantic.VECTOR)
_UNSUPPORTED_CODES: Final = {
    0: "DECIMAL as MySQL 4 stored it",
    7: "TIMESTAMP as servers before 5.6 stored it",
    11: "TIME as servers before 5.6 stored it",
    12: "DATETIME as servers before 5.6 stored it",
}


@dataclass(frozen=True, slots=True)
class Announced:
    """What full metadata says of a column beyond its type code. `charset` None = bytes."""

    name: str
    unsigned: bool = False
    charset: str | None = None
    members: tuple[str, ...] = ()
    geometry: int | None = None


def announced_by_log(
    table_map: TableMap, metadata: TableMetadata, index: int, server: Column | None = None
) -> Announced:
    """Return what the log itself says; `server` is the column as the server has it now.

    Raises `DecodeError` for members that are not in their column's character set, unless the server's explain them.
    """
    collation = metadata.collations[index]
    charset = None if collation is None else charset_of(collation) or f"of collation {collation}"
    is_member = table_map.types[index] in _MEMBER_CODES
    return Announced(
        metadata.names[index],
        metadata.unsigned[index],
        charset,
        _members(metadata, index, server) if is_member and charset in SUPPORTED else (),
        metadata.geometry_types[index],
    )


def _members(metadata: TableMetadata, index: int, server: Column | None) -> tuple[str, ...]:
    """ENUM and SET members of the log.

    MariaDB's CONVERT TO CHARACTER SET leaves their bytes as they were. Where those are none of the new character set, the
    server's members count if they are the same bytes read in some other one: somebody has mended the column since.
    """
    try:
        return metadata.member_texts(index)
    except DecodeError:
        known = () if server is None else server.members
        members = metadata.members[index]
        if len(known) == len(members) and all(map(_may_be, members, known)):
            return known
        raise


def _may_be(member: bytes, text: str) -> bool:
    """Whether a member is that text in some character set; `?` also stands for what is no character."""
    if "?" in text and b"?" not in member:
        return False
    return any(_text_of(member, charset) == text for charset in SUPPORTED)


def _text_of(member: bytes, charset: str) -> str | None:
    try:
        return decode_text(member, charset)
    except (LookupError, UnicodeDecodeError):
        return None


def announced_by_column(column: Column) -> Announced:
    """Return what a column that is known would have been announced with."""
    geometry = SPATIAL_TYPES.index(column.type) if column.type in SPATIAL_TYPES else None
    return Announced(column.name, column.unsigned, column.charset, column.members, geometry)


def announced_column(table_map: TableMap, index: int, announced: Announced) -> Column | str:
    """Return the column as a TABLE_MAP has it, or what it is where it can't be captured."""
    code, meta = table_map.types[index], table_map.metas[index]
    if code in _UNSUPPORTED_CODES:
        return _UNSUPPORTED_CODES[code]
    if code in _COMPRESSED:
        code, meta = _COMPRESSED[code], meta - (code == _COMPRESSED_VARCHAR)
    charset = announced.charset
    kind = _type_of(code, meta, binary=charset in (None, BINARY))
    if code == _GEOMETRY:
        kind = _spatial_type(announced.geometry)
    if kind is None:
        return f"type code {code}"
    column = Column(announced.name, kind, table_map.nullable[index], unsigned=announced.unsigned)
    if semantic_of(column) is Semantic.YEAR:
        column = replace(column, unsigned=False)
    if kind in TEXT_TYPES or kind in MEMBER_TYPES:
        if charset not in SUPPORTED:
            return f"{kind} with character set {charset}"
        column = replace(column, charset=charset)
    if kind in MEMBER_TYPES:
        return replace(column, members=announced.members)
    return _with_sizes(column, meta)


def _type_of(code: int, meta: int, *, binary: bool) -> ColumnType | None:
    if code == _BLOB:
        return (LARGE_BINARIES if binary else LARGE_TEXTS)[meta - 1]
    if code in (_STRING, _VARCHAR):
        return next(kind for kind in (BINARY_TYPES if binary else TEXT_TYPES) if code in FACTS[kind].log)
    return _PLAIN.get(code)


def _spatial_type(number: int | None) -> ColumnType | None:
    number = number or 0  # a log that does not say holds geometries of any kind
    return SPATIAL_TYPES[number] if number < len(SPATIAL_TYPES) else None


def _with_sizes(column: Column, meta: int) -> Column:
    kind = semantic_of(column)
    if kind is Semantic.DECIMAL:
        return replace(column, precision=meta >> 8, scale=meta & 0xFF)
    if kind is Semantic.BIT:
        return replace(column, length=(meta >> 8) * 8 + (meta & 0xFF))
    if column.type in FRACTION_TYPES:
        return replace(column, precision=meta)
    if FACTS[column.type].length:
        return replace(column, length=meta // BYTES_PER_CHARACTER.get(column.charset or BINARY, 1))
    return column


def hidden_type(column: Column, declared: ColumnDefinition | None, server: Column | None) -> Column:
    """Return the column; as what DDL text or else the server says where the log shows another type.

    MariaDB's UUID and INET are BINARY there, its VECTOR(n) a VARBINARY of 4n bytes.
    """
    is_declared = declared is not None and declared.type_name
    known = to_column(declared, None, "mariadb") if declared is not None and is_declared else server
    if known is None:
        return column
    if column.type not in SHORT_BINARIES:
        return column
    is_fixed, facts = FACTS[column.type].length == "fixed", FACTS[known.type]
    if is_fixed and known.type in ADDRESS_TYPES and facts.size == column.length:
        return replace(column, type=known.type, length=None)
    is_vector = facts.semantic is Semantic.VECTOR and known.length is not None and known.length * FLOAT_BYTES == column.length
    return replace(column, type=known.type, length=known.length) if is_vector and not is_fixed else column


def same_type(column: Column, server: Column) -> bool:
    """Return whether the server's column is the log's: all that a TABLE_MAP contains is equal."""
    bare = replace(
        server,
        nullable=column.nullable,
        collation=None,
        default=None,
        has_default=False,
        default_is_expression=False,
        comment=None,
        display=None,
        zerofill=False,
        filled_by="",
    )
    return with_float_digits(column, server) == bare


def with_float_digits(column: Column, server: Column) -> Column:
    """FLOAT(M,D), DOUBLE(M,D) and VECTOR(n): the log has neither M and D nor n."""
    if column.type not in _UNSIZED_TYPES:
        return column
    return replace(column, length=server.length, scale=server.scale)


# ── a table that is known ────────────────────────────────


def disagreement(table_map: TableMap, schema: TableSchema) -> str:
    """Return why the table cannot be the one that is announced, "" where all that is announced fits.

    Two columns of one type that changed places fit as well: a TABLE_MAP without names does not show it.
    """
    if len(table_map.types) != len(schema.columns):
        return f"the log has {len(table_map.types)} columns, the table {len(schema.columns)}"
    for index, column in enumerate(schema.columns):
        why = _column_disagreement(table_map, index, column)
        if why:
            return f"column {column.name} is {_words(column)}, {why}"
    return ""


def _column_disagreement(table_map: TableMap, index: int, column: Column) -> str:
    code, meta = table_map.types[index], table_map.metas[index]
    found = announced_column(table_map, index, announced_by_column(column))
    if isinstance(found, str):
        return f"the log has {found}"
    found = hidden_type(found, None, column)
    if not same_type(found, column):
        return f"the log has {_words(found)} (type code {code}, {meta})"
    if found.nullable != column.nullable:
        return f"the log has it {'nullable' if found.nullable else 'NOT NULL'}"
    if column.type in TEXT_TYPES and FACTS[column.type].length:
        width = BYTES_PER_CHARACTER.get(column.charset or BINARY, 1)
        if meta - (code == _COMPRESSED_VARCHAR) != (column.length or 0) * width:
            return f"the log has at most {meta} bytes"
    if column.type in MEMBER_TYPES and meta != _member_bytes(column):
        return f"the log has values of {meta} bytes"
    return _metadata_disagreement(table_map, index, column)


def _metadata_disagreement(table_map: TableMap, index: int, column: Column) -> str:
    """Compare signs and character sets, which metadata that is not full contains."""
    metadata = table_map.metadata
    if metadata is None:
        return ""
    if table_map.types[index] in _NUMERIC and metadata.unsigned[index] != column.unsigned:
        return f"the log has it {'unsigned' if metadata.unsigned[index] else 'signed'}"
    collation = metadata.collations[index]
    if collation is None or column.type not in TEXT_TYPES:
        return ""
    charset = charset_of(collation)
    return "" if charset == column.charset else f"the log has character set {charset}"


def _member_bytes(column: Column) -> int:
    count = len(column.members)
    if semantic_of(column) is Semantic.ENUM:
        return 1 if count <= 0xFF else 2
    size = (count + 7) // 8
    return 8 if size > 4 else size


def _words(column: Column) -> str:
    sizes = ",".join(str(size) for size in (column.length, column.precision, column.scale) if size is not None)
    text = f"{column.type.value}({sizes})" if sizes else column.type.value
    return text + (" unsigned" if column.unsigned else "") + (f" in {column.charset}" if column.charset else "")


# ---- errors for tables that cannot be captured


def nameless_columns(table_map: TableMap, why: str) -> SourceError:
    """Return the error for a log without column names, where they are not known otherwise."""
    return SourceError(
        f"the log does not name the columns of {table_map.database}.{table_map.table}, and which they were there is "
        f"not certain: {why}. Run SET GLOBAL binlog_row_metadata=FULL where the server has it (MySQL 8.0.1, "
        f"MariaDB 10.5; and put it into its configuration). A table that is set aside is read again by itself "
        f"then; with on_table_error: stop, start under another name, so that the tables are read again"
    )


def unreadable_members(table_map: TableMap, name: str, error: DecodeError) -> SourceError:
    """Return the error for ENUM and SET members that are not in the character set of their column."""
    table = f"{table_map.database}.{table_map.table}"
    return SourceError(
        f"table {table}: {error.reason}. MariaDB's CONVERT TO CHARACTER SET leaves the bytes of ENUM and SET members as they "
        f"were, and can then not show them itself. Make a new column: ALTER TABLE {table} ADD COLUMN new_column with the "
        f"members spelled out in the same order; give every row new_column = {name} + 0; drop {name}, rename new_column to it, "
        f"and start again: what is in the log is then read with these members. Or leave the table out of source.tables"
    )


def unsupported_column(table_map: TableMap, name: str, kind: str) -> UnsupportedTypeError:
    """Return the error for a column whose type is not captured."""
    return UnsupportedTypeError(
        f"column {table_map.database}.{table_map.table}.{name} ({kind}) can't be captured yet; leave the "
        f"table out of source.tables"
    )


def refuse_hidden_columns(schema: TableSchema, facts: TableFacts | None) -> None:
    """Raise `SourceError` for a table with a column that only the log shows."""
    shown = {column.name for column in facts.schema.columns} if facts is not None else set()
    for column in schema.columns:
        hashed = column.name.startswith(HIDDEN_HASH)
        expression = len(column.name) == 32 and not column.name.strip("0123456789abcdef")
        if column.name not in shown and (hashed or expression):
            raise SourceError(hidden_column_refusal(schema.full_name, f"an index made {column.name}"))
