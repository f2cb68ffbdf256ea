"""The wide table of the shop: a column of every supported type, and random values with their corners."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Callable
from typing import Final

_TEXTS: Final = ("", " ", "plain", "trailing  ", 'it\'s "quoted"', "tab\tline\n", "back\\slash", "naïve")
_WIDE_TEXTS: Final = (*_TEXTS, "日本語", "😀 emoji", "mixed 😀 Ünïcødé", "zero\x00inside")


def _integer(bits: int, *, unsigned: bool = False) -> Callable[[random.Random], object]:
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return lambda rng: rng.choice((low, high, 0, 1, rng.randint(low, high), rng.randint(low, high)))


def _decimal(precision: int, scale: int) -> Callable[[random.Random], object]:
    top = 10**precision - 1

    def make(rng: random.Random) -> object:
        digits = rng.choice((0, top, -top, rng.randint(-top, top), rng.randint(-99, 99)))
        return (
            f"{'-' if digits < 0 else ''}{abs(digits) // 10**scale}.{abs(digits) % 10**scale:0{scale or 1}d}"
        )

    return make


def _float32(rng: random.Random) -> object:
    value: float = struct.unpack("<f", struct.pack("<I", rng.getrandbits(32)))[0]
    return value if math.isfinite(value) else rng.choice((0.0, 0.1, -1.5, 16777216.0))


def _float64(rng: random.Random) -> object:
    value: float = struct.unpack("<d", struct.pack("<Q", rng.getrandbits(64)))[0]
    return value if math.isfinite(value) else rng.choice((0.0, 0.1, -2.5, 9007199254740993.0))


def _text(choices: tuple[str, ...], length: int) -> Callable[[random.Random], object]:
    return lambda rng: (rng.choice(choices) * rng.randint(1, 3))[:length]


def _long_text(length: int) -> Callable[[random.Random], object]:
    return lambda rng: rng.choice(_WIDE_TEXTS) * rng.randint(0, length)


def _bytes(length: int) -> Callable[[random.Random], object]:
    return lambda rng: rng.randbytes(rng.randint(0, length))


def _fraction(rng: random.Random, digits: int) -> str:
    return f".{rng.randrange(10**digits):0{digits}d}" if digits else ""


def _clock(rng: random.Random, digits: int) -> str:
    return f"{rng.randrange(24):02d}:{rng.randrange(60):02d}:{rng.randrange(60):02d}{_fraction(rng, digits)}"


def _day(rng: random.Random, first_year: int, last_year: int) -> str:
    return f"{rng.randint(first_year, last_year):04d}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def _date(rng: random.Random) -> object:
    return rng.choice(("1000-01-01", "9999-12-31", "0000-00-00", "1582-10-15", *[_day(rng, 1900, 2100)] * 4))


def _time(digits: int) -> Callable[[random.Random], object]:
    def make(rng: random.Random) -> object:
        sign, hours = rng.choice(("", "-")), rng.choice((0, 23, 837, rng.randrange(838)))
        return f"{sign}{hours}:{rng.randrange(60):02d}:{rng.randrange(60):02d}{_fraction(rng, digits)}"

    return make


def _datetime(digits: int) -> Callable[[random.Random], object]:
    def make(rng: random.Random) -> object:
        days = ("1000-01-01", "9999-12-31", *[_day(rng, 1900, 2100)] * 4)
        if rng.random() < 0.05:
            return "0000-00-00 00:00:00"
        return f"{rng.choice(days)} {_clock(rng, digits)}"

    return make


def _timestamp(digits: int) -> Callable[[random.Random], object]:
    return lambda rng: f"{_day(rng, 1971, 2037)} {_clock(rng, digits)}"


def _document(rng: random.Random, depth: int = 0) -> object:
    plain: tuple[object, ...] = (
        None, True, False, 0, -1, 2**31, 2**53 + 1, -(2**63), 2**64 - 1, 0.5, 1e100, "", "text", 'ü😀"\\',
    )  # fmt: skip
    if depth > 2 or rng.random() < 0.4:
        return rng.choice(plain)
    if rng.random() < 0.4:
        return [_document(rng, depth + 1) for _ in range(rng.randrange(4))]
    keys = [rng.choice("abcdef") * rng.randint(1, 3) for _ in range(rng.randrange(5))]
    return {key: _document(rng, depth + 1) for key in keys}


def _json(rng: random.Random) -> object:
    return json.dumps(_document(rng), ensure_ascii=False)


def _members(*members: str) -> Callable[[random.Random], object]:
    return lambda rng: ",".join(member for member in members if rng.random() < 0.5)


_COLUMNS: Final[tuple[tuple[str, str, Callable[[random.Random], object]], ...]] = (
    ("c_tinyint", "TINYINT", _integer(8)),
    ("c_tinyint_u", "TINYINT UNSIGNED", _integer(8, unsigned=True)),
    ("c_bool", "TINYINT(1)", lambda rng: rng.randrange(2)),
    ("c_smallint", "SMALLINT", _integer(16)),
    ("c_smallint_u", "SMALLINT UNSIGNED", _integer(16, unsigned=True)),
    ("c_mediumint", "MEDIUMINT", _integer(24)),
    ("c_mediumint_u", "MEDIUMINT UNSIGNED", _integer(24, unsigned=True)),
    ("c_int", "INT", _integer(32)),
    ("c_int_u", "INT UNSIGNED", _integer(32, unsigned=True)),
    ("c_bigint", "BIGINT", _integer(64)),
    ("c_bigint_u", "BIGINT UNSIGNED", _integer(64, unsigned=True)),
    ("c_decimal", "DECIMAL(10,4)", _decimal(10, 4)),
    ("c_decimal_int", "DECIMAL(18,0)", _decimal(18, 0)),
    ("c_decimal_wide", "DECIMAL(38,10)", _decimal(38, 10)),
    ("c_decimal_max", "DECIMAL(65,30)", _decimal(65, 30)),
    ("c_float", "FLOAT", _float32),
    ("c_double", "DOUBLE", _float64),
    ("c_double_md", "DOUBLE(12,4)", lambda rng: rng.randint(-(10**9), 10**9) / 10_000),
    ("c_bit1", "BIT(1)", lambda rng: rng.randrange(2)),
    ("c_bit12", "BIT(12)", lambda rng: rng.getrandbits(12)),
    ("c_bit64", "BIT(64)", lambda rng: rng.getrandbits(64)),
    ("c_year", "YEAR", lambda rng: rng.choice((0, 1901, 2155, rng.randint(1901, 2155)))),
    ("c_date", "DATE", _date),
    ("c_time", "TIME", _time(0)),
    ("c_time3", "TIME(3)", _time(3)),
    ("c_time6", "TIME(6)", _time(6)),
    ("c_datetime", "DATETIME", _datetime(0)),
    ("c_datetime3", "DATETIME(3)", _datetime(3)),
    ("c_datetime6", "DATETIME(6)", _datetime(6)),
    ("c_timestamp", "TIMESTAMP NULL", _timestamp(0)),
    ("c_timestamp3", "TIMESTAMP(3) NULL", _timestamp(3)),
    ("c_timestamp6", "TIMESTAMP(6) NULL", _timestamp(6)),
    ("c_char", "CHAR(12)", _text(_WIDE_TEXTS, 12)),
    ("c_varchar", "VARCHAR(60)", _text(_WIDE_TEXTS, 60)),
    ("c_varchar_utf8", "VARCHAR(60) CHARACTER SET utf8", _text((*_TEXTS, "日本語"), 60)),
    ("c_varchar_latin1", "VARCHAR(60) CHARACTER SET latin1", _text((*_TEXTS, "€uro “quotes” ÿ"), 60)),
    ("c_varchar_ascii", "VARCHAR(60) CHARACTER SET ascii", _text(_TEXTS[:7], 60)),
    ("c_tinytext", "TINYTEXT", _text(_WIDE_TEXTS, 40)),
    ("c_text", "TEXT", _long_text(20)),
    ("c_mediumtext", "MEDIUMTEXT", _long_text(40)),
    ("c_longtext", "LONGTEXT", _long_text(60)),
    ("c_binary", "BINARY(8)", _bytes(8)),
    ("c_varbinary", "VARBINARY(32)", _bytes(32)),
    ("c_tinyblob", "TINYBLOB", _bytes(60)),
    ("c_blob", "BLOB", _bytes(300)),
    ("c_mediumblob", "MEDIUMBLOB", _bytes(300)),
    ("c_longblob", "LONGBLOB", _bytes(500)),
    ("c_enum", "ENUM('small','it''s','größe')", lambda rng: rng.choice(("small", "it's", "größe"))),
    ("c_set", "SET('a','b','c d','ü')", _members("a", "b", "c d", "ü")),
    ("c_json", "JSON", _json),
    ("c_required", "INT NOT NULL DEFAULT 7", _integer(32)),
    ("c_required_text", "VARCHAR(30) NOT NULL DEFAULT 'none'", _text(_WIDE_TEXTS, 30)),
)
_NULL_SHARE: Final = 0.08

NAMES: Final = ("id", *(name for name, _, _ in _COLUMNS))
COLUMNS_SQL: Final = ",\n".join(
    ("id INT NOT NULL PRIMARY KEY", *(f"{name} {definition}" for name, definition, _ in _COLUMNS))
)


def row(key: int, rng: random.Random) -> tuple[object, ...]:
    """Values for `NAMES`: `key`, then a random value or NULL for each column."""
    return (key, *(_value(definition, make, rng) for _, definition, make in _COLUMNS))


def change(rng: random.Random) -> tuple[str, object]:
    """Return a column's name and a new value for it."""
    name, definition, make = rng.choice(_COLUMNS)
    return name, _value(definition, make, rng)


def _value(definition: str, make: Callable[[random.Random], object], rng: random.Random) -> object:
    if "NOT NULL" not in definition and rng.random() < _NULL_SHARE:
        return None
    return make(rng)
