"""The row codec: raw bytes of rows enter (rows events, or result sets of SELECTs), finished Kafka keys and values leave.

A table version is compiled to a column program (`program`); kernels (`encode`, `cells`) run it over the bytes.
One program format and one set of writers serve both sources, so `after` of a snapshot row and of a log event
are byte-identical. A client that has a table version owns its `TableCodec`.
"""

from rowcodec.codec import TableCodec
from rowcodec.types import (
    BinlogLayout,
    ChunkContext,
    EventContext,
    RecordOptions,
    Records,
    RowsOfRun,
    SourceConstants,
    WireSchemas,
)

__all__ = [
    "BinlogLayout",
    "ChunkContext",
    "EventContext",
    "RecordOptions",
    "Records",
    "RowsOfRun",
    "SourceConstants",
    "TableCodec",
    "WireSchemas",
]
