"""A target made again from nothing: its rows go, and its source tables are not complete until a snapshot has read them whole.

It works as the only writer of the sink, on the state of the last batch that ended. Where a later one was cut off, that one is begun
again for the targets: records that it left in quarantine go with their rows, since its repeat reads them again. Done twice it is as
done once: a crash in the middle leaves a target that the merge job refuses, until this is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import structlog
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from schemas.errors import ConfigError, SinkError
from schemas.identity import SourceTable, TableName, Target
from schemas.merge_rule import NOTHING
from schemas.position import Position
from schemas.settings import Settings
from spark_jobs.jobs.own_session import short_session
from spark_jobs.jobs.preflight import require_writable
from spark_jobs.jobs.sink_factory import open_sink
from spark_jobs.merge.begun_batch import BegunBatch, BegunBatches
from spark_jobs.merge.context import MergeParts, checkpoint_of, merge_parts
from spark_jobs.merge.job_state import JobStates, MergeState, SourceRecord
from spark_jobs.merge.progress_report import publish_again
from spark_jobs.merge.quarantined import COORDINATES
from spark_jobs.pipeline.table_routes import Routes
from spark_jobs.sinks.contract import Sink
from spark_jobs.store.sink_layout import PROGRESS, SinkLayout

log = structlog.get_logger()

EndOfLog = Callable[[int], Position]


def rebuild(
    settings: Settings, names: Sequence[str], spark: SparkSession | None = None, end_of_log: EndOfLog | None = None
) -> tuple[SourceTable, ...]:
    """Empty targets of the configured sink (`database.table` each), and return the source tables that are to be read again.

    `end_of_log` returns where the log of the source ends now, in an epoch: a snapshot that begins behind it makes a table complete.
    Without it, one does that begins behind a marker which is still to be read.
    `ConfigError` for a target that there is none of, `SinkError` while a merge job runs, or where nothing was merged yet.
    """
    layout = SinkLayout.of(settings.sink)
    if not layout.progress.exists() and BegunBatches(layout.files).load() is None:
        message = f"nothing has been merged into {layout.sink} yet, so there is nothing to rebuild"
        raise SinkError(message)
    require_writable(settings.sink.name, layout)
    if spark is not None:
        return _rebuilt(settings, names, spark, layout, end_of_log)
    with short_session(settings) as own:
        return _rebuilt(settings, names, own, layout, end_of_log)


def _rebuilt(
    settings: Settings, names: Sequence[str], spark: SparkSession, layout: SinkLayout, end_of_log: EndOfLog | None
) -> tuple[SourceTable, ...]:
    checkpoint = checkpoint_of(layout)
    sink = open_sink(settings, layout, checkpoint)
    with sink.exclusive(spark, wait_s=1):
        checkpoint.require_own_sink(PROGRESS, sink.states())
        parts = merge_parts(spark, settings, layout, sink)
        states, begun = JobStates(sink.states(), parts.naming), BegunBatches(layout.files)
        cut_off = begun.cut_off(checkpoint)
        state = states.load(checkpoint.query_id or "", checkpoint.newest_done)
        targets = _chosen(state, parts, names, () if cut_off is None else cut_off.all_targets)
        for target in targets:
            sink.remove(target)
        if cut_off is not None:
            _leave_quarantine(spark, sink, cut_off, targets)
        after = emptied(state, parts.naming.routes, targets, end_of_log)
        if state.batch_id >= 0:
            states.save(after)
        if layout.progress.exists():
            publish_again(layout.files, after)
        if cut_off is not None:
            begun.save(cut_off.without(targets))
    tables = tuple(table for table in sorted(after.sources) if after.sources[table] != state.sources[table])
    log.info("merge.targets_emptied", targets=[target.name for target in targets], tables=[table.name.plain for table in tables])
    return tuple(table for table in tables if parts.naming.routes.feeds(table))


def _leave_quarantine(spark: SparkSession, sink: Sink, cut_off: BegunBatch, targets: Sequence[Target]) -> None:
    """Remove the records that a batch which was cut off left in quarantine, of the tables that go into targets."""
    kept = sink.quarantine().records(spark)
    names = [table.name.plain for target in targets for table in cut_off.tables_into(target)]
    if kept is not None and names:
        left = kept.where((F.col("batch_id") == cut_off.batch_id) & F.col("table").isin(names))
        sink.quarantine().remove(left.select(*COORDINATES).distinct())


def _chosen(state: MergeState, parts: MergeParts, names: Sequence[str], begun: Sequence[Target]) -> list[Target]:
    """Return the targets of these names. `ConfigError` for one that no table went into, or is to go into."""
    known = {*state.targets, *begun}
    for table in state.sources:
        known |= set(parts.naming.targets_of(table))
    return [_target(parts.naming.sink, known, name) for name in dict.fromkeys(names)]


def _target(sink: str, known: Iterable[Target], name: str) -> Target:
    """Return the target of a name: `database.table`, or with backticks, which only two targets of one such name need."""
    found = {target for target in known if name in (target.name, TableName.parse(target.name).plain)}
    exact = {target for target in found if target.name == name}
    if len(found) == 1 or exact:
        return next(iter(exact or found))
    if found:
        message = f"{sink}: {name!r} can be {' and '.join(sorted(target.name for target in found))}; write it so"
        raise ConfigError(message)
    names = ", ".join(sorted(TableName.parse(target.name).plain for target in known))
    message = f"{sink}: there is no target {name!r}; there are {names}"
    raise ConfigError(message)


def emptied(
    state: MergeState, routes: Routes, targets: Sequence[Target], end_of_log: EndOfLog | None = None
) -> MergeState:
    """Return a state in which nothing is known of these targets, and their tables go into them by the routes as they are now.

    What was read so far of a table that goes into one of them counts as left out for good: only a snapshot that began later makes
    it complete.
    """
    sources = dict(state.sources)
    for table, before in state.sources.items():
        record = before
        own = Target(routes.sink, table.name.text).text
        then = {own: ""} if before.feeds is None else dict(before.feeds)
        now = {feed.target.text: feed.rule for feed in routes.feeds(table)}
        for target in targets:
            if target.text not in then and target.text not in now:
                continue
            then.pop(target.text, None)
            if target.text in now:
                then[target.text] = now[target.text]
            record = _unread(record, target.name, end_of_log)
        if record is not before:
            feeds = None if then == {own: ""} and not routes.are_given else then
            sources[table] = replace(record, feeds=feeds)
    return replace(state, sources=sources, targets={name: one for name, one in state.targets.items() if name not in targets})


def _unread(record: SourceRecord, names: str, end_of_log: EndOfLog | None) -> SourceRecord:
    """Return the record of a table as if all that was read of it had been left out.

    Everything that was read is of the log before its end now, snapshot rows included.
    """
    state = record.state.settled(record.change_offsets, dict(record.change_offsets)).giving_up()
    state = replace(state, consistent_at=NOTHING, emptied=NOTHING)
    if end_of_log is not None and state.applied_position and state.gap is not None:
        until = end_of_log(Position.parse(state.applied_position).epoch).text
        state = replace(state, gap=replace(state.gap, seen=frozenset(range(state.partitions)), until=until))
    return replace(record, state=state, skipped=None, incomplete=f"{names}: emptied to be made again, and it is not read whole yet")
