"""What a database makes of the key that a transform asks for (`TargetShape.key`): the catalog says so, and rows merge as without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import types as T  # noqa: N812

from schemas.identity import SourceTable
from spark_jobs.decode.record_columns import DELETED, POSITION, SOURCE
from spark_jobs.sinks.contract import Columns, Evolution, TargetRecord, Winners
from spark_jobs.sinks.target_shape import TargetShape
from tests.sinks.behaviour import ID, NAME, TABLE, Batch, Lab, at
from tests.sinks.shared_behaviour import OTHER

COUNTRY, AMOUNT = ("country", T.StringType()), ("Amount", T.IntegerType())


def put_keyed(
    lab: Lab,
    number: int,
    key: tuple[str, ...],
    rows: Sequence[tuple[Any, ...]],
    columns: Columns = (ID, COUNTRY, AMOUNT),
    tables: Sequence[SourceTable] = (TABLE,),
    evolution: Evolution | None = None,
) -> None:
    """Run a batch of a target with a key. A row has the values of the columns, a position, and whether it is deleted."""
    target, stamp = lab.open().target(lab.spark, NAME, tables, TargetShape(key=key)), Batch(number).stamp
    typed = (*columns, (POSITION, T.StringType()), (DELETED, T.BooleanType()))
    if target.exists():
        target.trust(TargetRecord(last_commit=number - 1), number)
        if evolution is not None:
            target.evolve(evolution, stamp)
    identity = ("id",) if len(tables) == 1 else (SOURCE, "id")
    with target.commit(stamp) as writer:
        writer.put(Winners(lab.frame(rows, typed), identity, columns))


class KeyBehaviour:
    """The suite. `catalog` gives the columns of each index by its name; that of the primary key begins with no `tm_`."""

    def catalog(self, lab: Lab) -> dict[str, list[str]]:
        raise NotImplementedError

    def kinds(self, lab: Lab) -> dict[str, list[str]]:
        """What each index is for, with its columns: `primary`, `tm_key` or `tm_by`."""
        return {name[:6].rstrip("_") if name.startswith("tm_") else "primary": own for name, own in self.catalog(lab).items()}

    def test_a_key_with_the_identity_is_the_primary_key_also_once_a_second_table_comes(self, lab: Lab) -> None:
        key = ("country", "id")
        rows = [(1, "de", 10, at(1), False), (2, "fr", 20, at(1), False), (3, "it", 30, at(1), False)]
        put_keyed(lab, 0, key, rows)
        assert self.kinds(lab) == {"primary": ["country", "id"], "tm_key": ["id"]}
        put_keyed(lab, 1, key, [(1, "fr", 11, at(2), False), (2, "xx", 0, at(0), False), (3, "no", 0, at(2), True)])
        assert sorted((row["id"], row["country"], row["Amount"]) for row in lab.rows()) == [(1, "fr", 11), (2, "fr", 20)]

        shared: Columns = ((SOURCE, T.StringType()), ID, COUNTRY, AMOUNT)
        added = Evolution(((SOURCE, T.StringType(), TABLE.text),), ())
        both = [(OTHER.text, 1, "fr", 5, at(3), False), (TABLE.text, 2, "es", 21, at(3), False)]
        put_keyed(lab, 2, key, both, shared, (TABLE, OTHER), added)
        assert self.kinds(lab) == {"primary": [SOURCE, "country", "id"], "tm_key": ["id"]}
        found = sorted((SourceTable.parse(row[SOURCE]).name.table, row["id"], row["country"], row["Amount"]) for row in lab.rows())
        assert found == [("more", 1, "fr", 5), ("orders", 1, "fr", 11), ("orders", 2, "es", 21)]

    def test_a_key_of_the_columns_of_the_identity_needs_no_second_index(self, lab: Lab) -> None:
        put_keyed(lab, 0, ("id", "country"), [(1, "de", 10, at(1), False)])
        assert self.kinds(lab) == {"primary": ["id", "country"]}

    def test_any_other_key_is_an_index_that_a_column_of_another_type_stays_in(self, lab: Lab) -> None:
        key = ("country", "Amount")
        long = "é" * 300
        rows = [(1, None, 10, at(1), False), (2, "fr", 10, at(1), False), (3, "fr", 10, at(1), False), (4, long, None, at(1), False)]
        put_keyed(lab, 0, key, rows)
        assert self.kinds(lab) == {"primary": ["id"], "tm_by": ["country", "Amount"]}
        wider: Columns = (ID, COUNTRY, ("Amount", T.StringType()))
        put_keyed(lab, 1, key, [(3, "fr", "x", at(2), False)], wider, evolution=Evolution((), (("Amount", T.StringType()),)))
        assert self.kinds(lab) == {"primary": ["id"], "tm_by": ["country", "Amount"]}
        found = sorted((row["id"], row["country"], row["Amount"]) for row in lab.rows())
        assert found == [(1, None, "10"), (2, "fr", "10"), (3, "fr", "x"), (4, long, None)]
