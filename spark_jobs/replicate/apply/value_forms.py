"""Forms of values (pure): SQL literals of a column enter, bytes leave that are equal if the server calls the values equal.

Different values may have one form, too: then more ops than needed stay in order. A literal without a form is unknown, and so
is a column without forms: how the server compares its values does not follow from literals.

Texts in printable ASCII of the usual collations have a form of their own (`EqualKeys`). If a key has another text, the server is
asked for the weights of all of its texts. Most collations ignore blanks at the end, so their weights are removed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Final

import numpy as np

from mysqlio.quoting import quoted_bytes
from schemas.types.column_facts import FACTS, FLOAT_BYTES, Semantic, semantic_of
from spark_jobs.arrow import literal_kernels as kernels
from spark_jobs.replicate.apply.compaction import COLLATIONS, EqualKeys, is_comparable

if TYPE_CHECKING:
    from schemas.columns import Column

Form = Callable[[bytes], bytes | None]

_WIDE: Final = Context(prec=200)
_WITHOUT_BLANKS: Final = EqualKeys((Semantic.BINARY,), are_similar=True, is_folded=False)
_WITHOUT_CASE: Final = EqualKeys((Semantic.TEXT,), are_similar=True, is_folded=True)
_BINARY: Final = b"_binary"
_NO_PAD: Final = "_0900_"
"""In the names of MySQL's collations that count blanks at the end: for some, another character weighs the same."""
_UNEVEN: Final = frozenset({"tis620_thai_nopad_ci"})
"""Collations that call texts of different weights equal."""


@dataclass(frozen=True, slots=True)
class ValueForms:
    """The forms of the values of a column, or of their first characters.

    Literals of these `kinds` have forms (`LiteralForm`). Without `form` each literal is its own form. If the server
    may be asked, `weighed` returns the literal of the text to weigh.
    """

    kinds: frozenset[int]
    form: Form | None = None
    weighed: Callable[[bytes], bytes] | None = None

    @classmethod
    def of(cls, column: Column, prefix: int) -> ValueForms | None:
        """Return the forms of the first `prefix` characters or bytes of a column (0: of all), None if they are unknown."""
        make = _FORMS.get(semantic_of(column))
        return None if make is None or column.filled_by == "expression" else make(column, prefix)


def comparison(column: Column) -> object:
    """Return how the server compares a column's values: two columns with equal ones have the same forms."""
    kind = column.type if semantic_of(column) is Semantic.FLOATING else semantic_of(column)
    return kind, column.unsigned, column.scale, column.precision, column.charset, column.collation, column.members


def unquoted(literal: bytes) -> bytes:
    """Return the bytes in the quotes of a literal (`quoted_bytes`)."""
    return literal[1:-1].replace(b"''", b"'").replace(b"\\\\", b"\\")


def without_blanks(weights: str, blank: str) -> str:
    """Return weights without the ones of blanks at the end."""
    while blank and weights.endswith(blank):
        weights = weights[: -len(blank)]
    return weights


def _whole(*kinds: int) -> Callable[[Column, int], ValueForms | None]:
    """Return the forms of literals that differ if their values do."""
    return lambda _, prefix: None if prefix else ValueForms(frozenset(kinds))


def _made(make: Callable[[Column], Form | None], *kinds: int) -> Callable[[Column, int], ValueForms | None]:
    def forms(column: Column, prefix: int) -> ValueForms | None:
        form = None if prefix else make(column)
        return None if form is None else ValueForms(frozenset(kinds), form)

    return forms


def _decimal(column: Column) -> Form:
    step = Decimal(1).scaleb(-(column.scale or 0))
    return lambda literal: b"%s" % str(Decimal(literal.decode()).quantize(step, ROUND_HALF_UP, _WIDE) + 0).encode()


def _floating(column: Column) -> Form | None:
    if column.scale is not None:
        return None  # the server rounds to so many digits
    if FACTS[column.type].size == FLOAT_BYTES:
        return lambda literal: repr(float(np.float32(literal.decode())) + 0.0).encode()
    return lambda literal: repr(float(literal) + 0.0).encode()


