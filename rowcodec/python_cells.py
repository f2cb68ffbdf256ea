"""The Python column path: values a kernel cannot convert, encoded one by one with the same result.

A kernel locates the cells of the whole event, the functions made here encode each to bytes of the wire format,
and the encoding kernel splices them in. Used for multi-byte character sets other than UTF-8, for masks, spatial
values, vectors, and MariaDB's addresses, none of them hot.
"""

from __future__ import annotations

import hashlib
import math
import struct
import uuid
import zlib
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

import numpy as np

from rowcodec.charsets import decode_text
from schemas.columns import Column, ColumnType, Mask
from schemas.errors import ConfigError, DecodeError

CellEncoder: TypeAlias = Callable[[bytes], bytes]


_POINT: Final = struct.Struct("<BIdd")
_SRID: Final = struct.Struct("<i")
_SRID_AND_HEAD: Final = 4 + 5
_WKB_POINT: Final = 1
_GROUP_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_ZLIB: Final = 0x80
_WITHOUT_HEADER: Final = 8
_LENGTH_BYTES: Final = 7
_COMPATIBLE: Final = 6  # zero words before an IPv4 address in IPv6
_MAPPED: Final = 0xFFFF
_FLOAT_BYTES: Final = 4
_PLAIN_FROM: Final = -3  # Java prints without exponent from 10^-3 to below 10^7
_PLAIN_TO: Final = 7


class TextLayout(Protocol):
    """How a wire format writes a string."""

    def text(self, value: str) -> bytes:
        """Return the string as it is in a record."""


class StructLayout(TextLayout, Protocol):
    """How a wire format writes what is made of several values."""

    def number(self, value: int) -> bytes:
        """Return an integer."""

    def blob(self, value: bytes) -> bytes:
        """Return bytes."""

    def floating(self, value: bytes) -> bytes:
        """Return a float or double, given as its little-endian bits."""

    def present(self, value: bytes | None) -> bytes:
        """Return an optional value; None is null."""

    def struct(self, members: Sequence[tuple[str, bytes]]) -> bytes:
        """Return a struct of encoded members."""

    def array(self, items: Sequence[bytes]) -> bytes:
        """Return an array of encoded items."""


def text_cell(
    name: str, charset: str, layout: TextLayout, masked: Callable[[str], str] | None = None
) -> CellEncoder:
    """Return the encoder of a text column in any character set, masked or not; `DecodeError` names the column."""

    def encode(data: bytes) -> bytes:
        try:
            text = decode_text(data, charset)
        except UnicodeDecodeError as error:
            message = f"{name}: the text is not valid in its character set"
            raise DecodeError(message) from error
        return layout.text(text if masked is None else masked(text))

    return encode


def masking(mask: Mask, column: Column) -> Callable[[str], str]:
    """Return what a mask does to a text; `ConfigError` for an algorithm that is not there."""
    if mask.kind == "asterisks":
        asterisks = "*" * mask.length
        return lambda _text: asterisks
    if mask.kind == "truncate":
        return lambda text: truncated(text, mask.length)
    algorithm = mask.algorithm.replace("-", "").lower()
    if algorithm not in hashlib.algorithms_available:
        message = f"{column.name}: there is no hash algorithm {mask.algorithm!r}; try SHA-256"
        raise ConfigError(message)
    salt = mask.salt.encode()
    return lambda text: hashlib.new(algorithm, salt + text.encode()).hexdigest()[: column.length]


def truncated(text: str, length: int) -> str:
    """Return the first UTF-16 units of a text, as Debezium counts them; a character that would be cut in two stays whole."""
    units = text.encode("utf-16-le", "surrogatepass")[: 2 * length]
    is_half = len(units) > 1 and 0xD8 <= units[-1] <= 0xDB
    whole = units[:-2] if is_half else units
    kept = len(whole.decode("utf-16-le", "surrogatepass"))
    return text[: kept + is_half]


