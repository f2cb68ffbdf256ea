"""Every snapshot request and its tables, as a value: documents of the state topic enter, `SnapshotList` leaves (pure).

`Observer.state` reads what enters. The command and the page show the same values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from schemas.documents import OffsetDocument, Origin, RequestDocument, SnapshotState, TaskDocument
from schemas.json_codec import Form, json_field
from schemas.liveness import Sign
from schemas.position import Position
from schemas.state import State
from tidemark.status.job_standing import JobState, Standing, producer_state
from tidemark.status.reckoning import KEYLESS
from tidemark.status.status_tree import seconds_left, share_of

_UNREAD: Final = frozenset({SnapshotState.QUEUED, SnapshotState.RUNNING})


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTask:
    """One table of a request.

    `rows` were read of about `estimate`, which is None where the server gave none. `chunks_done` are done, `chunks_open` are
    planned and not done; more may follow unless `is_planned`: then the whole table is divided. `via` is the way of the rows,
    `via_reason` why it is not the one that was wanted. `waits` says why no chunk is read now, "" where that is not so or not known.
    `is_keyless`: it failed because it has no key, which is no alarm: its changes go to Kafka, and it has no mirror. `rows_per_s` is
    known after two looks (`SnapshotList.with_rates`).
    """

    JSON: ClassVar = Form(
        head=lambda task: {"rows_per_s": None if task.rows_per_s is None else round(task.rows_per_s, 1), "eta_s": task.eta_s}
    )

    request: str = json_field(absent=True)
    table: str
    state: SnapshotState
    rows: int = json_field(name="rows_read")
    estimate: int | None = json_field(name="rows_estimated")
    chunks_done: int
    chunks_open: int
    is_planned: bool = json_field(absent=True)
    condition: str | None
    merge: str
    via: str
    via_reason: str = json_field(empty_as_null=True)
    error: str = json_field(empty_as_null=True)
    waits: str = json_field(name="waiting", empty_as_null=True)
    is_keyless: bool = json_field(name="keyless")
    rows_per_s: float | None = json_field(None, absent=True)

    @property
    def share(self) -> float | None:
        """The part that is read, as `share_of` has it."""
        return share_of(self.state is SnapshotState.DONE, self.rows, self.estimate)

    @property
    def eta_s(self) -> float | None:
        """The seconds until it is read; None if nobody knows."""
        return seconds_left(self.rows, self.estimate, self.rows_per_s) if self.state is SnapshotState.RUNNING else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    """One request, with its tables in the order in which they are read. `id` is that of its signal, if there was one.

    `created_ms` and `finished_ms` are Unix times of the producer's clock.
    """

    JSON: ClassVar = Form(head=lambda request: {"outcome": request.outcome, "rows_read": request.rows})

    id: str
    origin: Origin
    state: SnapshotState
    blocking: bool
    position: Position | None
    created_ms: int
    finished_ms: int | None
    reason: str = json_field(empty_as_null=True)
    error: str = json_field(empty_as_null=True)
    tasks: tuple[SnapshotTask, ...] = json_field(name="tables")

    @property
    def rows(self) -> int:
        """The rows that were read, of all tables."""
        return sum(task.rows for task in self.tasks)

    @property
    def failed(self) -> tuple[SnapshotTask, ...]:
        """The tables that could not be read, or were left out with an error."""
        return tuple(task for task in self.tasks if task.state is SnapshotState.FAILED)

    @property
    def outcome(self) -> str:
        """The state; of a request that is done also how many of its tables were not read."""
        keyless = sum(task.is_keyless for task in self.failed)
        failed = len(self.failed) - keyless
        if self.state is not SnapshotState.DONE or not self.failed:
            return self.state.value
        return ", ".join(["done", *([f"{failed} failed"] if failed else []), *([f"{keyless} without a key"] if keyless else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotList:
    """All requests that the producer remembers, oldest first, at `read_ms` (Unix time).

    `children` are readings of rows that a foreign key may have changed; they belong to no request. `producer` is the state of the
    one that reads, by its last liveness record, which it wrote at `sign_ms` of its clock; None where it wrote none.
    """

    read_ms: int
    producer: Standing
    sign_ms: int | None = json_field(absent=True)
    requests: tuple[SnapshotRequest, ...]
    children: tuple[SnapshotTask, ...]

    @property
    def is_running(self) -> bool:
        """Whether something is queued, being read or paused."""
        return any(not request.state.final for request in self.requests) or any(not one.state.final for one in self.children)

    def find(self, request_id: str) -> SnapshotRequest | None:
        """Return the request with this id, None where the producer does not know it."""
        return next((request for request in self.requests if request.id == request_id), None)

    @property
    def tasks(self) -> Iterator[SnapshotTask]:
        """All tables of all requests, and the children."""
        for request in self.requests:
            yield from request.tasks
        yield from self.children

    @property
    def running_only(self) -> SnapshotList:
        """The list without what has ended."""
        requests = tuple(request for request in self.requests if not request.state.final)
        return replace(self, requests=requests, children=tuple(task for task in self.children if not task.state.final))

    def with_rates(self, before: SnapshotList) -> SnapshotList:
        """Return the same with the rows per second since an earlier look, of tables that both have and that have not ended."""
        seconds = (self.read_ms - before.read_ms) / 1000
        earlier = {(task.request, task.table): task.rows for task in before.tasks} if seconds > 0 else {}

        def paced(task: SnapshotTask) -> SnapshotTask:
            rows = None if task.state.final else earlier.get((task.request, task.table))
            return replace(task, rows_per_s=None if rows is None else max(0, task.rows - rows) / seconds)

        requests = tuple(replace(request, tasks=tuple(map(paced, request.tasks))) for request in self.requests)
        return replace(self, requests=requests, children=tuple(map(paced, self.children)))


def snapshot_list(state: State, now_ms: int, before: SnapshotList | None = None) -> SnapshotList:
    """Return what the state topic says of snapshots; `StateError` for a document that is not understood.

    A liveness record that is newer than the one `before` proves that the producer lives, whatever the clocks show.
    """
    sign = state.one(Sign)
    is_moving = sign is not None and before is not None and before.sign_ms not in (None, sign.at_ms)
    has_offset = OffsetDocument.KEY in state
    producer = producer_state(now_ms, sign, started=has_offset, is_moving=is_moving)
    waits = sign.snapshot_waits if sign is not None and producer.state is JobState.READING else ""
    found = sorted(state.all(RequestDocument).values(), key=lambda request: request.number)
    requests = {request.id: request for request in found}
    tasks: dict[str, list[SnapshotTask]] = {request.id: [] for request in found}
    for task in state.all(TaskDocument).values():
        request = requests.get(task.request)
        if request is not None:
            is_waiting = not request.blocking and request.state in _UNREAD and task.state in _UNREAD
            tasks[request.id].append(_task(task, request, waits if is_waiting else ""))
    children = state.all(TaskDocument, TaskDocument.CHILDREN).values()
    return SnapshotList(
        read_ms=now_ms,
        producer=producer,
        sign_ms=None if sign is None else sign.at_ms,
        requests=tuple(_request(request, tasks[request.id]) for request in found),
        children=tuple(_task(task, None, "") for task in children),
    )


def _request(request: RequestDocument, tasks: list[SnapshotTask]) -> SnapshotRequest:
    order = {table: index for index, table in enumerate(request.tables)}
    return SnapshotRequest(
        id=request.id,
        origin=request.origin,
        state=request.state,
        blocking=request.blocking,
        position=request.position,
        created_ms=request.created_ms,
        finished_ms=request.finished_ms,
        reason=request.reason,
        error=request.error,
        tasks=tuple(sorted(tasks, key=lambda task: order.get(task.table, len(order)))),
    )


def _task(task: TaskDocument, request: RequestDocument | None, waits: str) -> SnapshotTask:
    is_paused = request is not None and request.state is SnapshotState.PAUSED and task.state is SnapshotState.RUNNING
    return SnapshotTask(
        request=task.request,
        table=task.table,
        state=SnapshotState.PAUSED if is_paused else task.state,
        rows=task.rows,
        estimate=task.estimate,
        chunks_done=task.chunks_done,
        chunks_open=len(task.outstanding),
        is_planned=task.plan.complete,
        condition=task.condition,
        merge=task.merge,
        via=task.via,
        via_reason=task.via_reason,
        error=task.error,
        waits=waits,
        is_keyless=task.status == KEYLESS,
    )
