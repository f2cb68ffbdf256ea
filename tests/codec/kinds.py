"""Column kinds for random tables: DDL, the catalog's column, a strategy of SQL parameters, the value SELECT reports."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Any

from hypothesis import strategies as st

from rowcodec.charsets import decode_text
from schemas.charset_tables import MULTI_BYTE, UNICODE
from schemas.columns import Column, ColumnType
from schemas.types.column_facts import SPATIAL_TYPES

T = ColumnType
Read = Callable[[Any], Any]


@dataclass(frozen=True)
class Kind:
    """One SQL type: `values` gives parameters for INSERT, `read` the decoded value of what SELECT returned.

    SELECT is read without PyMySQL's converters: text as str, binary as bytes. `select` is the expression.
    """

    sql: str
    column: Column
    values: st.SearchStrategy[Any]
    read: Read
    select: str = "{}"
    servers: tuple[str, ...] = ("mysql", "mariadb")  # flavours, a server by its name, or a group of its own
    insert: str = "%s"


def _column(kind: ColumnType, **facts: Any) -> Column:
    return Column("", kind, True, **facts)


def _integer(sql: str, kind: ColumnType, bits: int) -> list[Kind]:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    top = (1 << bits) - 1
    edge = st.sampled_from([0, 1, 63, 64, 127, 128, 255, 256, 8191, 8192])
    signed = st.one_of(
        st.sampled_from([low, high, -1, -64, -65]), edge.map(lambda v: min(v, high)), st.integers(low, high)
    )
    unsigned = st.one_of(
        st.just(top), st.just(high + 1), edge.map(lambda v: min(v, top)), st.integers(0, top)
    )
    read: Read = Decimal if bits == 64 else int
    return [
        Kind(sql, _column(kind), signed, int),
        Kind(f"{sql} UNSIGNED", _column(kind, unsigned=True), unsigned, read),
    ]


def exact_decimal(unscaled: int, scale: int) -> Decimal:
    """unscaled / 10^scale, whatever the context's precision."""
    return Decimal(f"{unscaled}e-{scale}")


def _year_of(digits: int) -> int:
    """The year that two digits stand for."""
    return digits + (2000 if digits < 70 else 1900)


def _decimal(precision: int, scale: int) -> Kind:
    top = 10**precision - 1
    numbers = st.one_of(
        st.sampled_from([0, 1, -1, top, -top]),
        st.integers(-top, top),
        st.integers(0, precision).map(lambda n: 10**n - 1),
        st.integers(0, precision - 1).map(lambda n: -(10**n)),
        st.integers(1, 8 * precision // 3).flatmap(
            lambda n: st.sampled_from(
                [v for v in (1 << n, (1 << n) - 1, -(1 << n), -(1 << n) - 1) if abs(v) <= top]
            )
        ),
    )
    column = _column(T.DECIMAL, precision=precision, scale=scale)
    return Kind(
        f"DECIMAL({precision},{scale})", column, numbers.map(lambda v: exact_decimal(v, scale)), Decimal
    )


def _floats(sql: str, column: Column, width: int) -> Kind:
    values = st.floats(allow_nan=False, allow_infinity=False, width=width)
    if column.scale is not None:
        values = st.integers(-(10**7), 10**7).map(lambda v: v / 1000)
    return Kind(sql, column, values, float, select="{}*1e0" if column.type is T.FLOAT else "{}")


_LATIN1 = "".join(bytes([code]).decode("cp1252", "ignore") or chr(code) for code in range(1, 256))
_BMP = st.characters(max_codepoint=0xFFFF, exclude_categories=("Cs",), exclude_characters="\0")
_ANY = st.characters(exclude_categories=("Cs",))
_ALPHABETS: dict[str, st.SearchStrategy[str]] = {
    "utf8mb4": _ANY,
    "utf8mb3": _BMP,
    "ascii": st.characters(max_codepoint=127),
    "latin1": st.sampled_from(_LATIN1),
    "utf16": _ANY,
    "ucs2": _BMP,
    "utf32": _ANY,
}
_TRICKY = st.sampled_from(["", " ", "a ", "\n", '"', "\\", '{"a": 1}', "\x00", "\x1f\x7f", "null", "'", "%s"])


