"""The files that older versions of a Delta table had: each batch leaves some, which go after the retention of the table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from deltalake import CommitProperties

from spark_jobs.sinks.delta import writes
from spark_jobs.sinks.delta.arrow_limits import open_table, why_not_path, why_not_table
from spark_jobs.sinks.delta.arrow_put import HOOKS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.sinks.stamp import Stamp

log = structlog.get_logger()


def remove_old_files(spark: SparkSession, path: str, columns: Sequence[str], stamp: Stamp) -> None:
    """Remove the files that no version of the retention has (VACUUM; `delta.deletedFileRetentionDuration`, else a week).

    What is being written is younger than that, and stays. Where rows are marked as deleted (deletion vectors), and where else
    delta-rs does not know all of a table, the JVM does it. Raises errors of both as they are.
    """
    if why_not_path(path) is not None:
        writes.vacuum(spark, path)
        return
    table = open_table(path)
    has_vectors = "deletionVectors" in (table.protocol().reader_features or ())
    if has_vectors or why_not_table(table, path, columns, ()) is not None:
        writes.vacuum(spark, path)
        return
    found = table.vacuum(dry_run=True, full=True)  # lists also what an earlier one has removed, and would commit for nothing
    if not any((Path(path) / name).exists() for name in found):
        return
    removed = table.vacuum(
        dry_run=False,
        full=True,
        commit_properties=CommitProperties(custom_metadata={"userMetadata": stamp.metadata}),
        post_commithook_properties=HOOKS,
    )
    log.info("merge.old_files_removed", table=stamp.table, files=len(removed))
