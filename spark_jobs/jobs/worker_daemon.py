"""The daemon that Spark forks Python workers from: it imports what their tasks need, once, so that no worker has to.

Spark starts it by `spark.python.daemon.module`, and reads a port from its output.
"""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from importlib import import_module
from typing import Final
from zipimport import zipimporter

from pyspark import daemon

from schemas.errors import KernelError

# `__name__` is `__main__` here, and a wheel has this package below `tidemark`.
_PACKAGE: Final = str(__package__).removesuffix(".jobs")

NEEDED: Final = (
    "pandas",  # PySpark imports it in the middle of the first task
    "pyspark.sql.conversion",
    "pyspark.sql.functions",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    f"{_PACKAGE}.arrow.kafka_records",
    f"{_PACKAGE}.merge.worker_run",
    f"{_PACKAGE}.sinks.delta.arrow_put",  # unpickled by workers
)


def _keep(_: zipimporter) -> None:
    """Keep the contents of an archive as they were read."""


if __name__ == "__main__":
    sys.modules["pyspark.daemon"] = daemon
    for name in NEEDED:
        with suppress(ImportError):  # a task that needs it says so in the log of the job: this process has no other way to
            import_module(name)
    with suppress(KernelError, ImportError):  # as above
        import_module(f"{_PACKAGE}.arrow.worker_kernels").GROUP.load()
    # Behind each task a worker looks for cycles among all objects, and before it reads the contents of Spark's archives again, from
    # which Python may import: 0.16 s of CPU together.
    gc.freeze()
    zipimporter.invalidate_caches = _keep  # type: ignore[assignment]
    daemon.manager()  # type: ignore[no-untyped-call]
