"""The source of the rows of loads: the merge job knows the interface; the extra `load` has the client of the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from schemas.loads import LoadAnswer
from schemas.markers import LoadMarker
from schemas.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

log = structlog.get_logger()

_ADVICE: Final = (
    "install tidemark-cdc[spark,load] on the driver and on every executor, give the merge job the section source of the settings, "
    "and restart it; where the producer chose this way by itself, it reads these chunks into Kafka after a while"
)


class ChunkSource(Protocol):
    """The source as loads need it. It can be pickled: `read` is called in the workers of Spark, `answer` on the driver."""

    def read(self, database: str, table: str, load: LoadMarker) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Read the rows of a load, and give them in blocks of keys and values: records as they are in a snapshot topic.

        Each key comes once. Whatever is raised is an error of reading. Only a `LoadImpossibleError` says that no retry helps.
        """
        ...

    def answer(self, answers: Iterable[LoadAnswer]) -> None:
        """Write the answers into the signal table of the source. One that is there already is no error."""
        ...


def open_chunk_source(settings: Settings) -> ChunkSource | None:
    """Return the source of these settings; None, with a warning, if the extra `load` is missing."""
    try:
        from spark_jobs.loads.chunk_source import TableChunks
    except ImportError as error:
        log.warning("merge.no_chunk_source", reason=str(error), advice=_ADVICE)
        return None
    return TableChunks(settings)