def _texts(charset: str, size: int) -> st.SearchStrategy[str]:
    longer = st.builds(
        lambda a, n: (a * n)[:size],
        st.text(_ALPHABETS[charset], min_size=1, max_size=4),
        st.sampled_from([15, 63, 64, 65, 300]),
    )
    tricky = _TRICKY.map(lambda text: text[:size])
    return st.one_of(st.text(_ALPHABETS[charset], max_size=min(size, 20)), tricky, longer)


def _text(sql: str, kind: ColumnType, charset: str, size: int, **facts: Any) -> Kind:
    column = _column(kind, charset=charset, **facts)
    return Kind(f"{sql} CHARACTER SET {charset}", column, _texts(charset, size), str)


def _binary(sql: str, kind: ColumnType, size: int, **facts: Any) -> Kind:
    values = st.one_of(
        st.binary(max_size=min(size, 20)),
        st.sampled_from([b"", b"\0", b"a\0", b"\0\0", b" "]).map(lambda v: v[:size]),
    )
    longer = st.builds(
        lambda a, n: (a * n)[:size], st.binary(min_size=1, max_size=3), st.sampled_from([64, 300])
    )
    return Kind(sql, _column(kind, **facts), st.one_of(values, longer), bytes)


def _fraction(digits: int) -> st.SearchStrategy[str]:
    if digits == 0:
        return st.just("")
    return st.integers(0, 10**digits - 1).map(lambda v: f".{v:0{digits}d}")


_DATES = st.one_of(
    st.sampled_from(
        ["0000-00-00", "0001-01-01", "1969-12-31", "1970-01-01", "2000-02-29", "2024-02-31", "9999-12-31"]
    ),
    st.sampled_from(["2023-00-10", "2023-04-00", "1900-02-28", "2100-03-01", "1582-10-10"]),
    st.dates().map(str),
)
_CLOCKS = st.builds("{:02d}:{:02d}:{:02d}".format, st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))


def _days(text: str) -> int | None:
    year, month, day = (int(part) for part in text.split("-"))
    try:
        import datetime

        return (datetime.date(year, month, day) - datetime.date(1970, 1, 1)).days
    except ValueError:
        return None


def _clock_us(text: str) -> int:
    negative = text.startswith("-")
    clock, _, fraction = text.lstrip("-").partition(".")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    value = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int(f"{fraction:0<6}" or "0")
    return -value if negative else value


def _moment(text: str, unit: int) -> int | None:
    day, _, clock = text.partition(" ")
    days = _days(day)
    return None if days is None else (days * 86_400_000_000 + _clock_us(clock)) // unit


def _iso(text: str) -> str | None:
    return None if text.startswith("0000") else text.replace(" ", "T") + "Z"


def _temporal(digits: int) -> list[Kind]:
    fraction = _fraction(digits)
    moments = st.builds("{} {}{}".format, _DATES, _CLOCKS, fraction)
    seconds = st.one_of(st.integers(1, 2**31 - 1), st.sampled_from([1, 2**31 - 1, 86400]))
    stamps = st.one_of(
        st.builds(lambda s, f: f"{_utc(s)}{f}", seconds, fraction), st.just("0000-00-00 00:00:00")
    )
    times = st.builds(
        lambda sign, h, rest, f: f"{sign}{h:02d}:{rest[3:]}{f}",
        st.sampled_from(["", "-"]),
        st.integers(0, 837),
        _CLOCKS,
        fraction,
    )
    unit = 1000 if digits <= 3 else 1
    return [
        Kind(
            f"DATETIME({digits})",
            _column(T.DATETIME, precision=digits),
            moments,
            lambda text: _moment(text, unit),
        ),
        Kind(f"TIMESTAMP({digits})", _column(T.TIMESTAMP, precision=digits), stamps, _iso),
        Kind(f"TIME({digits})", _column(T.TIME, precision=digits), times, _clock_us),
    ]


def _utc(seconds: int) -> str:
    import datetime

    return str(datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds))


def _bits(bits: int) -> Kind:
    values = st.one_of(st.sampled_from([0, 1, (1 << bits) - 1]), st.integers(0, (1 << bits) - 1))
    if bits == 1:
        return Kind("BIT(1)", _column(T.BIT, length=1), values, lambda data: data == b"\1")
    return Kind(f"BIT({bits})", _column(T.BIT, length=bits), values, lambda data: data[::-1])


