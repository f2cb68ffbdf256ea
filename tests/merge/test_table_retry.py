"""Retries of a table's batch: of which failures, and that it does not matter which writer reports them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from deltalake.exceptions import CommitFailedError
from pyspark.errors import PySparkException

from schemas.identity import SourceId, SourceTable
from spark_jobs.merge import table_set_aside
from spark_jobs.merge.table_set_aside import ATTEMPTS, until_done


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_set_aside, "_PAUSE_S", 0)


def run(errors: list[Exception], reason: str | None) -> tuple[str, int]:
    """Run a step that raises these errors first; return its result and how often something was forgotten."""
    forgotten: list[SourceTable] = []

    def step() -> str:
        if errors:
            raise errors.pop()
        return "done"

    table = SourceTable.of(SourceId("shop"), "shop", "t")
    context: Any = SimpleNamespace(forget=forgotten.append, sink=SimpleNamespace(passing=lambda _: reason))
    return until_done(context, [table], step, "shop.t", 1), len(forgotten)


@pytest.mark.parametrize("kind", [PySparkException, CommitFailedError])
def test_a_failure_that_passes_is_retried_whichever_writer_reports_it(kind: type[Exception]) -> None:
    assert run([kind("a conflict") for _ in range(ATTEMPTS - 1)], "conflict") == ("done", ATTEMPTS - 1)
    with pytest.raises(kind, match="a conflict"):
        run([kind("a conflict") for _ in range(ATTEMPTS)], "conflict")


@pytest.mark.parametrize("kind", [PySparkException, ValueError])
def test_a_failure_without_a_reason_to_pass_is_raised_at_once(kind: type[Exception]) -> None:
    errors: list[Exception] = [kind("damaged"), kind("damaged")]
    with pytest.raises(kind, match="damaged"):
        run(errors, None)
    assert len(errors) == 1
