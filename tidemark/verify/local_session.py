"""The Spark session that computes images for verification: one of this process, started when the first table needs it."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from schemas.errors import TidemarkError
from tidemark.process import config
from tidemark.verify.column_rule import IncomparableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from schemas.settings import Settings

_NEEDS_SPARK: Final = "columns of it are computed, or rows are left out, and verify needs Spark for that"


class LocalSession:
    """A session with the functions of `udfs`, from any thread. One that this process has is used, and is not ended."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._is_ours = False
        self._failure: IncomparableError | None = None

    def get(self) -> SparkSession:
        """Return the session; `IncomparableError` if Spark or Java cannot be started here, which is tried once."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._session is None:
                try:
                    self._session = self._started()
                except ImportError as error:
                    self._failure = IncomparableError(f"{_NEEDS_SPARK}: pip install '.[verify,spark,load]' ({error})")
                    raise self._failure from error
                except TidemarkError as error:
                    self._failure = IncomparableError(f"{_NEEDS_SPARK}: {error}")
                    raise self._failure from error
            return self._session

    def close(self) -> None:
        """End the session if it was started here."""
        if self._session is not None and self._is_ours:
            with suppress(OSError):
                self._session.stop()
        self._session = None

    def _started(self) -> SparkSession:
        from spark_jobs.jobs.session import build_session, running_session
        from spark_jobs.pipeline.udfs import register_udfs
        from tidemark.runtime import java_home
        from tidemark.runtime.spark_classes import with_jars

        session = running_session()
        if session is None:
            config.forget_secrets()  # the JVM inherits the environment
            os.environ.setdefault("JAVA_HOME", str(java_home(17)))
            spark = replace(self._settings.spark, master="local[*]")
            spark = with_jars(spark, [sink.type for sink in self._settings.sinks])
            session = build_session(spark, f"verify {self._settings.name}")
            self._is_ours = True
        register_udfs(session, self._settings.udfs)
        return session
