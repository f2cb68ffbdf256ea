"""The header `tidemark.exact` of a change record: facts of a row that its envelope cannot say.

An envelope has NULL, or the epoch, for the date 0000-00-00 and for dates like 2024-02-30. It does not say either that the session
of the row had foreign_key_checks=0. Only records of such rows have the header, and only with `order.group`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from schemas.errors import DecodeError
from schemas.json_codec import Form, decode, encode

EXACT_HEADER: Final = "tidemark.exact"


@dataclass(frozen=True, slots=True)
class ExactValues:
    """The text of each zero or impossible date, by the field's name in the record, and the session's foreign_key_checks."""

    JSON: ClassVar = Form(omits_defaults=True)

    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    foreign_key_checks: int = 1

    @property
    def header(self) -> bytes:
        """Return the value of the header."""
        return json.dumps(encode(self), ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, header: bytes) -> ExactValues:
        """Return the values of a header; `DecodeError` if it is damaged."""
        try:
            return decode(cls, json.loads(header))
        except (ValueError, TypeError, KeyError) as error:
            raise DecodeError(f"the header {EXACT_HEADER} is damaged: {error!r}") from error


NO_EXACT_VALUES: Final = ExactValues()
