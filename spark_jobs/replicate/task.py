"""A replication task: settings enter, the tables of the target follow their sources until the task is stopped.

    read commit records and their rows  ▸  sort them  ▸  apply them, with how far they go in the same transaction

All that a task knows durably is in the target. A start raises its epoch there, and continues behind the state.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from kafkaio.committed_reader import OPEN_END
from kafkaio.schema_registry import HttpRegistry
from schemas.applied.registry_access import RegistryAccess
from schemas.errors import (
    ConfigError,
    EndingError,
    KafkaAccessError,
    KafkaRefusalError,
    PublishError,
    RegistryUnavailableError,
    RetriableSinkError,
    RetriableSourceError,
    SinkError,
    TidemarkError,
)
from schemas.overriding import override
from spark_jobs.jobs.runner import Attempt, Runner
from spark_jobs.replicate.apply.applier import Applier, StreamApplier
from spark_jobs.replicate.apply.apply_target import ApplyTarget
from spark_jobs.replicate.apply.archiver import Archiver, FileTarget
from spark_jobs.replicate.apply.parallel_apply import ParallelApply
from spark_jobs.replicate.apply.row_writer import RowWriter
from spark_jobs.replicate.destination import target_of
from spark_jobs.replicate.finishing import finished
from spark_jobs.replicate.loading import CommitStart
from spark_jobs.replicate.open_plan import PlanReader
from spark_jobs.replicate.order.frontier import StreamMerge
from spark_jobs.replicate.order.group_reader import GroupReader
from spark_jobs.replicate.order.log_order import Event
from spark_jobs.replicate.order.stream_reader import KafkaTransaction, StreamReader
from spark_jobs.replicate.rows.row_values import RowDecoder
from spark_jobs.replicate.task_figures import SourceProgress, TaskFigures
from spark_jobs.replicate.task_pause import TaskPauses
from spark_jobs.replicate.task_source import SourceOfTask

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from schemas.paused_task import TaskPause
    from schemas.settings.task_section import TaskSettings
    from spark_jobs.replicate.apply.apply_target import SourceState
    from spark_jobs.replicate.apply.share_executors import ShareExecutors
    from spark_jobs.replicate.destination import ChangeWriter
    from spark_jobs.replicate.loading import WholeEnd
    from spark_jobs.replicate.order.frontier import SourceCursor

log = structlog.get_logger()

_WAITS_S: Final = 0.5
_BUFFER_BYTES: Final = 32 << 20
_BATCH_BYTES: Final = 8 << 20
"""Of the records that are read before they are applied."""
_MOST_AHEAD: Final = 32 << 20
"""Bytes of events of a source that wait until another source is as far: then no more of it is read."""
_ASKED_EVERY_S: Final = 0.5


def run_task(
    settings: TaskSettings,
    stop: threading.Event,
    *,
    until_caught_up: bool = False,
    finish: Callable[[str], None] | None = None,
    watch: Callable[[Runner[TaskAttempt]], None] = lambda _: None,
) -> None:
    """Apply the changes of the task's sources until `stop` is set; with `until_caught_up` until all that Kafka has now is applied.

    With `finish` apply all that Kafka has of lost sources, up to the last whole transaction, and call it with a line about that.
    `watch` is given the runner, which says why nothing can be applied at the moment. What may pass is retried. Other errors pause
    the task, if it has applied anything in this process or could have: it waits until it is resumed (`task_pause`).
    `FencedError`: another process has taken the task over. At the start, and with `until_caught_up`, every error ends the process:
    `SinkError` if the target does not take a row or a statement. Kafka, the registry and the server of the target have their own.
    """
    target = target_of(settings)
    runner: Runner[TaskAttempt] = Runner(stop, _may_pass, _log_retry)
    watch(runner)
    pauses = TaskPauses(target, stop)
    with ExitStack() as stack:
        stack.enter_context(closing(target))
        stack.callback(target.note_end)
        executors = None if not settings.apply.executor_rows else stack.enter_context(closing(_executors(settings, stop)))

        def work(task: TaskAttempt) -> None:
            with suppress(EndingError):  # stopped within a batch
                if finish is None:
                    task.run(until_caught_up=until_caught_up)
                else:
                    task.finish(finish)

        is_resumed = True
        while is_resumed and not stop.is_set():
            runner.run(lambda: TaskAttempt(settings, target, stop, pauses, executors), work)
            is_resumed = runner.attempt is not None and runner.attempt.is_resumed


def _executors(settings: TaskSettings, stop: threading.Event) -> ShareExecutors:
    try:
        from spark_jobs.replicate.apply.share_executors import ShareExecutors
    except ImportError as error:
        raise ConfigError(f"apply.executor_rows needs Spark: pip install '.[spark]' ({error})") from error
    return ShareExecutors(settings, stop)


def _may_pass(error: Exception) -> bool:
    is_of_kafka = isinstance(error, PublishError) and not isinstance(error, (KafkaAccessError, KafkaRefusalError))
    return is_of_kafka or isinstance(error, (RetriableSourceError, RegistryUnavailableError, RetriableSinkError, OSError))


def _log_retry(reason: str, pause_s: float) -> None:
    log.warning("task.retried", reason=reason, pause_s=pause_s)


class TaskAttempt(Attempt):
    """One attempt at the sources of a task, from their states in the target on."""

    def __init__(
        self,
        settings: TaskSettings,
        target: FileTarget | ApplyTarget,
        stop: threading.Event,
        pauses: TaskPauses,
        executors: ShareExecutors | None = None,
    ) -> None:
        super().__init__("the task is starting", stop)
        self._settings = settings
        self._target = target
        self._pauses = pauses
        group = f"tidemark-task-{settings.task}"
        self._registry = HttpRegistry(settings.format.registry or "", RegistryAccess.of(settings.format))
        self._decoder = RowDecoder(self._registry.text_of)
        skipped = settings.apply.skip_transactions
        self._sources = {one.name: SourceOfTask(one, settings.kafka, group, self._decoder, skipped) for one in settings.sources}
        self._stream_reader = partial(StreamReader, settings.kafka, group, _BUFFER_BYTES)
        self._reader = self._stream_reader()
        self._changes: ChangeWriter
        self._merge: StreamMerge[Event] | None = None
        self._executors = executors
        self._parallel: ParallelApply | None = None
        self._asked_s = 0.0
        self.figures = TaskFigures()
        """Replaced behind each round."""
        self.is_resumed = False
        """Whether it was paused, and is to be followed by another attempt."""

    @property
    def pause(self) -> TaskPause | None:
        """The pause that the task is in."""
        return self._pauses.current

    @override
    def not_ready(self) -> str | None:
        pause = self.pause
        return super().not_ready() if pause is None else f"it is paused {pause.text}"

    def run(self, *, until_caught_up: bool) -> None:
        """Apply until stopped, or until caught up. If it is paused, wait until it is resumed."""
        pauses = self._pauses
        try:
            self._apply(until_caught_up=until_caught_up)
        except TidemarkError as error:
            if until_caught_up or self._stop.is_set() or not self._is_cause(error):
                raise
            pauses.note(error)
        if pauses.current is None:
            return
        if until_caught_up:
            raise self._paused(pauses.current)
        pauses.wait()
        self.is_resumed = pauses.current is None

    def _paused(self, pause: TaskPause) -> SinkError:
        return SinkError(f"task {self._settings.task} is paused {pause.text}. `tidemark ctl task resume` ends that")

    def _is_cause(self, error: TidemarkError) -> bool:
        return not _may_pass(error) and self._pauses.is_cause(error)

    def _apply(self, *, until_caught_up: bool) -> None:
        with ExitStack() as stack:
            stack.enter_context(closing(self._reader))
            stack.callback(self._log_not_skipped)
            if self._settings.order == "global":
                self._run_in_one_order(stack, until_caught_up=until_caught_up)
            else:
                self._run_each(stack, until_caught_up=until_caught_up)

    def _log_not_skipped(self) -> None:
        read = {name for source in self._sources.values() for name in source.skipped.read}
        if missing := sorted({*self._settings.apply.skip_transactions} - read):
            log.warning("apply.skipped_transactions_not_read", transactions=missing)

    # ---- order: source

    def _run_each(self, stack: ExitStack, *, until_caught_up: bool) -> None:
        newest = {name: source.topics.newest_commit() for name, source in self._sources.items()}
        if not self._take_over(newest):
            return
        self._changes = self._writer(None, stack)
        for name, start in newest.items():
            state = self._begin(name, start, stack)
            self._read(name, state.offset, state.n)
        ends = {name: start.offset for name, start in newest.items()} if until_caught_up else None
        while not self._is_done(ends):
            self._round(())

    # ---- order: global

    def _run_in_one_order(self, stack: ExitStack, *, until_caught_up: bool) -> None:
        found = {name: source.topics.last_commit(0.0) for name, source in self._sources.items()}
        newest = {name: start for name, start in found.items() if start is not None}
        if not self._take_over(newest):
            return
        merge, group = self._join(stack)
        cursors = merge.cursors()
        for name in self._sources:
            cursor, start = cursors.get(name), newest.get(name)
            if cursor is not None:
                self._continue(name, cursor, stack)
            elif start is not None and name in group.sources:
                state = self._begin(name, start, stack)
                merge.begin(name, group.sources[name].number, state.offset, state.n)
                self._read(name, state.offset, state.n)
        missing = sorted(self._sources.keys() - group.sources.keys())
        if missing:
            log.warning("task.sources_not_joined", group=self._settings.group, sources=missing)
        ends = self._ends(group, newest) if until_caught_up else None
        try:
            while not self._is_done(ends):
                group.follow(self._reader.read())
                self._begin_joined(group, merge, stack)
                self._round(self._too_far_ahead(merge, self._reader.read()))
        except TidemarkError as error:
            if self._is_cause(error):
                with suppress(PublishError):  # the first error counts; sources that join wait for this reader then
                    group.stop()
            raise
        group.stop()

    def _ends(self, group: GroupReader, newest: Mapping[str, CommitStart]) -> dict[str, int]:
        """Return the offset up to which Kafka has each source that has joined. A member that has published nothing is awaited."""
        joined = {name: one for name, one in group.sources.items() if name in self._sources}
        ends = {name: newest[name].offset for name in joined.keys() & newest.keys()}
        return ends | {name: 0 for name, one in joined.items() if name not in newest and one.is_member(None)}

    def _join(self, stack: ExitStack) -> tuple[StreamMerge[Event], GroupReader]:
        """Be a reader of the group, behind the progress of the target."""
        assert isinstance(self._target, ApplyTarget)
        progress = self._target.progress
        merge = self._merge = StreamMerge[Event](progress.released, progress.cursors)
        self._changes = self._writer(merge, stack)
        names = frozenset(self._sources)
        group = GroupReader(self._settings.kafka, self._settings.group or "", self._settings.task, names, merge)
        stack.enter_context(closing(group))
        return merge, group

    def _too_far_ahead(self, merge: StreamMerge[Event], sources: Iterable[str]) -> set[str]:
        return {name for name in sources if merge.waiting(name) > _MOST_AHEAD and name != merge.blocked_by}

    def _begin_joined(self, group: GroupReader, merge: StreamMerge[Event], stack: ExitStack) -> None:
        """Begin sources that have joined since, each with its first commit record as a member."""
        for name in self._sources.keys() - self._changes.states.keys():
            if not merge.is_member(name) or time.monotonic() < self._asked_s + _ASKED_EVERY_S:
                continue
            self._asked_s = time.monotonic()
            source = group.sources[name]
            start = self._sources[name].topics.first_commit(source.record.first)
            if start is not None:
                self._target.require_usable(name, start.server)
                state = self._begin(name, start, stack)
                merge.begin(name, source.number, state.offset, state.n)
                self._read(name, state.offset, state.n)

    # ---- the end of a task whose sources are lost

    def finish(self, report: Callable[[str], None]) -> None:
        """Apply all that Kafka has up to the last whole transaction of each source, and report the positions.

        The sources publish nothing more, so none waits for another one that is read to its end. `SinkError`: the target is not as
        the sources were then.
        """
        with ExitStack() as stack:
            stack.enter_context(closing(self._reader))
            if not self._take_over({}):
                if self.pause is not None:
                    raise self._paused(self.pause)
                return
            begun: Mapping[str, SourceCursor | SourceState] = self._target.states()
            group: GroupReader | None = None
            if self._settings.order == "global":
                merge, group = self._join(stack)
                begun = merge.cursors()
            else:
                self._changes = self._writer(None, stack)
            if not begun:
                raise ConfigError(f"--finish: task {self._settings.task} has not begun yet: there is nothing to finish")
            ends = {name: one.topics.last_whole(begun[name].offset) for name, one in self._sources.items() if name in begun}
            for name, end in ends.items():
                self._continue(name, begun[name], stack, end.offset)
            self._read_to_ends(ends)
            if not self._stop.is_set():
                report(finished(self._target, self._changes, ends, self._sources.keys() - ends.keys()))
                if group is not None:
                    group.stop()

    def _read_to_ends(self, ends: Mapping[str, WholeEnd]) -> None:
        left, merge = dict(ends), self._merge
        while not self._stop.is_set():
            read = self._reader.read()
            for name in [name for name, end in left.items() if read[name] >= end.offset]:
                del left[name]
                if merge is not None and merge.is_member(name):
                    merge.end(name)
            if not left:
                self._changes.apply([])
                return
            self._round(() if merge is None else self._too_far_ahead(merge, left))

    # ---- both

    def _continue(self, name: str, begun: SourceCursor | SourceState, stack: ExitStack, end: int = OPEN_END) -> None:
        """Continue a source that the target knows, up to the commit record at `end`."""
        self._begin(name, CommitStart(begun.offset, begun.n, "", ""), stack)
        self._read(name, begun.offset, begun.n, end)

    def _read(self, name: str, offset: int, n: int, end: int = OPEN_END) -> None:
        """Read a source from a commit record on, up to the one at `end`."""
        self._sources[name].topics.require_kept(offset)
        self._reader.add(name, offset, n, end)

    def _take_over(self, starts: Mapping[str, CommitStart]) -> bool:
        """Begin to write to the target; a process that was fenced does not come back. False: the task is paused, or stopped."""
        target = self._target
        if not target.epoch:
            for name, start in starts.items():
                target.require_usable(name, start.server)
            target.take_over()
            log.info("task.started", task=self._settings.task, epoch=target.epoch)
        self._pauses.begin()
        if self.pause is not None:
            return False
        if not isinstance(target, ApplyTarget):
            return True
        target.read_progress(is_global=self._settings.order == "global")
        return self._finish_plan(target)

    def _finish_plan(self, target: ApplyTarget) -> bool:
        """Apply the rest of a batch that was begun, before anything else is applied; return whether no plan is open then."""
        with closing(ParallelApply(target, self._decoder, self._settings, self._executors)) as parallel:
            opened = parallel.store.read()
            if opened is None:
                return True
            number, plan = opened
            states = target.states()
            with closing(self._stream_reader()) as reader:
                rows = PlanReader(reader, self._sources, self._stop).rows(plan, states, target.progress)
            if rows is None:
                return False
            parallel.repeat(number, plan, rows, {name: state.loading for name, state in states.items()})
            target.progress = plan.stream or target.progress
            with target.transaction():
                parallel.store.close()
                for name, state in plan.states.items():
                    target.put_state(name, state)
                target.put_progress()
        return True

    def _writer(self, merge: StreamMerge[Event] | None, stack: ExitStack) -> ChangeWriter:
        target, settings = self._target, self._settings
        if isinstance(target, FileTarget):
            return Archiver(target, self._registry.text_of)
        writer = RowWriter(target, self._decoder, settings.apply)
        whole_rows = settings.apply.max_batch_rows if settings.target.consistency == "transaction" else 0
        if self._has_plans:
            self._parallel = stack.enter_context(closing(ParallelApply(target, self._decoder, settings, self._executors)))
        if merge is None:
            return Applier(target, writer, self._parallel, whole_rows)
        return StreamApplier(target, writer, merge, self._parallel, whole_rows)

    @property
    def _has_plans(self) -> bool:
        return self._settings.target.consistency == "eventual" and self._settings.apply.workers > 1

    def _begin(self, name: str, start: CommitStart, stack: ExitStack) -> SourceState:
        """Begin a source at the target, or continue there; return its state."""
        source = self._sources[name]
        state = source.begin(self._target, self._changes, start, loads=self._settings.mode == "all")
        source.watch(state, stack)
        log.info("task.source", source=name, position=state.position)
        return state

    def _is_done(self, ends: Mapping[str, int] | None) -> bool:
        if self._stop.is_set() or self._pauses.is_asked():
            return True
        if ends is None:
            return False
        states = self._changes.states
        return all(
            name in states and self._changes.offset(name) >= end and not states[name].loading for name, end in ends.items()
        )

    def _round(self, paused: Collection[str]) -> None:
        """Read a batch, and apply it."""
        self._is_ready = self._pauses.has_begun = True
        batch, begun_s = self._batch(paused), time.monotonic()
        self._changes.apply(batch)
        self.note_success()
        self.figures = self._figures_behind(batch, self.figures.apply_s + time.monotonic() - begun_s)
        for name, state in self._changes.states.items():
            self._sources[name].require_hope(state)

    def _figures_behind(self, batch: Sequence[KafkaTransaction], apply_s: float) -> TaskFigures:
        sources, merge = dict(self.figures.sources), self._merge
        for transaction in batch:
            if not transaction.open:
                sources[transaction.source] = sources.get(transaction.source, SourceProgress()).behind(transaction.commit)
        frontier_us = None if merge is None else merge.released.us or None
        sources = {
            name: replace(
                one, applied_us=one.read_us if merge is None else frontier_us, skipped=len(self._sources[name].skipped.read)
            )
            for name, one in sources.items()
        }
        blocked_by = None if merge is None else merge.blocked_by
        conflicts = None if self._parallel is None else self._parallel.conflicts
        return TaskFigures(sources, Counter(self._changes.rows), apply_s, frontier_us, blocked_by, conflicts)

    def _batch(self, paused: Collection[str]) -> list[KafkaTransaction]:
        """Return the Kafka transactions that are there, up to the rows of a batch; busy sources have the delay to add more."""
        settings = self._settings.apply
        batch, count, size, deadline = list[KafkaTransaction](), 0, 0, time.monotonic() + settings.max_delay_ms / 1000
        most = settings.max_batch_rows if self._has_plans else settings.driver_rows
        while not batch or (count < most and size < _BATCH_BYTES and time.monotonic() < deadline):
            another = self._reader.next(0.0 if batch else _WAITS_S, paused)
            if another is None:
                break
            batch.append(another)
            count += len(another.records)
            size += sum(record.size for record in another.records)
        return batch
