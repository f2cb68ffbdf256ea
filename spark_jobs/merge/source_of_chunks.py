"""Where the rows of a load come from: the merge job knows the interface; the command has the client of the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, cast

import structlog

from schemas.errors import ConfigError
from schemas.loads import LoadAnswer
from schemas.markers import LoadMarker
from schemas.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

log = structlog.get_logger()

_MODULE: Final = "tidemark.loads.chunk_source"
_FUNCTION: Final = "open_source"
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
    """Return the source of these settings; None, with a warning, where this job cannot reach one."""
    try:
        found = getattr(import_module(_MODULE), _FUNCTION)(settings)
    except (ImportError, AttributeError, ConfigError) as error:
        log.warning("merge.no_chunk_source", reason=str(error), advice=_ADVICE)
        return None
    if found is None:
        log.warning("merge.no_chunk_source", reason="the settings name no source", advice=_ADVICE)
    return cast("ChunkSource | None", found)
