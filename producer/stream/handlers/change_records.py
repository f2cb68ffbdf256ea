"""Change records: encoded rows leave for the change topic of their table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from producer.stream.handlers.table_heartbeats import HeartbeatSchedule
    from producer.stream.ports import EncodedRun, Op, RecordPublisher, Route, RowsEvent
    from producer.stream.reader_progress import LogProgress


class ChangeRecords:
    """A writer of the records of every captured row."""

    def __init__(self, publisher: RecordPublisher, progress: LogProgress, schedule: HeartbeatSchedule) -> None:
        self._publisher = publisher
        self._progress = progress
        self._schedule = schedule

    def wants(self, table: Route, op: Op) -> bool:
        """Return whether rows of that operation become records."""
        return op in table.encoded_ops

    def rows(self, event: RowsEvent) -> None:
        """Write the records, unless they are in Kafka already."""
        if event.is_in_kafka:
            return
        context, records, route, progress = event.context, event.records, event.route, self._progress
        assert context is not None
        assert records is not None
        self._publisher.write(route.topic, records, route.key_text)
        self._schedule.changed.add(route.key)
        progress.rows += records.rows
        progress.records += records.count
        progress.source_ts_ms = context.ts_us // 1000
        progress.delays.note(route.key, context.ts_us)

    def run(self, run: EncodedRun) -> None:
        """Write the records of a run."""
        records, route, progress = run.records, run.route, self._progress
        self._publisher.write(route.topic, records, route.key_text)
        self._schedule.changed.add(route.key)
        progress.rows += records.rows
        progress.records += records.count
        progress.source_ts_ms = run.source_ts_ms
        progress.delays.note(route.key, run.first_us)
        if run.last_us != run.first_us:
            progress.delays.note(route.key, run.last_us)
