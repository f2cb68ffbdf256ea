"""A group in one batch by Python workers: one job for each target reads its tables, makes the images, and puts all of them.

Each table is read by one task, Spark makes the images of its newest rows, and one task puts those of all tables. A table that goes
into several targets is read for each. What a worker cannot do is left to Spark: both write with the same transactions.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from kafkaio.slices import SNAPSHOT
from schemas.errors import SinkError
from schemas.identity import SourceTable
from spark_jobs.decode.record_columns import CHANGE, COMMITTED, DELETED, POSITION
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.merge import rule
from spark_jobs.merge.context import JobContext
from spark_jobs.merge.group_batch import Member, as_target, gone
from spark_jobs.merge.target_batch import TargetBatch
from spark_jobs.merge.worker_entries import decoding_member, putting
from spark_jobs.merge.worker_task import DECLINED, PUT_RESULT, MemberResult, MemberTask
from spark_jobs.pipeline.row_images import Image
from spark_jobs.sinks.arrival import NOT_SHARED
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.worker_writes import WorkerPut
from spark_jobs.store.sink_layout import LOADS


@dataclass(frozen=True, slots=True)
class TargetPut:
    """A target, its columns in this batch (None while not known), and the tables whose images go into it."""

    batch: TargetBatch
    layout: TableLayout | None
    fed: Sequence[tuple[Member, Image]]
    stamp: Stamp


def put_by_workers(context: JobContext, members: Sequence[Member], targets: Sequence[TargetPut]) -> bool:
    """Read the tables and put their images; return whether that was done. What was done in part, Spark skips."""
    read = [member for member in members if member.part.raw]
    folder = _folder(context, [target.batch.full_name for target in targets])
    tasks = {member.table: _task(member, folder) for member in read}
    if not read or None in tasks.values():
        return False
    found = {table: task for table, task in tasks.items() if task is not None}
    offered: list[tuple[TargetPut, TableLayout, WorkerPut]] = []
    for target in targets:
        size = sum(member.part.input.size for member, _ in target.fed if member.table in found)
        put = None if target.layout is None else target.batch.worker_put_of_images(target.layout, target.stamp, size)
        if put is None or target.layout is None:
            return False
        offered.append((target, target.layout, put))
    limits = [put.most_bytes for _, _, put in offered if put.most_bytes is not None]
    if limits:
        found = {table: replace(task, most_bytes=min(limits) // 2) for table, task in found.items()}
    for target, layout, put in offered:
        if not _is_put(target, layout, put, found):
            return False
    for member in read:
        _take_over(member, found[member.table])
    context.layout.files.remove(str(folder.relative_to(context.layout.service)))
    return True


def compute_by_worker(
    context: JobContext, member: Member, judge: Callable[[DataFrame], DataFrame], targets: Sequence[str], computed: ExitStack
) -> bool:
    """Have a worker decode a table for Spark's writers, once, and return whether it can. `judge` adds to the rows what images need.

    For sinks that take no rows of a worker. The rows are kept until `computed` ends.
    """
    folder = _folder(context, targets)
    task = _task(member, folder)
    if task is None:
        return False
    task = replace(task, most_bytes=context.settings.sink.merge_memory_bytes // 2)
    member.rows = computed.enter_context(rule.computed(judge(_decoded(member, task))))
    member.winners = _take_over(member, task).observed.winners
    context.layout.files.remove(str(Path(task.result).relative_to(context.layout.service)))
    return True


def _is_put(target: TargetPut, layout: TableLayout, put: WorkerPut, tasks: Mapping[SourceTable, MemberTask]) -> bool:
    """Put the images of one target; return False where the worker declines."""
    parts = [_images(member, image, tasks[member.table], layout) for member, image in target.fed if member.table in tasks]
    if not parts:
        return True
    rows = reduce(DataFrame.unionByName, parts)
    together = rows.coalesce(1) if len(parts) == 1 else rows.repartition(1)
    results = [row["rows"] for row in together.mapInArrow(_untyped(putting(put)), PUT_RESULT).collect()]
    if DECLINED in results:
        target.batch.note_declined()
        return False
    if any(results):
        put.require_arrived(sum(results))
    return True


def _images(member: Member, image: Image, task: MemberTask, layout: TableLayout) -> DataFrame:
    """Return the images of the newest rows of a table, with all columns of the target."""
    assert member.layout is not None
    rows = image.judged(_decoded(member, task), member.layout.names, gone(0))
    return as_target(image, image.of(rows, gone(0)), layout)


def _decoded(member: Member, task: MemberTask) -> DataFrame:
    """Return the newest rows of a table as a worker decodes them."""
    assert member.layout is not None
    fields = [*member.layout.columns, (DELETED, T.BooleanType()), (POSITION, T.StringType())]
    fields += [(CHANGE, T.StringType()), (COMMITTED, T.LongType())] if task.keeps_change else []
    schema = T.StructType([T.StructField(name, kind) for name, kind in fields])
    is_snapshot = F.col("topic") == F.lit(member.part.input.snapshot_topic)
    raw = member.part.raw.frame.select(is_snapshot.alias(SNAPSHOT), "partition", "key", "value")
    return raw.coalesce(1).mapInArrow(_untyped(decoding_member(task)), schema)


def _take_over(member: Member, task: MemberTask) -> MemberResult:
    """Count what a worker has read, remember the tombstones that it has written, and return both."""
    assert member.layout is not None
    try:
        result: MemberResult = pickle.loads(Path(task.result).read_bytes())  # noqa: S301 - our own worker's
    except FileNotFoundError as error:
        raise SinkError(f"a worker has written {task.result}, and the driver does not see it: {NOT_SHARED}") from error
    member.part.count(result.observed, member.layout)
    member.part.keep_written_tombstones(result.tombstones, member.layout)
    member.part.oldest = result.observed.oldest
    member.times_ms = result.times_ms
    return result


def _task(member: Member, folder: Path) -> MemberTask | None:
    """Return the reading of a table as a task; None where Spark has to do it."""
    if member.layout is None:
        return None
    result = str(folder / hashlib.sha256(member.table.text.encode()).hexdigest()[:24])
    return member.part.member_task(member.layout, keeps_changes=_leaves_rows_out(member), result=result)


def _leaves_rows_out(member: Member) -> bool:
    """Return whether rows of a table may have no image in some target: their changes leave tombstones then."""
    return any(image.where is not None for image in member.images.values())


def _folder(context: JobContext, targets: Sequence[str]) -> Path:
    """Return the folder of the results of a group in this attempt. Those of earlier attempts are removed."""
    names = "\n".join(targets)
    group = f"group-{hashlib.sha256(names.encode()).hexdigest()[:24]}"
    context.layout.files.remove(f"{LOADS}/{group}")
    return context.layout.loads / group / uuid4().hex


def _untyped(work: Any) -> Any:
    """Return a function as PySpark's stubs accept it."""
    return work
