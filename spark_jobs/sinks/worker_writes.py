"""What workers write into a sink without Spark: the part of the contract that a sink may lack. Docstrings are the specification."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.errors import SinkError
from spark_jobs.sinks.contract import Columns, KeyRange, Sink
from spark_jobs.sinks.stamp import Stamp

if TYPE_CHECKING:
    import pyarrow as pa


class PutDeclinedError(SinkError):
    """A `put` that a worker has not begun, since `MirrorWriter.put` costs less."""


@dataclass(frozen=True, slots=True)
class PutShape:
    """What is known of the winners of a batch before they are computed: as in `Winners`, and the number of records at most."""

    keys: tuple[str, ...]
    columns: Columns
    range_column: str | None
    target_range: KeyRange | None
    records: int


class WorkerPut(ABC):
    """A `put` that a Python worker carries out, without Spark: it is pickled and sent there."""

    @property
    def most_bytes(self) -> int | None:
        """The bytes of records that a worker may hold for it; None for no limit."""
        return None

    @property
    def takes_effect(self) -> bool:
        """Whether the rows are in the target after `run`; else they are kept for a `MirrorWriter.put`."""
        return True

    @abstractmethod
    def run(self, rows: pa.Table) -> None:
        """Do what `MirrorWriter.put` does, with the same stamp: it takes effect once, whichever of the two runs first, or again.

        `rows` has the columns of the target, `DELETED` and `POSITION`, each key once. `PutDeclinedError` leaves it to the writer.
        """

    @abstractmethod
    def require_arrived(self, rows: int) -> None:
        """Raise `SinkError` unless the driver, which calls this, sees what `run` did elsewhere with so many rows."""


@dataclass(frozen=True, slots=True)
class LoadedRows:
    """What a `WorkerLoad` has done: `rows` were given to it, and the range of the first key column spans them.

    An earlier attempt may have put rows that are not among them: the range spans those as well, or is None. It is None for a
    column that is no integer, and for no rows. `is_known` says whether the range is what it says. `older` are the rows that are
    left to `replace_older`. `has_added` says whether rows of this load, of whichever attempt, are in the target.
    """

    rows: int
    key_range: KeyRange | None = None
    is_known: bool = True
    older: int = 0
    has_added: bool = field(default=False, compare=False)


class WorkerLoad(ABC):
    """Many snapshot rows of one version that a Python worker puts, as they come: it is pickled and sent there.

    First `run` adds, then `replace_older` replaces, perhaps in another process.
    """

    @abstractmethod
    def run(self, blocks: Iterator[pa.Table], version: str, kept: Path) -> LoadedRows:
        """Add those rows of one version whose key is not in the target. Those whose key is there with an older version are `kept`.

        `blocks` have the columns of the target and `POSITION`, which is `version`, and no key twice. They are read once, and
        never all kept in memory where the keys of the target can be looked up by their range. Several loads with disjoint keys
        may run at once.

        A load that is run again with the same stamp and lane, also with rows that were read later, takes effect once: a row
        that an attempt has added is not added again. Whatever `blocks` raises is raised, and the rows before it may be in the
        target. `kept` is the path of a file of this load; what an earlier attempt left there is replaced.
        """

    @abstractmethod
    def replace_older(self, kept: Path) -> int:
        """Replace older rows by those that `run` has kept, once; return how many. No other load of the target runs meanwhile."""

    @abstractmethod
    def require_arrived(self, done: LoadedRows) -> None:
        """Raise `SinkError` unless the driver, which calls this, sees what `run` and `replace_older` did elsewhere."""

    @abstractmethod
    def has_written(self) -> bool:
        """Return whether an attempt has put rows: of a load that failed, the range of the keys is not known then."""


class WorkerPuts(ABC):
    """A target whose rows Python workers put, without Spark."""

    @abstractmethod
    def worker_put(self, shape: PutShape, stamp: Stamp) -> WorkerPut | None:
        """Return the `put` of a batch for a worker; None where `MirrorWriter.put` is to be used: this target has no other.

        A target that does not exist may be made for it, without rows, and exists then also where None is returned.
        """

    @abstractmethod
    def note_put(self, columns: Columns) -> None:
        """Note that workers have put rows, or loaded them, into the target, which has these columns."""

    @abstractmethod
    def note_declined(self) -> None:
        """Note that a worker has declined the put of this batch, because `MirrorWriter.put` costs less."""


class WorkerLoads(ABC):
    """A target into which Python workers load many snapshot rows."""

    @abstractmethod
    def worker_load(self, shape: PutShape, stamp: Stamp, lane: int) -> WorkerLoad | None:
        """Return a load of a batch for a worker; None where this target has none.

        `lane` keeps the loads of one batch apart: the same load has the same lane when the batch is run again. A target that does
        not exist is made for it, without rows.
        """


class WorkerSink(Sink):
    """A sink whose targets have `WorkerPuts` and `WorkerLoads`."""
