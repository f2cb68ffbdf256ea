"""The comment of a column in a database: it names Spark's type, of which a database has fewer. Pure.

`tidemark decimal(20,0)` is a type as Spark's JSON has it; `tidemark z:eJyrVip…` is the same, compressed, if it is long or has
a character that SQL escapes.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import Final

_MARK: Final = "tidemark "
_PACKED: Final = "z:"
_LONG: Final = 1_000
"""Characters: MySQL's and MariaDB's comments have at most 1024."""
MOST_CHARACTERS: Final = 1_024


def type_comment(text: str) -> str:
    """Return the comment for a type in Spark's JSON."""
    if len(text) > _LONG or "\\" in text:
        text = _PACKED + base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    return _MARK + text


def type_json(comment: str) -> str | None:
    """Return the type that a comment names, as JSON; None for another comment."""
    if not comment.startswith(_MARK):
        return None
    text = comment.removeprefix(_MARK)
    if text.startswith(_PACKED):
        try:
            text = zlib.decompress(base64.b64decode(text.removeprefix(_PACKED), validate=True)).decode()
        except (binascii.Error, zlib.error, ValueError):
            return None
    return text if text.startswith("{") else json.dumps(text)
