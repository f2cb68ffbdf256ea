"""Bytes of the binlog into arrays of events, and single events into values. Pure; owned by the log reader."""

from producer.binlog.framing import EventBatch
from producer.binlog.tablemap import TableMap, TableMetadata

__all__ = ["EventBatch", "TableMap", "TableMetadata"]
