"""Errors of Spark and of the JVM: in one line, and whether a retry helps."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.accumulators import AccumulatorTCPServer
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

CANCELLED: Final = ("SPARK_JOB_CANCELLED", "SPARK_JOB_CANCELED", "InterruptedException")
"""What an error says of a job whose query was stopped."""
_LONGEST_REASON: Final = 500
_UDF: Final = re.compile(r"\[UDF_FAILED\] ([^\n]+)")
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z_.]+)\] ([^\n]+)")


_LOST_CLASS: Final = re.compile(r"Could not initialize class ([\w.$]+)|ExceptionInInitializerError(?:: ([^\n]+))?")
_QUERY_CONTEXT: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def mute_raised_errors() -> None:
    """Have PySpark and py4j not print the errors that they raise: what catches one says it, in its own words.

    py4j writes a traceback for each thread that talks to a JVM which has ended, before or after the line that says so. It uses the
    root logger, too.
    """
    for name in _QUERY_CONTEXT:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_of_another)
    AccumulatorTCPServer.handle_error = _unsaid  # type: ignore[assignment,method-assign]  # it prints, of a JVM that has ended


def _unsaid(*_: object) -> None:
    """Say nothing."""


def _is_of_another(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def reason_of(error: Exception) -> str:
    """Return an error in one line, for a person."""
    text = str(error)
    if udf := _UDF.findall(text):
        text = udf[-1]
    elif isinstance(error, (PySparkException, Py4JError)):
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        causes = [line for line in lines if line.startswith((": ", "Caused by: "))] if isinstance(error, Py4JJavaError) else []
        text = causes[-1].partition(": ")[2] if causes else "".join(lines[:1])
    text = " ".join(text.split()) or type(error).__name__
    return text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 3]}..."


def with_causes(error: BaseException) -> str:
    """Return the message of an error of Spark or the JVM with those of its causes."""
    return f"{error}\n{getattr(error, '_stackTrace', '')}"


def was_cancelled(error: Exception) -> bool:
    """Return whether Spark cancelled the job, as it does when its query is stopped: no other job is to do its work."""
    return any(text in with_causes(error) for text in CANCELLED)


def lost_class(error: BaseException) -> str | None:
    """Return the class whose initialisation failed, as it is named in the error with its causes; None for another error.

    It is not initialised again while the JVM lives (Java Virtual Machine Specification 5.5). A class that is not there at all, as
    where a jar is missing, is another error: the next JVM has it no more than this one.
    """
    if not isinstance(error, (PySparkException, Py4JError)):
        return None
    found = _LOST_CLASS.search(with_causes(error))
    return None if found is None else (found.group(1) or found.group(2) or "it is not named").strip()


def expression_error(error: Exception) -> str:
    """Return why an expression failed on a row: what Spark names in brackets, with its words; else the reason in one line."""
    found = [] if _UDF.search(str(error)) else _CONDITION.findall(str(error))
    return f"{found[-1][0]}: {found[-1][1].strip()}"[:_LONGEST_REASON] if found else reason_of(error)


def is_lost_executor(error: Exception) -> bool:
    """Return whether computed rows were lost with the executor that had them: a retry computes them again."""
    return "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND" in str(error) or "Checkpoint block rdd_" in str(error)
