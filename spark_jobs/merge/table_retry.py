"""A table's work that is done again where what stopped it has passed: somebody else's commit, a lost executor."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from spark_jobs.sinks.delta import writes as merge

log = structlog.get_logger()

ATTEMPTS: Final = 5
_PAUSE_S: Final = 0.5
_Result = TypeVar("_Result")


def until_done(work: Callable[[], _Result], forget: Callable[[], None], table: str, batch_id: int) -> _Result:
    """What `work` returns, after some attempts at most; `forget` lets go of what a failed one held.

    Raises the error of Spark that is not passing, or that came every time.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return work()
        except (PySparkException, Py4JError) as error:
            forget()
            passing = merge.is_conflict(error) or merge.is_lost_executor(error)
            if attempt == ATTEMPTS or not passing:
                log.error("merge.table_failed", table=table, batch_id=batch_id)  # noqa: TRY400 - whoever ends of it tells
                raise
            reason = "conflict" if merge.is_conflict(error) else "an executor was lost"
            log.warning("merge.again", table=table, reason=reason, batch_id=batch_id, attempt=attempt)
            time.sleep(_PAUSE_S * attempt)
    raise AssertionError
