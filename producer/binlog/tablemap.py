"""TABLE_MAP events: which columns the next rows events have.

With `binlog_row_metadata=FULL` they name columns, character sets, members of ENUM and SET and the primary
key: the truth about a table at its position in the log.

Body: table id 6, flags 2, database and table (length 1, bytes, 0), columns packed, a type byte each, metadata
(packed length), null bitmap, optional metadata (type 1, length packed, value). Source: MySQL 9
`rows_event.h`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from producer.binlog.byte_reader import Reader, truncated, view_of
from rowcodec.charsets import charset_of, decode_text
from schemas.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from producer.binlog.byte_reader import Buffer

_HEADER: Final = 19
_TABLE_ID_AND_FLAGS: Final = 8
_MAX_COLUMNS: Final = 4096
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")

TYPE_YEAR: Final = 13
TYPE_VARCHAR: Final = 15
TYPE_JSON: Final = 245
TYPE_NEWDECIMAL: Final = 246
TYPE_ENUM: Final = 247
TYPE_SET: Final = 248
TYPE_BLOB: Final = 252
TYPE_VAR_STRING: Final = 253
TYPE_STRING: Final = 254
TYPE_GEOMETRY: Final = 255

# Bytes of metadata per type code; a type that is not named has none.
_METADATA_SIZES: Final = {
    4: 1, 5: 1, 15: 2, 16: 2, 17: 1, 18: 1, 19: 1, 140: 1, 141: 2, 242: 1, 245: 1, 246: 2, 247: 2, 248: 2,
    249: 1, 250: 1, 251: 1, 252: 1, 253: 2, 254: 2, 255: 1,
}  # fmt: skip
_WITHOUT_METADATA: Final = frozenset({0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14})
_BIG_ENDIAN_METADATA: Final = frozenset({TYPE_NEWDECIMAL, TYPE_ENUM, TYPE_SET, TYPE_STRING})
_NUMERIC: Final = frozenset({1, 2, 3, 4, 5, 8, 9, TYPE_NEWDECIMAL})
_NUMERIC_AND_YEAR: Final = _NUMERIC | {TYPE_YEAR}
_VECTOR_DIMENSIONS: Final = 13
_FIRST_WITH_YEAR: Final = (8, 0, 21)
_FIRST_WITH_POINT: Final = (8, 0, 0)
_CHARACTER: Final = frozenset({TYPE_VARCHAR, TYPE_BLOB, TYPE_VAR_STRING, TYPE_STRING, 140, 141})


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """The optional metadata, one element per column unless said otherwise.

    `names` is () and `visible` all True when the server does not report. `collations` is the collation id of
    character, ENUM and SET columns, 63 for binary ones, None for the rest. `members` holds the bytes of ENUM
    and SET members in the column's character set (`member_texts`). `primary_key` is (column index, prefix
    length in characters, 0 = whole) in key order.
    """

    names: tuple[str, ...]
    unsigned: tuple[bool, ...]
    collations: tuple[int | None, ...]
    members: tuple[tuple[bytes, ...], ...]
    geometry_types: tuple[int | None, ...]
    primary_key: tuple[tuple[int, int], ...]
    visible: tuple[bool, ...]

    @property
    def is_full(self) -> bool:
        """Whether the server writes `binlog_row_metadata=FULL`."""
        return bool(self.names)

    def member_texts(self, column: int, known: Mapping[int, str] | None = None) -> tuple[str, ...]:
        """Return the members of an ENUM or SET column as text.

        `known` maps collation ids to character sets, as the server lists them. Raises `DecodeError` for
        a character set without codec and bytes outside of it.
        """
        collation = self.collations[column]
        charset = "utf8mb4" if collation is None else charset_of(collation, known) or f"of {collation}"
        try:
            return tuple(_member_text(member, charset) for member in self.members[column])
        except (LookupError, UnicodeDecodeError) as error:
            reason = (
                f"members of column {self.names[column] if self.names else column} cannot be read: {error}"
            )
            raise DecodeError(reason) from error


def _member_text(member: bytes, charset: str) -> str:
    return member.decode("utf-8") if charset == "binary" else decode_text(member, charset)


@dataclass(frozen=True, slots=True)
class TableMap:
    """One table version as the log announces it.

    `types` are real types: ENUM 247 and SET 248 are distinguished from STRING 254. `metas` by type: VARCHAR and
    STRING: most bytes; ENUM and SET: bytes of a value; NEWDECIMAL: precision << 8 | scale; BIT: whole bytes
    << 8 | further bits; BLOB, JSON, GEOMETRY, VECTOR: bytes of the length; FLOAT and DOUBLE: size; TIME2,
    DATETIME2, TIMESTAMP2: digits of the fraction; else 0. `fingerprint` is the body behind id and flags:
    equal bytes of one server version are the same version of the table. `bare_doubles`: it has JSON columns, and the server
    prints whole doubles in them without `.0`.
    """

    table_id: int
    database: str
    table: str
    types: tuple[int, ...]
    metas: tuple[int, ...]
    nullable: tuple[bool, ...]
    metadata: TableMetadata | None
    fingerprint: bytes
    bare_doubles: bool = False


def parse_table_name(buf: Buffer, start: int, end: int) -> tuple[int, str, str]:
    """(table id, database, table), whatever the columns are."""
    reader = Reader(buf, start + _HEADER, end)
    table_id = reader.uint(6)
    reader.skip(2)
    return table_id, _name(reader), _name(reader)


def _name(reader: Reader) -> str:
    name = reader.read_bytes(reader.uint(1))
    if reader.uint(1) != 0:
        reason = "a name in a table map does not end with a zero byte"
        raise DecodeError(reason)
    return _utf8(name)


def _utf8(name: bytes) -> str:
    r"""Return the name. Halves of surrogate pairs, which MariaDB accepts, are escaped (`\xed\xa0\x80`), as the server does it."""
    try:
        name.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        reason = f"a name in a table map is not UTF-8: {name[:64]!r}"
        raise DecodeError(reason) from None
    return name.decode("utf-8", "backslashreplace")


def parse_table_map(buf: Buffer, start: int, end: int, server_version: str = "") -> TableMap:
    """Parse the whole event. `server_version` is the text of the file's format description, "" a recent one.

    Raises `DecodeError` for a column type whose metadata is not known, and for nonsense.
    """
    view = view_of(buf)
    reader = Reader(view, start + _HEADER, end)
    table_id = reader.uint(6)
    reader.skip(2)
    database, table = _name(reader), _name(reader)
    count = reader.packed()
    if not 0 < count <= _MAX_COLUMNS:
        reason = f"a table map of {database}.{table} with {count} columns"
        raise DecodeError(reason)
    codes = reader.read_bytes(count)
    types, metas = _types(Reader(reader.read_bytes(reader.packed())), codes, f"{database}.{table}")
    nulls = int.from_bytes(reader.read_bytes((count + 7) // 8), "little")
    nullable = tuple(bool(nulls >> index & 1) for index in range(count))
    metadata = _metadata(reader, types, server_version) if reader.left else None
    fingerprint = bytes(view[start + _HEADER + _TABLE_ID_AND_FLAGS : end])
    bare = TYPE_JSON in types and prints_bare_doubles(server_version)
    return TableMap(table_id, database, table, types, metas, nullable, metadata, fingerprint, bare)


def _types(reader: Reader, codes: bytes, table: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    types: list[int] = []
    metas: list[int] = []
    for code in codes:
        size = _METADATA_SIZES.get(code)
        if size is None and code not in _WITHOUT_METADATA:
            reason = f"a table map of {table} holds a column of the unknown type {code}"
            raise DecodeError(reason)
        raw = reader.read_bytes(size or 0)
        meta = int.from_bytes(raw, "big" if code in _BIG_ENDIAN_METADATA else "little")
        real, meta = _real_type(code, meta) if code == TYPE_STRING else (code, meta)
        types.append(real)
        metas.append(meta & 0xFF if real in (TYPE_ENUM, TYPE_SET) else meta)
    if reader.left:
        reason = f"a table map of {table} with {reader.left} bytes of column metadata too many"
        raise DecodeError(reason)
    return tuple(types), tuple(metas)


def _real_type(code: int, meta: int) -> tuple[int, int]:
    """Return the type and the length in the metadata of a STRING column: the first byte has the type and two bits of the length."""
    first, length = meta >> 8, meta & 0xFF
    if first == 0:
        return code, length
    if first & 0x30 != 0x30:
        return first | 0x30, length | ((first & 0x30) ^ 0x30) << 4
    return first, length


# ---- optional metadata


def year_has_sign(server_version: str) -> bool:
    """Return whether the server writes a signedness bit for YEAR: MariaDB and MySQL since 8.0.21, not 8.0.15.

    The version is uncertain by one or two (8.0.20's source has none, 8.0.23's has it), hence the look at the
    bit itself as well.
    """
    version = _mysql_version(server_version)
    return version is None or version >= _FIRST_WITH_YEAR


def prints_bare_doubles(server_version: str) -> bool:
    """Return whether the server prints whole doubles in JSON documents without `.0`: MySQL before 8.0."""
    version = _mysql_version(server_version)
    return version is not None and version < _FIRST_WITH_POINT


def _mysql_version(server_version: str) -> tuple[int, ...] | None:
    """Return the numbers of a MySQL version; None for MariaDB and for a text that is no version."""
    match = _VERSION.match(server_version)
    if match is None or "mariadb" in server_version.lower():
        return None
    return tuple(int(part) for part in match.groups())


class _MetadataBuilder:
    """Collects the fields; the methods are the field types, each reads one value."""

    def __init__(self, types: tuple[int, ...], server_version: str) -> None:
        count = len(types)
        self.types = types
        # MariaDB writes a collation for spatial columns too: to it they are blobs.
        self.character = _CHARACTER | {TYPE_GEOMETRY} if "mariadb" in server_version.lower() else _CHARACTER
        self.numeric = _NUMERIC_AND_YEAR if year_has_sign(server_version) else _NUMERIC
        self.names: tuple[str, ...] = ()
        self.unsigned = [False] * count
        self.collations: list[int | None] = [None] * count
        self.members: list[tuple[bytes, ...]] = [()] * count
        self.geometry_types: list[int | None] = [None] * count
        self.primary_key: tuple[tuple[int, int], ...] = ()
        self.visible = [True] * count

    def of(self, kinds: Iterable[int]) -> list[int]:
        """Indexes of the columns of these types."""
        wanted = frozenset(kinds)
        return [index for index, kind in enumerate(self.types) if kind in wanted]

    def signedness(self, reader: Reader) -> None:
        """YEAR is unsigned: where its bit is 0, the server (before 8.0.21) wrote none for it."""
        columns, years = self.of(self.numeric), self.of((TYPE_YEAR,))
        fits = reader.left == (len(columns) + 7) // 8
        bits = reader.read_bytes((len(columns if fits else self.of(_NUMERIC)) + 7) // 8)
        _set_bits(bits, columns if fits else self.of(_NUMERIC), self.unsigned)
        if fits and not all(self.unsigned[year] for year in years):
            _set_bits(bits, self.of(_NUMERIC), self.unsigned)
        for year in years:
            self.unsigned[year] = True

    def visibility(self, reader: Reader) -> None:
        columns = range(len(self.types))
        _set_bits(reader.read_bytes((len(columns) + 7) // 8), columns, self.visible)

    def default_charset(self, reader: Reader) -> None:
        self._default_collation(reader, self.of(self.character))

    def column_charset(self, reader: Reader) -> None:
        self._collations(reader, self.of(self.character))

    def default_member_charset(self, reader: Reader) -> None:
        self._default_collation(reader, self.of((TYPE_ENUM, TYPE_SET)))

    def column_member_charset(self, reader: Reader) -> None:
        self._collations(reader, self.of((TYPE_ENUM, TYPE_SET)))

    def _default_collation(self, reader: Reader, columns: list[int]) -> None:
        default = reader.packed()
        for column in columns:
            self.collations[column] = default
        while reader.left:
            column = _pick(columns, reader.packed())
            self.collations[column] = reader.packed()

    def _collations(self, reader: Reader, columns: list[int]) -> None:
        for column in columns:
            self.collations[column] = reader.packed()

    def column_names(self, reader: Reader) -> None:
        self.names = tuple(_utf8(reader.read_bytes(reader.packed())) for _ in self.types)

    def set_members(self, reader: Reader) -> None:
        self._members(reader, TYPE_SET)

    def enum_members(self, reader: Reader) -> None:
        self._members(reader, TYPE_ENUM)

    def _members(self, reader: Reader, kind: int) -> None:
        for column in self.of((kind,)):
            count = reader.packed()
            if count > reader.left:
                raise truncated("table map")
            self.members[column] = tuple(reader.read_bytes(reader.packed()) for _ in range(count))

    def geometry(self, reader: Reader) -> None:
        for column in self.of((TYPE_GEOMETRY,)):
            self.geometry_types[column] = reader.packed()

    def simple_key(self, reader: Reader) -> None:
        key = []
        while reader.left:
            key.append((self._key_column(reader), 0))
        self.primary_key = tuple(key)

    def prefix_key(self, reader: Reader) -> None:
        key = []
        while reader.left:
            column = self._key_column(reader)
            key.append((column, reader.packed()))
        self.primary_key = tuple(key)

    def _key_column(self, reader: Reader) -> int:
        return _pick(range(len(self.types)), reader.packed())

    def build(self) -> TableMetadata:
        return TableMetadata(
            self.names,
            tuple(self.unsigned),
            tuple(self.collations),
            tuple(self.members),
            tuple(self.geometry_types),
            self.primary_key,
            tuple(self.visible),
        )


_FIELDS: Final[Mapping[int, Callable[[_MetadataBuilder, Reader], None]]] = {
    1: _MetadataBuilder.signedness,
    2: _MetadataBuilder.default_charset,
    3: _MetadataBuilder.column_charset,
    4: _MetadataBuilder.column_names,
    5: _MetadataBuilder.set_members,
    6: _MetadataBuilder.enum_members,
    7: _MetadataBuilder.geometry,
    8: _MetadataBuilder.simple_key,
    9: _MetadataBuilder.prefix_key,
    10: _MetadataBuilder.default_member_charset,
    11: _MetadataBuilder.column_member_charset,
    12: _MetadataBuilder.visibility,
}


def _metadata(reader: Reader, types: tuple[int, ...], server_version: str) -> TableMetadata:
    builder = _MetadataBuilder(types, server_version)
    while reader.left:
        code = reader.uint(1)
        value = Reader(reader.read_bytes(reader.packed()))
        if code == _VECTOR_DIMENSIONS:  # the largest length; values have their own
            continue
        read = _FIELDS.get(code)
        if read is None:
            reason = (
                f"field {code} of a table map's metadata is not known, and may change what its columns mean. "
                "A newer release of this program may know it"
            )
            raise DecodeError(reason)
        read(builder, value)
        if value.left >= 1:
            reason = (
                f"field {code} of a table map's metadata is {value.left} bytes longer than its columns need"
            )
            raise DecodeError(reason)
    return builder.build()


def _set_bits(bits: bytes, columns: Sequence[int], target: list[bool]) -> None:
    """One bit per column, the first in the highest bit of the first byte."""
    for index, column in enumerate(columns):
        target[column] = bool(bits[index >> 3] >> (7 - (index & 7)) & 1)


def _pick(columns: list[int] | range, index: int) -> int:
    if index >= len(columns):
        reason = "a table map's metadata names a column that the table does not have"
        raise DecodeError(reason)
    return columns[index]
