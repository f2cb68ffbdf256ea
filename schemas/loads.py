"""The answer to a load marker: a row of the signal table, by which the log reader learns what became of the rows of a chunk.

The merge job writes it after the rows are committed in the sink and the state of the batch is saved: a row in the log means that
the rows are there. After a crash it may write the row once more: the id is the same, and a row that exists is accepted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from schemas.errors import DecodeError
from schemas.json_codec import decode, encode, json_field

LOAD_ANSWER: Final = "tidemark-load-answer"
"""The type of the row."""

_SUFFIX: Final = "-done"
_MOST_WORDS: Final = 400
_MOST_DATA: Final = 512
"""Characters that the signal table has room for at least."""


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """What became of the chunk of a window: `rows` are in the sink, or `error` says why none is.

    With `retry` another attempt may succeed; without, the table cannot be loaded this way, and is to be read into Kafka.
    `server` is the one whose log the row must get into, not known if it is empty; it is no part of the row.
    """

    window: str
    rows: int = json_field(0)
    error: str = json_field("", omits_default=True)
    retry: bool = json_field(default=False, omits_default=True)
    server: str = json_field("", omits_default=True, compare=False)

    @property
    def row(self) -> tuple[str, str, str]:
        """Id, type and data of the row in the signal table."""
        document = encode(self)
        del document["window"]
        document.pop("server", None)
        words = self.error[:_MOST_WORDS]
        while True:
            if words:
                document["error"] = words
            data = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
            if len(data) <= _MOST_DATA:  # quotes and line ends take two characters, or six
                return self.window + _SUFFIX, LOAD_ANSWER, data
            words = words[: len(words) * 3 // 4]

    @staticmethod
    def parse(row_id: str, data: str) -> LoadAnswer:
        """Return the answer of a row of the type `LOAD_ANSWER`; `DecodeError` if it is none."""
        try:
            if not row_id.endswith(_SUFFIX):
                message = f"its id has not the end {_SUFFIX}"
                raise ValueError(message)
            return decode(LoadAnswer, {**json.loads(data), "window": row_id.removesuffix(_SUFFIX)})
        except (ValueError, KeyError, TypeError) as error:
            message = f"row {row_id!r} of the signal table is no answer to a load marker: {error}"
            raise DecodeError(message) from error
