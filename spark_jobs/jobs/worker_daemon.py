"""The daemon that Spark forks Python workers from: it imports what their tasks need, once, so that no worker has to.

Spark starts it by `spark.python.daemon.module`, and reads a port from its output.
"""

from __future__ import annotations

import sys

from pyspark import daemon

import spark_jobs.merge.worker_task
import spark_jobs.sinks.delta.arrow_put  # noqa: F401 - unpickled by workers

if __name__ == "__main__":
    sys.modules["pyspark.daemon"] = daemon
    daemon.manager()  # type: ignore[no-untyped-call]
