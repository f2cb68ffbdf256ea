"""Retries of a table's batch after a failure that passes: a commit of somebody else, a lost executor."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

log = structlog.get_logger()

ATTEMPTS: Final = 5
_PAUSE_S: Final = 0.5
_Result = TypeVar("_Result")


def until_done(
    attempt: Callable[[], _Result],
    forget: Callable[[], None],
    passing: Callable[[Exception], str | None],
    table: str,
    batch_id: int,
) -> _Result:
    """Return what `attempt` returns, after some retries at most; `forget` drops what a failed one knew.

    An error for which `passing` knows no reason, or that came every time, is raised.
    """
    for number in range(1, ATTEMPTS + 1):
        try:
            return attempt()
        except Exception as error:
            reason = passing(error)
            if reason is None and not isinstance(error, (PySparkException, Py4JError)):
                raise  # it says itself what it is about
            forget()
            if number == ATTEMPTS or reason is None:
                log.error("merge.table_failed", table=table, batch_id=batch_id)  # noqa: TRY400 - the error is logged where it ends
                raise
            log.warning("merge.again", table=table, reason=reason, batch_id=batch_id, attempt=number)
            time.sleep(_PAUSE_S * number)
    raise AssertionError
