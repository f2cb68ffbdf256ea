"""XA events and statements: both name the same transaction."""

from __future__ import annotations

import pytest

from producer.binlog import events
from schemas.errors import DecodeError


def test_xids_are_the_same_from_text_and_from_bytes() -> None:
    body = b"\x01" + (7).to_bytes(4, "little") + (2).to_bytes(4, "little") + (1).to_bytes(4, "little") + b"\xffab"
    prepared = events.parse_xa_prepare(bytes(19) + body, 0, 19 + len(body))
    assert prepared.one_phase
    assert events.parse_xa_statement("XA COMMIT X'FF61',X'62',7") == ("COMMIT", prepared.xid)
    assert events.parse_xa_statement("XA START X'ff61',X'62',7") == ("START", prepared.xid)
    with pytest.raises(DecodeError, match="XA RECOVER"):
        events.parse_xa_statement("XA RECOVER")
    with pytest.raises(DecodeError):
        events.parse_xa_prepare(bytes(19) + body, 0, 18 + len(body))
