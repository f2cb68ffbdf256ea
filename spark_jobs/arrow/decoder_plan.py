"""What driver and worker exchange about the records of a table: how they are decoded, and what was counted. No kernel is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from spark_jobs.decode.table_layout import TableLayout


@dataclass(frozen=True, slots=True)
class DecoderPlan:
    """A `TableLayout` as texts and numbers alone: schemas are (id, text), columns (name, JSON of the type)."""

    key_writers: tuple[tuple[int, str], ...]
    value_writers: tuple[tuple[int, str], ...]
    versions: tuple[tuple[int, str], ...]
    columns: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]

    @classmethod
    def of(cls, plan: TableLayout) -> DecoderPlan:
        """Return the plan of a layout."""
        keys, values, versions = (
            tuple((one.id, one.text) for one in group) for group in (plan.key_writers, plan.value_writers, plan.versions)
        )
        return cls(keys, values, versions, tuple((name, kind.json()) for name, kind in plan.columns), plan.keys)


@dataclass(frozen=True, slots=True)
class Observed:
    """What `merge.rule.ObservedRows` counts of a batch.

    `newest` is the value schema's id and the position of the newest good record, None where the table has one version alone.
    `low` and `high` are of the first key column, None if it is no integer.
    """

    bad: int
    winners: int
    tombstones: int
    oldest: str | None
    low: int | None
    high: int | None
    newest: tuple[int, str] | None

    @property
    def key_range(self) -> tuple[int, int] | None:
        """The smallest and largest value of the first key column; None if it is no integer or there was no row."""
        return None if self.low is None or self.high is None else (self.low, self.high)
