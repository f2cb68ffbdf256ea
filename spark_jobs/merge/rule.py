"""The merge rule on columns (`schemas.merge_rule` on dictionaries): decoded records enter, the newest row of each key leaves.

The steps are the guard, the floor, the highest position of each key, and the tombstones of earlier batches. Rows are counted while
they pass, by no Spark job of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.merge_rule import NOTHING, TableState
from spark_jobs.arrow.decoder_plan import Observed
from spark_jobs.decode.record_columns import (
    CHANGED,
    COMMITTED,
    DELETED,
    OFFSET,
    ORIGIN,
    PARTITION,
    POSITION,
    REASON,
    SNAPSHOT,
    WRITER,
)
from spark_jobs.decode.spark_types import quoted
from spark_jobs.decode.table_layout import TableLayout

_NUMBER: Final = "_tm_number "  # ends with a space, as the names of `decode.record_columns`


@contextmanager
def computed(rows: DataFrame) -> Iterator[DataFrame]:
    """Compute rows once, and keep them on the executors while several writes need them.

    A local checkpoint, not a cache: MERGE refuses a cached source, and would compute any other again.
    """
    kept = rows.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK)
    try:
        yield kept
    finally:
        release(kept)


def release(kept: DataFrame) -> None:
    """Free a local checkpoint now; the garbage collector would, later."""
    kept._jdf.queryExecution().analyzed().rdd().unpersist(False)  # noqa: SLF001 - PySpark has no other way


def admitted(records: DataFrame, before: TableState, after: TableState) -> DataFrame:
    """Return the good records that the guard of earlier batches and the floor admit."""
    condition = F.col(REASON).isNull()
    guard = [(partition, horizon) for partition, horizon in before.guard.items() if horizon > NOTHING]
    if guard:
        horizon = F.lit(NOTHING)
        for partition, limit in guard:
            horizon = F.when(F.col(PARTITION) == F.lit(partition), F.lit(limit)).otherwise(horizon)
        condition &= ~F.col(SNAPSHOT) | (F.col(POSITION) >= horizon)
    if after.floor > NOTHING:
        condition &= F.col(POSITION) >= F.lit(after.floor)
    return records.where(condition)


def winners(
    records: DataFrame, keys: Sequence[str], *, marks_changes: bool = False, keeps_change: bool = False
) -> DataFrame:
    """Return the newest record of each key; a create wins over a delete at one and the same position.

    With `marks_changes` they have `CHANGED`, whether the record, or another one of its key, is a change and no row of a snapshot,
    and `ORIGIN`. With `keeps_change` they have `COMMITTED`.
    """
    key = [F.col(quoted(name)) for name in keys]
    newest = Window.partitionBy(*key).orderBy(F.col(POSITION).desc(), F.col(DELETED).asc())
    numbered = records.withColumn(_NUMBER, F.row_number().over(newest))
    if marks_changes:
        numbered = numbered.withColumn(CHANGED, F.max(~F.col(SNAPSHOT)).over(Window.partitionBy(*key)))
    kept = numbered.where(F.col(_NUMBER) == F.lit(1))
    return kept.drop(_NUMBER, REASON, WRITER, *(() if keeps_change else (COMMITTED,)), *(() if marks_changes else ORIGIN))


def not_overtaken(records: DataFrame, tombstones: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the winners that no tombstone of an earlier batch has overtaken; at a tie the create wins."""
    older = F.col(f"r.{POSITION}") < F.col(f"t.{POSITION}")
    return records.alias("r").join(tombstones.alias("t"), _same_key("r", "t", keys) & older, "left_anti")


def _same_key(left: str, right: str, keys: Sequence[str]) -> Column:
    condition = F.lit(True)
    for name in keys:
        condition &= F.col(f"{left}.{quoted(name)}") == F.col(f"{right}.{quoted(name)}")
    return condition


# ── counts ────────────────────


_MOST_TIMES: Final = 512


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
    def counts(self) -> Observed:
        """What was counted, once the rows were computed."""
        records, rows = self.records.get, self.rows.get
        newest = records.get("newest")
        return Observed(
            int(records.get("bad", 0)),
            int(rows.get("winners", 0)),
            int(rows.get("tombstones", 0)),
            rows.get("oldest"),
            rows.get("low"),
            rows.get("high"),
            None if newest is None else (newest[WRITER], newest[POSITION]),
        )

    @property
    def times_ms(self) -> list[int]:
        """When the source committed some of the changes, in Unix milliseconds."""
        return list(self.records.get.get("times", []))

    @property
    def leaving(self) -> int:
        """The number of judged rows that leave a tombstone, if that was observed."""
        return int(self.judged.get.get("leaving", 0))


def range_column(plan: TableLayout) -> str | None:
    """Return the first key column, if it is an integer."""
    name = plan.keys[0]
    integers = (T.ShortType, T.IntegerType, T.LongType)
    return name if isinstance(plan.types[name], integers) else None
