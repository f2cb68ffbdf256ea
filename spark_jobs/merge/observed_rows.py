"""Counts of rows, taken while they pass: no Spark job of their own."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from spark_jobs.arrow.decoder_plan import Observed
from spark_jobs.decode.record_columns import COMMITTED, DELETED, OFFSET, POSITION, REASON, WRITER
from spark_jobs.decode.spark_types import quoted
from spark_jobs.decode.table_layout import TableLayout

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
