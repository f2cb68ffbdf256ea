"""What is known of a Delta table while others write to it as well, without Spark: tables that delta-rs made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError
from pyspark.sql import types as T  # noqa: N812

from schemas.errors import SinkError
from schemas.identity import SourceId, SourceTable, Target
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.sinks.contract import TargetRecord
from spark_jobs.sinks.delta import target as targets
from spark_jobs.sinks.delta.arrow_limits import open_table
from spark_jobs.sinks.delta.target import DeltaTarget, KnownTable
from spark_jobs.sinks.delta.writer_choice import WriterRules
from spark_jobs.sinks.delta.writes import is_conflict
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.target_shape import PLAIN_SHAPE
from spark_jobs.sinks.worker_writes import PutShape

COLUMNS = (("id", T.LongType()),)
QUERY = "q"
TABLE = SourceTable.of(SourceId("s"), "shop", "t")


def target(path: Path, known: KnownTable) -> DeltaTarget:
    nothing: Any = None
    return DeltaTarget(nothing, path, Target("sink", "shop.t"), [TABLE], QUERY, known, WriterRules(), PLAIN_SHAPE)


def put(one: DeltaTarget, batch: int, ident: int) -> None:
    work = one.worker_put(PutShape(("id",), COLUMNS, "id", None, 1), Stamp(QUERY, batch, "shop.t", {}))
    assert work is not None
    work.run(pa.table({"id": [ident], POSITION: [f"p{batch}"], DELETED: [False]}))


@pytest.mark.parametrize("looks_again", [False, True])
def test_a_commit_of_a_batch_is_found_behind_one_of_somebody_else(tmp_path: Path, looks_again: bool) -> None:
    """A step, or an attempt, after the one that put the rows looks at the table again, and finds what others did since."""
    path, known = tmp_path / "t", KnownTable()
    put(target(path, known), 0, 1)
    one = target(path, known)
    one.wrote()
    one.trust(TargetRecord(last_commit=0), 1)
    put(one, 1, 2)
    open_table(str(path)).alter.set_table_description("of somebody else")
    if looks_again:
        one.trust(TargetRecord(last_commit=0), 1)
    one.wrote()
    assert [one.has_commit(batch) for batch in (1, 2)] == [True, False]


def test_a_log_that_delta_rs_cannot_read_is_an_error_of_its_table(tmp_path: Path) -> None:
    """Else the job ends with it, and all other tables wait for this one."""
    path, known = tmp_path / "t", KnownTable()
    put(target(path, known), 0, 1)
    (path / "_delta_log" / f"{2:020}.json").write_text('{"add":{"pa', encoding="utf-8")
    with pytest.raises(SinkError, match=r"delta-rs: .*Truncated"):
        target(path, known).worker_put(PutShape(("id",), COLUMNS, "id", None, 1), Stamp(QUERY, 1, "shop.t", {}))


def test_a_conflict_stays_one_that_a_retry_solves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, known = tmp_path / "t", KnownTable()
    put(target(path, known), 0, 1)
    one = target(path, known)
    one.trust(TargetRecord(last_commit=0), 1)
    one.wrote(COLUMNS)

    def loses(*_: object) -> bool:
        raise CommitFailedError("a concurrent transaction deleted data this operation read")

    monkeypatch.setattr(targets, "delete_where", loses)
    with pytest.raises(CommitFailedError) as caught, one.commit(Stamp(QUERY, 1, "shop.t", {})) as writer:
        writer.delete_between({TABLE: ("", "p5")})
    assert is_conflict(caught.value)