def _members(labels: list[str], kind: ColumnType, charset: str) -> Kind:
    quoted = ",".join("'" + label.replace("\\", "\\\\").replace("'", "''") + "'" for label in labels)
    chosen: st.SearchStrategy[Any] = st.sampled_from([*labels, "no such label"])
    if kind is T.SET:
        chosen = st.one_of(
            st.lists(st.sampled_from(labels), max_size=4, unique=True).map(",".join),
            st.just(",".join(labels)),
        )
    column = _column(kind, charset=charset, members=tuple(labels))
    return Kind(f"{kind.value}({quoted}) CHARACTER SET {charset}", column, chosen, str)


def _json_values() -> st.SearchStrategy[Any]:
    numbers = st.one_of(
        st.integers(-(2**63), 2**64 - 1),
        st.integers(-70000, 70000),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from([1e15, 1e16, 1e-15, 1e-16, 0.1, -0.0, 100.0, 123456789012345.6]),
    )
    scalars = st.one_of(st.none(), st.booleans(), numbers, _texts("utf8mb4", 400))
    return st.recursive(
        scalars,
        lambda inner: st.one_of(
            st.lists(inner, max_size=6), st.dictionaries(st.text(_ANY, max_size=8), inner, max_size=6)
        ),
        max_leaves=12,
    )


def compact(text: str) -> str:
    """The server's JSON text without the blanks between tokens, made by another way than the kernel's."""
    decoder = json.JSONDecoder(parse_float=_Verbatim, parse_int=_Verbatim, object_pairs_hook=_Pairs)
    return _written(decoder.decode(text))


class _Verbatim(str):
    __slots__ = ()


class _Pairs(list[Any]):
    pass


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _written(value: Any) -> str:
    if isinstance(value, _Verbatim):
        return str(value)
    if isinstance(value, _Pairs):
        return "{" + ",".join(f"{_quoted(key)}:{_written(item)}" for key, item in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_written(item) for item in value) + "]"
    if isinstance(value, str):
        return _quoted(value)
    return {None: "null", True: "true", False: "false"}[value]


_COORDINATES = st.one_of(st.floats(-80, 80), st.sampled_from([0.0, -0.0, 1.0, 1e-3, 9.9e-4, 5e-324, 20.25]))
_WIDE = st.one_of(_COORDINATES, st.floats(allow_nan=False, allow_infinity=False))


def _wkb(kind: int, body: bytes) -> bytes:
    return struct.pack("<BI", 1, kind) + body


def _counted(items: list[bytes]) -> bytes:
    return struct.pack("<I", len(items)) + b"".join(items)


def _shapes(numbers: st.SearchStrategy[float]) -> dict[ColumnType, st.SearchStrategy[bytes]]:
    """Well-formed WKB of each spatial type, its byte order and number included."""
    pair = st.builds(struct.Struct("<dd").pack, numbers, numbers)
    ring = st.lists(pair, min_size=3, max_size=4, unique=True).map(lambda pairs: _counted([*pairs, pairs[0]]))
    point = pair.map(lambda body: _wkb(1, body))
    line = st.lists(pair, min_size=2, max_size=4, unique=True).map(lambda pairs: _wkb(2, _counted(pairs)))
    polygon = st.lists(ring, min_size=1, max_size=2).map(lambda rings: _wkb(3, _counted(rings)))

    def many(kind: int, inner: st.SearchStrategy[bytes], least: int = 1) -> st.SearchStrategy[bytes]:
        return st.lists(inner, min_size=least, max_size=3).map(lambda items: _wkb(kind, _counted(items)))

    shapes = {
        T.POINT: point,
        T.LINESTRING: line,
        T.POLYGON: polygon,
        T.MULTIPOINT: many(4, point),
        T.MULTILINESTRING: many(5, line),
        T.MULTIPOLYGON: many(6, polygon),
        T.GEOMETRYCOLLECTION: many(7, st.one_of(point, line, polygon), least=0),
    }
    return shapes | {T.GEOMETRY: st.one_of(*shapes.values())}