def spatial_cell(name: str, kind: ColumnType, layout: StructLayout) -> CellEncoder:
    """Return the encoder of a spatial column: MySQL's SRID (four bytes, 0 = none) and WKB as Debezium's Geometry or Point.

    An empty value, which ADD COLUMN ... NOT NULL leaves in stored rows, has empty WKB and, in a POINT, zeros.
    `DecodeError` names the column when the bytes are no geometry.
    """

    def parts(data: bytes) -> tuple[bytes, bytes]:
        if not data:
            return b"", layout.present(None)
        if len(data) < _SRID_AND_HEAD or data[4] > 1:
            message = f"{name}: not a geometry, {len(data)} bytes"
            raise DecodeError(message)
        srid = _SRID.unpack_from(data)[0]
        return data[4:], layout.present(layout.number(srid) if srid else None)

    def geometry(data: bytes) -> bytes:
        wkb, srid = parts(data)
        return layout.struct((("wkb", layout.blob(wkb)), ("srid", srid)))

    def point(data: bytes) -> bytes:
        wkb, srid = parts(data)
        if wkb and (len(wkb) != _POINT.size or _POINT.unpack(wkb)[:2] != (1, _WKB_POINT)):
            message = f"{name}: not a point, {len(data)} bytes"
            raise DecodeError(message)
        x, y = (wkb[5:13], wkb[13:]) if wkb else (bytes(8), bytes(8))
        members = (
            ("x", layout.floating(x)),
            ("y", layout.floating(y)),
            ("wkb", layout.present(layout.blob(wkb))),
            ("srid", srid),
        )
        return layout.struct(members)

    return point if kind is ColumnType.POINT else geometry


def vector_cell(name: str, layout: StructLayout) -> CellEncoder:
    """Return the encoder of a VECTOR: little-endian floats; `DecodeError` names the column for a broken one."""

    def encode(data: bytes) -> bytes:
        if len(data) % 4:
            message = f"{name}: not a vector, {len(data)} bytes"
            raise DecodeError(message)
        return layout.array([layout.floating(data[at : at + 4]) for at in range(0, len(data), 4)])

    return encode


def java_text(bits: bytes) -> bytes:
    """Return a float (four little-endian bytes) or double (eight) in JSON as Jackson writes it; specials are quoted.

    The same look as the kernels': Java's `toString`, the fewest digits that read back, but two where one
    more digit comes closer (4.9E-324).
    """
    single = len(bits) == _FLOAT_BYTES
    value = np.frombuffer(bits, "<f4" if single else "<f8")[0]
    if not math.isfinite(value):
        return b'"NaN"' if math.isnan(value) else (b'"Infinity"' if value > 0 else b'"-Infinity"')
    text = np.format_float_scientific(value, unique=True, trim="-")
    two = f"{float(value):.1e}"
    if "." not in text and (np.float32(two) if single else float(two)) == value:
        text = two
    mantissa, _, exponent = text.partition("e")
    sign, digits, power = ("-" if mantissa[0] == "-" else ""), mantissa.lstrip("-").replace(".", ""), int(exponent)
    digits = digits.rstrip("0") or "0"
    if value == 0 or _PLAIN_FROM <= power < _PLAIN_TO:
        whole = digits[: power + 1].ljust(power + 1, "0") if power >= 0 else "0"
        fraction = digits[power + 1 :] if power >= 0 else digits.rjust(len(digits) - power - 1, "0")
        return f"{sign}{whole}.{fraction or '0'}".encode()
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}".encode()


def address_cell(name: str, kind: ColumnType, size: int, layout: TextLayout) -> CellEncoder:
    """Return the encoder of MariaDB's UUID, INET4 or INET6 as it is in the log: the text the server prints.

    The log trims trailing zero bytes, as it does for BINARY.
    """
    text_of = _ADDRESSES[kind]

    def encode(data: bytes) -> bytes:
        if len(data) > size:
            message = f"{name}: {len(data)} bytes instead of {size}"
            raise DecodeError(message)
        return layout.text(text_of(data.ljust(size, b"\0")))

    return encode


