"""A Debezium connector's offset, as Kafka Connect reports it, and where Tidemark has to begin for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.errors import ConfigError


@dataclass(frozen=True, slots=True)
class StartAt:
    """`source.start_at`: behind every transaction of `gtids`, or at `pos` of `file` where there are none.

    `in_transaction`: Debezium had published a part of the transaction there; it is published again, as a whole.
    """

    file: str
    pos: int
    gtids: str
    in_transaction: bool


def parse_offset(text: str, where: str) -> StartAt:
    """Parse the place in an offset `{"file", "pos", "gtids", ...}`, bare or as `GET /connectors/<name>/offsets` answers.

    Raises `ConfigError` for anything else, and for an offset inside a snapshot, which has no position to continue from.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from None
    offset = _inner(document, where)
    if str(offset.get("snapshot", "false")).lower() not in ("false", "none", "last"):
        raise ConfigError(f"{where}: the connector stood inside its snapshot; let it finish, or start Tidemark with a snapshot")
    try:
        return StartAt(
            str(offset["file"]),
            int(offset["pos"]),
            "".join(str(offset.get("gtids") or "").split()),
            bool(int(offset.get("event") or 0) or int(offset.get("row") or 0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{where}: no file and pos of a MySQL or MariaDB connector in {offset!r} ({error!r})") from None


def _inner(document: Any, where: str) -> Mapping[str, Any]:
    offsets = document.get("offsets") if isinstance(document, Mapping) else None
    if isinstance(offsets, list):
        if len(offsets) != 1:
            raise ConfigError(f"{where}: {len(offsets)} offsets; give the one of this connector")
        document = offsets[0]
    if isinstance(document, Mapping) and isinstance(document.get("offset"), Mapping):
        document = document["offset"]
    if not isinstance(document, Mapping):
        raise ConfigError(f"{where}: not an offset: {document!r}")
    return document