def _spatial(kind: ColumnType) -> Kind:
    plain = _shapes(_WIDE)[kind].map(lambda wkb: bytes(4) + wkb)
    placed = st.builds(
        lambda srid, wkb: struct.pack("<I", srid) + wkb,
        st.sampled_from([4326, 3857]),
        _shapes(_COORDINATES)[kind],
    )

    def read(data: bytes) -> dict[str, Any]:
        found: dict[str, Any] = {"wkb": data[4:], "srid": int.from_bytes(data[:4], "little") or None}
        if kind is T.POINT:
            x, y = struct.unpack("<dd", data[9:])
            found |= {"x": x, "y": y}
        return found

    return Kind(kind.value, _column(kind), st.one_of(plain, placed), read)


def _vectors(size: int) -> Kind:
    numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)
    values = st.lists(numbers, min_size=1, max_size=size).map(lambda v: struct.pack(f"<{len(v)}f", *v))

    def read(text: str) -> list[float]:
        data = bytes.fromhex(text)
        return list(struct.unpack(f"<{len(data) // 4}f", data))

    # PyMySQL does not know the type's code and reads text
    return Kind(f"VECTOR({size})", _column(T.VECTOR), values, read, "HEX({})", ("mysql97",))


_WORDS = st.sampled_from([0, 0, 0, 1, 0xFFFF, 0x10])
_INET6 = st.lists(st.one_of(_WORDS, st.integers(0, 0xFFFF)), min_size=8, max_size=8).map(
    lambda words: ":".join(f"{word:x}" for word in words)
)
_UUIDS = st.one_of(
    st.uuids(),
    st.builds(lambda v: uuid.UUID(int=v), st.integers(0, 2**128 - 1)),
    st.builds(
        lambda v, version: uuid.UUID(int=v & ~(0xF << 76) | version << 76 | 1 << 63),
        st.integers(0, 2**128 - 1),
        st.integers(0, 15),
    ),
    st.sampled_from([uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.UUID(int=1 << 120)]),
).map(str)
_LABELS = ["a", "b b", "it's", "back\\slash", "ünï", 'q"q', "1"]
_COMMA_FREE = ["x", "é", "z z", 'q"', "back\\slash"]

