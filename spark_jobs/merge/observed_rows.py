"""Counts of rows, taken while they pass: no Spark job of their own."""

from __future__ import annotations

from typing import Final, Protocol

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from spark_jobs.decode.record_columns import COMMITTED, DELETED, OFFSET, POSITION, REASON, WRITER
from spark_jobs.decode.spark_types import quoted
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.sinks.contract import KeyRange

_MOST_TIMES: Final = 512


class RowCounts(Protocol):
    """What is counted of a batch, by Spark (`ObservedRows`) or by a worker (`spark_jobs.arrow.newest.Observed`)."""

    @property
    def bad(self) -> int: ...  # noqa: D102 - as in `ObservedRows`
    @property
    def newest(self) -> tuple[int, str] | None: ...  # noqa: D102
    @property
    def winners(self) -> int: ...  # noqa: D102
    @property
    def tombstones(self) -> int: ...  # noqa: D102
    @property
    def oldest(self) -> str | None: ...  # noqa: D102
    @property
    def key_range(self) -> KeyRange | None: ...  # noqa: D102


class ObservedRows:
    """What is counted of a batch: of all `records` by `judgements`, of the newest `rows` of the keys by `measures`.

    `size` is the number of records, about: so many that the commit times of some hundred changes are enough.
    """

    def __init__(self, plan: TableLayout, safe_horizon: str, size: int) -> None:
        self.records = Observation()
        every = max(1, size // _MOST_TIMES)
        is_noted = F.col(REASON).isNull() & (F.col(OFFSET) % F.lit(every) == F.lit(0))
        self.judgements = [
            F.count_if(F.col(REASON).isNotNull()).alias("bad"),
            F.collect_list(F.when(is_noted, F.col(COMMITTED))).alias("times"),
        ]
        if len(plan.versions) > 1:
            good = F.when(F.col(REASON).isNull(), F.struct(POSITION, WRITER))
            self.judgements.append(F.max(good).alias("newest"))
        self.rows = Observation()
        self.judged = Observation()
        late = F.col(DELETED) & (F.col(POSITION) > F.lit(safe_horizon))
        self.measures = [
            F.count(F.lit(1)).alias("winners"),
            F.count_if(late).alias("tombstones"),
            F.min(POSITION).alias("oldest"),
        ]
        ranged = range_column(plan)
        if ranged is not None:
            column = F.col(quoted(ranged))
            self.measures += [F.min(column).alias("low"), F.max(column).alias("high")]

    @property
    def bad(self) -> int:
        """The number of records that cannot be merged."""
        return int(self.records.get.get("bad", 0))

    @property
    def newest(self) -> tuple[int, str] | None:
        """The value schema's id of the newest record that can be merged, and the record's position."""
        found = self.records.get.get("newest")
        return None if found is None else (found[WRITER], found[POSITION])

    @property
    def times_ms(self) -> list[int]:
        """When the source committed some of the changes, in Unix milliseconds."""
        return list(self.records.get.get("times", []))

    @property
    def winners(self) -> int:
        """The number of records that are the newest of their key."""
        return int(self.rows.get.get("winners", 0))

    @property
    def tombstones(self) -> int:
        """The number of deletes that a later batch may need."""
        return int(self.rows.get.get("tombstones", 0))

    @property
    def leaving(self) -> int:
        """The number of judged rows that leave a tombstone, where that was observed."""
        return int(self.judged.get.get("leaving", 0))

    @property
    def oldest(self) -> str | None:
        """The lowest position; None if there was no row."""
        found: str | None = self.rows.get.get("oldest")
        return found

    @property
    def key_range(self) -> KeyRange | None:
        """The smallest and largest value of the first key column; None if it is no integer or there was no row."""
        found = self.rows.get
        return (found["low"], found["high"]) if found.get("low") is not None else None


def range_column(plan: TableLayout) -> str | None:
    """Return the first key column, if it is an integer."""
    name = plan.keys[0]
    integers = (T.ShortType, T.IntegerType, T.LongType)
    return name if isinstance(plan.types[name], integers) else None
