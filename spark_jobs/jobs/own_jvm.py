"""The JVM that this process has started for Spark: whether it has ended, and what is said of that."""

from __future__ import annotations

import subprocess
from typing import Final

from pyspark import SparkContext

from schemas.errors import SinkError
from schemas.settings import SparkSettings

_ENDS_S: Final = 20
"""A JVM that was killed is there until the system has taken its memory back."""


class LostClassError(SinkError):
    """The JVM could not initialise a class, and does not do it again: only the JVM of another process may."""


def without_class(name: str) -> LostClassError:
    """Return what to say of a JVM that has lost a class."""
    message = (
        f"Spark's JVM could not initialise a class ({name}), and does not try it a second time. A disk that was full when a "
        "library was written to it is a common cause. The merge job ends; its next start has another JVM, and runs the batch again"
    )
    return LostClassError(message)


def jvm_ended(settings: SparkSettings) -> SinkError | None:
    """Return what to say of the JVM where it has ended, or ends; None if it runs, or is another's."""
    process = own_jvm()
    if process is None:
        return None
    try:
        status = int(process.wait(_ENDS_S))
    except subprocess.TimeoutExpired:
        return None
    message = (
        f"Spark's JVM ended with status {status} in the middle of its work: the system ends a process with -9 if it has no "
        f"memory for it (spark.driver_memory is {settings.driver_memory}, and a JVM takes more than its heap). The batch is run "
        "again at the next start"
    )
    return SinkError(message)


def has_jvm_ended() -> bool:
    """Return whether the JVM is gone now."""
    process = own_jvm()
    return process is not None and process.poll() is not None


def own_jvm() -> subprocess.Popen[bytes] | None:
    """Return the JVM that this process has started; None if it has none, or another's."""
    return getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - there is no other way to know of it