KINDS: list[Kind] = [
    *_integer("TINYINT", T.TINYINT, 8),
    *_integer("SMALLINT", T.SMALLINT, 16),
    *_integer("MEDIUMINT", T.MEDIUMINT, 24),
    *_integer("INT", T.INT, 32),
    *_integer("BIGINT", T.BIGINT, 64),
    *(
        _decimal(p, s)
        for p, s in (
            (1, 0),
            (5, 2),
            (9, 9),
            (10, 0),
            (18, 4),
            (18, 18),
            (19, 0),
            (30, 30),
            (38, 10),
            (60, 28),
            (65, 0),
            (65, 30),
        )
    ),
    _floats("FLOAT", _column(T.FLOAT), 32),
    _floats("DOUBLE", _column(T.DOUBLE), 64),
    _floats("FLOAT(10,3)", _column(T.FLOAT, length=10, scale=3), 32),
    _floats("DOUBLE(12,3)", _column(T.DOUBLE, length=12, scale=3), 64),
    *(_bits(bits) for bits in (1, 2, 7, 8, 9, 33, 64)),
    Kind("YEAR", _column(T.YEAR), st.one_of(st.just(0), st.integers(1901, 2155)), int),
    Kind("YEAR(2)", _column(T.YEAR, display=2), st.integers(0, 99), lambda reported: _year_of(int(reported)), servers=("mariadb",)),
    Kind("DATE", _column(T.DATE), _DATES, _days),
    *(kind for digits in range(7) for kind in _temporal(digits)),
    *(
        _text("CHAR(30)", T.CHAR, charset, 30, length=30)
        for charset in ("utf8mb4", "utf8mb3", "latin1", "ascii")
    ),
    *(
        _text("VARCHAR(90)", T.VARCHAR, charset, 90, length=90)
        for charset in ("utf8mb4", "utf8mb3", "latin1", "ascii", "utf16", "ucs2", "utf32")
    ),
    _text("CHAR(0)", T.CHAR, "utf8mb4", 0, length=0),
    _text("CHAR(255)", T.CHAR, "utf8mb4", 255, length=255),
    _text("TINYTEXT", T.TINYTEXT, "utf8mb4", 60),
    _text("TEXT", T.TEXT, "latin1", 9000),
    _text("MEDIUMTEXT", T.MEDIUMTEXT, "utf8mb3", 9000),
    _text("LONGTEXT", T.LONGTEXT, "utf8mb4", 9000),
    _binary("BINARY(1)", T.BINARY, 1, length=1),
    _binary("BINARY(16)", T.BINARY, 16, length=16),
    _binary("BINARY(255)", T.BINARY, 255, length=255),
    _binary("VARBINARY(40)", T.VARBINARY, 40, length=40),
    _binary("VARBINARY(300)", T.VARBINARY, 300, length=300),
    _binary("TINYBLOB", T.TINYBLOB, 255),
    _binary("BLOB", T.BLOB, 900),
    _binary("MEDIUMBLOB", T.MEDIUMBLOB, 900),
    _binary("LONGBLOB", T.LONGBLOB, 900),
    _members(_LABELS, T.ENUM, "utf8mb4"),
    _members(["A", "é", "€"], T.ENUM, "latin1"),
    _members([f"label {n}" for n in range(300)], T.ENUM, "utf8mb4"),
    _members(_COMMA_FREE, T.SET, "utf8mb4"),
    _members([f"s{n:02d}" for n in range(64)], T.SET, "latin1"),
    _members([f"m{n}" for n in range(17)], T.SET, "utf8mb4"),
    Kind("JSON", _column(T.JSON), _json_values().map(json.dumps), compact, servers=("mysql",)),
    Kind(
        "JSON",
        _column(T.LONGTEXT, charset="utf8mb4"),
        _json_values().map(json.dumps),
        str,
        servers=("mariadb",),
    ),
    *(_spatial(kind) for kind in SPATIAL_TYPES),
    _vectors(3),
    _vectors(700),
    *(
        replace(kind, servers=("compressed",))
        for kind in (
            _text("VARCHAR(90) COMPRESSED", T.VARCHAR, "utf8mb4", 90, length=90),
            _text("VARCHAR(300) COMPRESSED", T.VARCHAR, "latin1", 300, length=300),
            _text("TEXT COMPRESSED", T.TEXT, "latin1", 9000),
            _binary("VARBINARY(300) COMPRESSED", T.VARBINARY, 300, length=300),
            _binary("LONGBLOB COMPRESSED", T.LONGBLOB, 900),
        )
    ),
    Kind("UUID", _column(T.UUID), _UUIDS, str, servers=("mariadb",)),
    Kind("INET6", _column(T.INET6), _INET6, str, servers=("mariadb",)),
    Kind("INET4", _column(T.INET4), st.ip_addresses(v=4).map(str), str, servers=("mariadb",)),
]


def named(kind: Kind, name: str, *, nullable: bool) -> Column:
    """The catalog's column of a kind in a table."""
    return replace(kind.column, name=name, nullable=nullable)


def character_kinds(charset: str) -> list[Kind]:
    """CHAR, VARCHAR and TEXT in a character set."""
    return [
        Kind(f"{sql} CHARACTER SET {charset}", _column(kind, charset=charset, length=length), st.nothing(), str)
        for sql, kind, length in (
            ("CHAR(9)", T.CHAR, 9),
            ("VARCHAR(90)", T.VARCHAR, 90),
            ("TEXT", T.TEXT, None),
        )
    ]


def character_pool(kind: Kind, random: Random) -> list[str | None]:
    """Texts of many characters of the column's character set, the server's own conversion being the judge."""
    charset = kind.column.charset or ""
    ascii_text = "".join(map(chr, range(32, 127)))
    if charset in UNICODE:
        known = "äßЖא한中テ€\U0001f600\U00020000" if charset not in ("ascii", "ucs2", "utf8mb3") else "äЖ中"
    else:
        codes = [bytes([code]) for code in range(128, 256)]
        if charset in MULTI_BYTE:
            codes = [bytes([lead, trail]) for lead in range(0x81, 0xFF) for trail in range(0x40, 0xFF)]
        known = "".join(text for text in (decode_text(code, charset) for code in codes) if "?" not in text)
    texts = ["", "a ", ascii_text[:9], "\\", "~"]
    texts += ["".join(random.choices(known + ascii_text[::7], k=random.randint(1, 9))) for _ in range(60)]
    if kind.column.type is not T.CHAR:
        texts.append("".join(random.choices(known + ascii_text[::7], k=90)))
    return [None, *texts]
