"""Tests of values, of fields of `source` and of models of tables: may Debezium's differ from ours so? No I/O."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Final

from conformance.difference import is_same
from conformance.schema_differences import in_base64
from schemas.position import Position, file_number


def is_one_of(pairs: Mapping[Any, Any]) -> Callable[[Any, Any], bool]:
    """Return a test whether two values are one of the pairs: Debezium's to ours."""
    return lambda debezium, ours: debezium in pairs and is_same(pairs[debezium], ours)


def is_unescaped(debezium: Any, ours: Any) -> bool:
    """Return whether Debezium's label of an ENUM is ours with its commas and backslashes escaped."""
    return bool(debezium != ours and debezium == re.sub(r"([\\,])", r"\\\1", ours))


def is_unwrapped(debezium: Any, ours: Any) -> bool:
    """Return whether an int64 is the unsigned number on the right, which is a number in headers, base64 in JSON."""
    if not isinstance(debezium, int) or isinstance(debezium, bool):
        return False
    if isinstance(ours, str):
        return ours == in_base64(debezium % 2**64)
    return isinstance(ours, (int, Decimal)) and not isinstance(ours, bool) and ours == debezium % 2**64


def is_truncated_to_milliseconds(debezium: Any, ours: Any) -> bool:
    """Return whether Debezium's time is ours without what is finer than milliseconds.

    Both are micro- or nanoseconds since 1970: the latter have three digits more.
    """
    unit = 1_000 if debezium < 10**17 else 1_000_000
    return bool(debezium == ours // unit * unit)


def is_some_seconds_later(debezium: Any, ours: Any) -> bool:
    """Return whether both are whole seconds as the log has them, in milliseconds since 1970, ours less than a minute later."""
    return bool(debezium > 10**12 and debezium % 1000 == ours % 1000 == 0 and 0 < ours - debezium < 60_000)


def is_same_float(debezium: Any, ours: Any) -> bool:
    """Return whether both are the same float32, ours in the fewest digits."""
    return isinstance(ours, float) and _is_one_float(debezium, ours) and ours == _in_fewest_digits(ours)


def _in_fewest_digits(number: float) -> float:
    """Return the double with the fewest digits that is the same float32."""
    shorter = (float(f"{number:.{digits}e}") for digits in range(8))
    return next(same for same in (*shorter, number) if _is_one_float(same, number))


_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[-+.\w]+|\s+|.', re.DOTALL)
_DOUBLE: Final = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
_NEGATIVE_TIME: Final = re.compile(r'"-(\d{2,3}):(\d\d):(\d\d)\.(\d{6})"')
_MOMENT: Final = re.compile(r'"(\d{4}-\d\d-\d\d |\d{2,3}:)[\d:]+\.\d{6}"')
_BASE64: Final = re.compile(r'"base64:type\d+:([A-Za-z0-9+/]*=*)"')


def is_printed_by_the_server(debezium: Any, ours: Any) -> bool:
    """Return whether two JSON texts differ only in how Debezium spells doubles, times and binaries in values."""
    json.loads(ours)
    tokens = _JSON_TOKEN.findall(ours)
    spelled = _JSON_TOKEN.findall(debezium)
    names = [follows == ":" for follows in [*tokens[1:], ""]]
    return bool(debezium != ours) and len(spelled) == len(tokens) and all(
        one == other or (not is_name and one == _spelled_by_debezium(other))
        for one, other, is_name in zip(spelled, tokens, names, strict=True)
    )


def _spelled_by_debezium(token: str) -> str | None:
    """Return a value of MySQL's JSON as Debezium's reader of the log prints it where it prints another text."""
    if (time := _NEGATIVE_TIME.fullmatch(token)) is not None:
        return _garbled(*map(int, time.groups()))
    if _MOMENT.fullmatch(token) is not None:
        return f'{token[:-1].rstrip("0").removesuffix(".")}"'
    if (binary := _BASE64.fullmatch(token)) is not None:
        return f'"{binary[1]}"'
    if _DOUBLE.fullmatch(token) is None or not re.search(r"[.e]", token) or 1e-3 <= abs(float(token)) < 1e7:
        return None  # what Java prints without an exponent is as the server prints it
    return f"{Decimal(float(token)):f}"


def _garbled(hours: int, minutes: int, seconds: int, microseconds: int) -> str:
    """Return a negative TIME as Debezium prints it: by the rules of Java's shifts and remainders on its packed form."""
    packed = -((hours << 12 | minutes << 6 | seconds) + (microseconds > 0))
    parts = [-_remainder(packed >> 12, 1024), _remainder(packed >> 6, 64), _remainder(packed, 64)]
    text = ":".join(str(part) if part >= 10 else f"0{part}" for part in parts)
    fraction = f".00000-{str(microseconds).rstrip('0')}" if microseconds else ""
    return f'"{text}{fraction}"'


def _remainder(number: int, divisor: int) -> int:
    """Return Java's `%`: with the sign of the number."""
    return abs(number) % divisor * (-1 if number < 0 else 1)


def is_compact(debezium: Any, ours: Any) -> bool:
    """Return whether both are the same JSON text but for the server's spaces."""
    if not isinstance(debezium, str):
        return False
    pieces = re.split(r'("(?:[^"\\]|\\.)*")', debezium)
    text = "".join(piece if piece.startswith('"') else piece.replace(" ", "") for piece in pieces)
    return bool(debezium != ours and text == ours)


_DIGITS: Final = 6


def is_padded(debezium: Any, ours: Any) -> bool:
    """Return whether both are the same time in UTC, one with more zeros at the end of its fraction."""
    if not (isinstance(debezium, str) and isinstance(ours, str)):
        return False
    if not (debezium.endswith("Z") and ours.endswith("Z")):
        return False
    (whole, _, digits), (own, _, all_digits) = (text[:-1].partition(".") for text in (debezium, ours))
    return debezium != ours and whole == own and all_digits.rstrip("0") == digits and 0 < len(all_digits) <= _DIGITS


def is_in_six_digits(debezium: Any, ours: Any) -> bool:
    """Return whether Debezium has our float, or the first six digits of it; ours has the fewest that are enough."""
    return is_six_digits_of_bits(debezium, ours) and bool(ours == _in_fewest_digits(ours))


def is_six_digits_of_bits(debezium: Any, ours: Any) -> bool:
    """Return the same of Avro, which has the bits of a float32 and no digits."""
    return isinstance(ours, float) and (_is_one_float(debezium, ours) or _is_one_float(debezium, float(f"{ours:.5e}")))


def _is_one_float(one: float, other: float) -> bool:
    try:
        return struct.pack("<f", one) == struct.pack("<f", other)
    except OverflowError:
        return False  # digits of FLT_MAX that were rounded up


def is_rounded(debezium: Any, ours: Any) -> bool:
    """Return whether Debezium's double is the one that the server prints, rounded to the decimals of DOUBLE(M,D)."""
    if not (isinstance(debezium, float) and isinstance(ours, float)):
        return False
    return debezium != ours and abs(debezium - ours) <= 4 * math.ulp(ours)


def is_time_without_date(debezium: Any, ours: Any) -> bool:
    """Return whether Debezium's text lacks the dates before 1970-01-02: Kafka's `Values` takes these for times of day."""
    if ours is None:
        return False
    whole = r"(?<=:)(\d{4}-\d\d-\d\d)T(?=[\d:.]+Z)"
    expected = re.sub(whole, lambda found: found[0] if found[1] >= "1970-01-02" else "", ours)
    return bool(debezium != ours and debezium == expected)


def is_whole_characters(debezium: Any, ours: Any) -> bool:
    """Return whether Debezium's text ends in half a character that ours has whole."""
    if not (isinstance(debezium, str) and isinstance(ours, str)):
        return False
    units, half = ours.encode("utf-16-le", "surrogatepass"), debezium.encode("utf-16-le", "surrogatepass")
    return len(units) == len(half) + 2 and units.startswith(half) and 0xD8 <= half[-1] <= 0xDB


def is_default_value(debezium: Any, ours: Any) -> bool:
    """Return whether Debezium's default in a model of a table is our literal, quoted twice or truncated."""
    if not (isinstance(debezium, str) and isinstance(ours, str)):
        return False
    digits = ours[2:] if re.fullmatch(r"0[xXbB][0-9a-fA-F]+", ours) else ""
    is_truncated = debezium != "" and digits.startswith(debezium)
    return debezium != ours and (is_truncated or debezium.replace("\\0", "\0") == ours or debezium.replace("''", "'") == ours)


def is_literal_of(text: str, debezium: Mapping[str, Any], ours: Any) -> bool:
    """Return whether a statement names the column of a model, and has its default as a literal, if it is hexadecimal or binary."""
    if not re.fullmatch(r"0[xXbB][0-9a-fA-F]+", str(ours)):
        return True
    prefix, digits = ours[1], re.escape(ours[2:])
    literal = rf"(0{prefix}{digits}\b|\b{prefix}'{digits}')"
    return re.search(rf"\b{re.escape(debezium['name'])}\b[^,]*{literal}", text, re.IGNORECASE) is not None


def is_declared_empty(text: str, debezium: Mapping[str, Any], _ours: Any) -> bool:
    """Return whether a statement declares the column of a model as CHAR(0) or BINARY(0)."""
    column = rf"(\b|`){re.escape(debezium['name'])}(\b|`)"
    return re.search(rf"{column}[^,]*\b(N?CHAR|CHARACTER|BINARY)\s*\(\s*0\s*\)", text, re.IGNORECASE) is not None


_DAY: Final = {"days": 1, "milliseconds": 86_400_000, "microseconds": 86_400_000_000}
_2000_YEARS: Final = 5 * 146_097  # days
_CENTURY: Final = 36_525  # days, from a year after 1970 to the one a hundred years later
_EPOCH: Final = date(1970, 1, 1).toordinal()


def is_in_this_century(debezium: Any, ours: Any) -> bool:
    """Return whether a date of the years 0 to 69 is 2000 years later in Debezium, one of 70 to 99 1900 years."""
    if isinstance(ours, str):
        year = int(ours[:4])
        return 0 <= year < 100 and debezium == f"{year + (2000 if year < 70 else 1900)}{ours[4:]}"
    return type(debezium) is type(ours) is int and any(_is_later_by_centuries(debezium, ours, day) for day in _DAY.values())


def _is_later_by_centuries(debezium: int, ours: int, day: int) -> bool:
    days = ours // day + _2000_YEARS
    ordinal = days + _EPOCH
    year = date.fromordinal(ordinal).year if 0 < ordinal < date.max.toordinal() else 0
    if not 2000 <= year < 2100:
        return False
    return debezium == (days - (_CENTURY if year >= 2070 else 0)) * day + ours % day


_FIRST_OF_YEAR_0: Final = date(1, 1, 1).toordinal() - 366 - _EPOCH
_EPOCH_TEXTS: Final = ("1970-01-01Z", "1970-01-01T00:00:00Z")
_29TH_OF_FEBRUARY: Final = 59  # in days since the begin of a leap year


def is_in_year_0(debezium: Any, ours: Any) -> bool:
    """Return whether a date is of the year 0, and NULL in Debezium, or 1970 if the column is NOT NULL."""
    if isinstance(ours, str):
        return bool(ours.startswith("0000-") and (debezium is None or debezium in _EPOCH_TEXTS))
    return (debezium is None or is_same(debezium, 0)) and any(_day_of_year_0(ours, day) is not None for day in _DAY.values())


def is_in_year_1(debezium: Any, ours: Any) -> bool:
    """Return whether a time is of the year 0, and a year later in Debezium."""
    if isinstance(ours, str):
        return ours.startswith("0000-") and bool(debezium == f"0001-{ours[5:]}")
    for day in (_DAY["milliseconds"], _DAY["microseconds"]):
        found = _day_of_year_0(ours, day)
        if type(debezium) is int and found is not None:
            return bool(debezium - ours == (366 if found <= _29TH_OF_FEBRUARY else 365) * day)
    return False


def _day_of_year_0(time: Any, day: int) -> int | None:
    """Return the day of the year 0 that a time since 1970 is in, from 0 on; None in another year."""
    found = time // day - _FIRST_OF_YEAR_0 if type(time) is int else -1
    return int(found) if 0 <= found < 366 else None


def is_zero_moment(debezium: Any, ours: Any) -> bool:
    """Return whether Debezium has 1970 for NULL."""
    return ours is None and re.fullmatch(r"1970-01-01T00:00:00(\.0{1,6})?Z", debezium) is not None


def is_not_read(debezium: Any, ours: Any) -> bool:
    """Return whether Debezium has the value of a NOT NULL column that it did not read: 0, no text, or 1970."""
    unread = (0, 0.0, Decimal(0), "", b"", "AA==", *_EPOCH_TEXTS)
    return type(debezium) is type(ours) and debezium in unread and not is_same(debezium, ours)


def is_at_chunk(_debezium: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Return whether the position of a source is the one that its version names."""
    version = Position.parse(ours["sequence"])
    return (version.file, version.offset, version.ordinal) == (file_number(ours["file"]), ours["pos"], 0)


def is_in_transaction(debezium: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Return whether Debezium's position is where the transaction of our row begins."""
    version = Position.parse(ours["sequence"])
    return (version.file, version.offset) == (file_number(ours["file"]), debezium["pos"]) and version.ordinal > 0


def is_committed_later(debezium: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Return whether both are sources of one row, at XA PREPARE and at XA COMMIT."""
    prepared, committed = ((file_number(side["file"]), side["pos"]) for side in (debezium, ours))
    servers = [str(side["gtid"]).partition(":")[0] for side in (debezium, ours) if side["gtid"] is not None]
    return prepared <= committed and debezium["ts_us"] <= ours["ts_us"] and len({*servers}) <= 1