def compressed_cell(name: str, encode: CellEncoder) -> CellEncoder:
    """Return the encoder of a column that MariaDB stores COMPRESSED; `encode` is that of the value itself.

    A value is empty, or begins with a byte: 0, the value follows as it is; else bit 7 (zlib), bit 3 (without
    zlib's header), and in bits 0 to 2 how many bytes of length (big-endian) stand before the stream.
    """

    def decompress(data: bytes) -> bytes:
        if not data or data[0] == 0:
            return encode(data[1:])
        start = 1 + (data[0] & _LENGTH_BYTES)
        wanted = int.from_bytes(data[1:start], "big")
        stream = zlib.decompressobj(-zlib.MAX_WBITS if data[0] & _WITHOUT_HEADER else zlib.MAX_WBITS)
        try:
            value = stream.decompress(data[start:], wanted + 1)
        except zlib.error as error:
            message = f"{name}: the compressed value is damaged ({error})"
            raise DecodeError(message) from error
        if not data[0] & _ZLIB or len(value) != wanted:
            message = f"{name}: the compressed value is damaged ({len(value)} bytes instead of {wanted})"
            raise DecodeError(message)
        return encode(value)

    return decompress


def decimal_cell(read: Callable[[bytes], int], write: Callable[[int], bytes]) -> CellEncoder:
    """Return the encoder of a DECIMAL by way of its unscaled value."""
    return lambda data: write(read(data))


def printed_decimal(data: bytes) -> int:
    """Return the unscaled value of a decimal as a SELECT prints it."""
    try:
        return int(data.replace(b".", b"", 1))
    except ValueError as error:
        message = f"not a decimal: {data[:80]!r}"
        raise DecodeError(message) from error


def packed_decimal(precision: int, scale: int, data: bytes) -> int:
    """Return the unscaled value of a decimal as the log packs it: nine digits in four bytes, the rest in fewer.

    Negative ones have all bits flipped, all have the first bit flipped, so that bytes sort as numbers do.
    """
    is_negative = not data[0] & 0x80
    plain = bytes([data[0] ^ 0x80]) + data[1:]
    if is_negative:
        plain = bytes(byte ^ 0xFF for byte in plain)
    whole, fraction = precision - scale, scale
    groups = [whole % 9, *[9] * (whole // 9), *[9] * (fraction // 9), fraction % 9]
    value, at = 0, 0
    for digits in groups:
        group = int.from_bytes(plain[at : at + _GROUP_BYTES[digits]], "big")
        if group >= 10**digits:
            message = "the decimal has impossible digits"
            raise DecodeError(message)
        value = value * 10**digits + group
        at += _GROUP_BYTES[digits]
    return -value if is_negative else value


def uuid_text(data: bytes) -> str:
    """Return a UUID as MariaDB stores it: its parts in reverse order for versions 1 to 5, so that times sort."""
    if data[6] & 0x80 and 0 < data[8] < 0x60:
        data = data[12:16] + data[10:12] + data[8:10] + data[6:8] + data[:6]
    return str(uuid.UUID(bytes=data))


def inet4_text(data: bytes) -> str:
    """Return an IPv4 address."""
    return ".".join(str(byte) for byte in data)


def inet6_text(data: bytes) -> str:
    """Return an IPv6 address as MariaDB prints it.

    Unlike RFC 5952, a single zero word becomes `::` too, and mapped and compatible IPv4 is in dots.
    """
    words = struct.unpack(">8H", data)
    at, length = _longest_zeros(words)
    if at == 0 and (length == _COMPATIBLE or (length == _COMPATIBLE - 1 and words[length] == _MAPPED)):
        return f"::{'ffff:' if length < _COMPATIBLE else ''}{inet4_text(data[12:])}"
    parts = [f"{word:x}" for word in words]
    return f"{':'.join(parts[:at])}::{':'.join(parts[at + length :])}" if length else ":".join(parts)


def _longest_zeros(words: Sequence[int]) -> tuple[int, int]:
    """Return where the first of the longest runs of zeros begins, and its length."""
    runs = [(0, 0)]
    for index, word in enumerate(words):
        at, length = runs[-1]
        if word == 0:
            runs[-1:] = [(at, length + 1)] if length and at + length == index else [(at, length), (index, 1)]
    return max(runs, key=lambda run: run[1])


_ADDRESSES: Final[dict[ColumnType, Callable[[bytes], str]]] = {
    ColumnType.UUID: uuid_text,
    ColumnType.INET4: inet4_text,
    ColumnType.INET6: inet6_text,
}