def _clock(column: Column) -> Form:
    """Return the forms of times: without zeros at the end of the fraction, unknown if the column has fewer digits."""
    most = column.precision or 0

    def form(literal: bytes) -> bytes | None:
        whole, _, fraction = literal[1:-1].partition(b".")
        digits = fraction.rstrip(b"0")
        return b"'%b.%b'" % (whole, digits) if len(digits) <= most else None

    return form


def _member(column: Column) -> Form:
    numbers = {b"": b"0"} | {member.encode(): b"%d" % number for number, member in enumerate(column.members, 1)}
    return lambda literal: numbers.get(unquoted(literal))


def _members(column: Column) -> Form:
    numbers = {member.encode(): number for number, member in enumerate(column.members)}

    def form(literal: bytes) -> bytes | None:
        text = unquoted(literal)
        chosen = [numbers.get(member) for member in text.split(b",")] if text else []
        return None if None in chosen else b"%d" % sum({1 << number for number in chosen if number is not None})

    return form


def _address(_: Column) -> Form:
    def form(literal: bytes) -> bytes | None:
        try:
            address = ipaddress.ip_address(unquoted(literal).decode())
        except ValueError:
            return None
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return b"%d" % int(mapped or address)

    return form


def _uuid(_: Column) -> Form:
    return lambda literal: literal.translate(None, b"-{}").lower()


def _text(column: Column, prefix: int) -> ValueForms | None:
    collation = column.collation or ""
    if collation in _UNEVEN:
        return None

    def shortened(literal: bytes, length: int) -> bytes:
        return quoted_bytes(unquoted(literal).decode()[:length].encode()) if length else literal

    def form(literal: bytes) -> bytes | None:
        return equal.form(shortened(literal, prefix)) if cheap else None

    def weighed(literal: bytes) -> bytes:
        if _NO_PAD in collation and FACTS[column.type].length != "stripped":
            return shortened(literal, prefix or column.length or 0)
        return quoted_bytes(unquoted(shortened(literal, prefix)).rstrip(b" "))

    cheap = is_comparable(column)
    equal = _WITHOUT_CASE if collation in COLLATIONS else _WITHOUT_BLANKS
    return ValueForms(frozenset({kernels.TEXT}), form, weighed)


def _bytes(_: Column, prefix: int) -> ValueForms:
    def form(literal: bytes) -> bytes | None:
        if prefix:
            literal = _BINARY + quoted_bytes(unquoted(literal.removeprefix(_BINARY))[:prefix])
        return _WITHOUT_BLANKS.form(literal)

    return ValueForms(frozenset({kernels.BINARY}), form)


_MOMENTS: Final = _made(_clock, kernels.MOMENT, kernels.ZONED)
_FORMS: Final[Mapping[Semantic, Callable[[Column, int], ValueForms | None]]] = {
    Semantic.INTEGER: _whole(kernels.NUMBER, kernels.UNSIGNED),
    Semantic.BIT: _whole(kernels.BITS),
    Semantic.DATE: _whole(kernels.DATE),
    Semantic.YEAR: _made(lambda _: lambda literal: b"%d" % (int(literal) % 100), kernels.NUMBER),
    Semantic.DECIMAL: _made(_decimal, kernels.DECIMAL, kernels.DIGITS),
    Semantic.FLOATING: _made(_floating, kernels.PLAIN),
    Semantic.TIME: _made(_clock, kernels.CLOCK),
    Semantic.DATETIME: _MOMENTS,
    Semantic.TIMESTAMP: _MOMENTS,
    Semantic.ENUM: _made(_member, kernels.TEXT),
    Semantic.SET: _made(_members, kernels.TEXT),
    Semantic.UUID: _made(_uuid, kernels.TEXT),
    Semantic.INET: _made(_address, kernels.TEXT),
    Semantic.TEXT: _text,
    Semantic.BINARY: _bytes,
}
