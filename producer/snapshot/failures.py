"""Errors of reading tables: which are expected, which a retry may heal, and how they are reported."""

from __future__ import annotations

from typing import Final

import pymysql
from pymysql.constants import ER

from mysqlio.server_errors import missing_grant, source_error
from schemas.errors import (
    ACCESS_ERRORS,
    FencedError,
    PublishError,
    RegistryUnavailableError,
    RetriableSourceError,
    TidemarkError,
)

EXPECTED: Final = (TidemarkError, pymysql.MySQLError, OSError)
_READ_ONLY_MODE: Final = 1836


def described(error: BaseException) -> str:
    """Return an error as status and notifications show it."""
    if isinstance(error, pymysql.MySQLError) and len(error.args) > 1:
        return f"the source answers: {error.args[1]} ({error.args[0]}){missing_grant(str(error.args[1]))}"
    return str(error) or type(error).__name__


def heals_by_itself(error: BaseException) -> bool:
    """Return whether source or Kafka was unreachable, not ready or short of something: waited for longer than a wrong query."""
    if isinstance(error, pymysql.MySQLError):
        if _is_read_only(error):
            return True
        error = source_error(error, "the source")
    outages = (RetriableSourceError, PublishError, FencedError, RegistryUnavailableError, OSError, *ACCESS_ERRORS)
    return isinstance(error, outages)


def _is_read_only(error: pymysql.MySQLError) -> bool:
    """Return whether the source takes no rows at present: before a switch-over, or with its disk full at some providers."""
    code, text = (*error.args, 0, "")[:2]
    return code == _READ_ONLY_MODE or (code == ER.OPTION_PREVENTS_STATEMENT and "read-only" in str(text))
