"""Every snapshot request and its tables, as a value: documents of the state topic enter, `SnapshotList` leaves (pure).

`Observer.state` reads what enters. The command and the page show the same values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from schemas.documents import OffsetDocument, Origin, RequestDocument, SnapshotState, TaskDocument
from schemas.liveness import JobState, ProducerFacts, Sign, Standing, producer_state
from schemas.position import Position
from schemas.state import State
from tidemark.api.overview import KEYLESS

_UNREAD: Final = frozenset({SnapshotState.QUEUED, SnapshotState.RUNNING})


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTask:
    """One table of a request.

    `rows` were read of about `estimate`, which is None where the server gave none. `chunks_done` are done, `chunks_open` are
    planned and not done; more may follow unless `is_planned`: then the whole table is divided. `via` is the way of the rows,
    `via_reason` why it is not the one that was wanted. `waits` says why no chunk is read now, "" where that is not so or not known.
    `is_keyless`: it failed because it has no key, which is no alarm: its changes go to Kafka, and it has no mirror.
    """

    request: str
    table: str
    state: SnapshotState
    rows: int
    estimate: int | None
    chunks_done: int
    chunks_open: int
    is_planned: bool
    condition: str | None
    merge: str
    via: str
    via_reason: str
    error: str
    waits: str
    is_keyless: bool

    @property
    def share(self) -> float | None:
        """The part that is read, 0 to 1, and 1 only when it is done; None where the estimate says nothing, or is proved wrong."""
        if self.state is SnapshotState.DONE:
            return 1.0
        return min(0.99, self.rows / self.estimate) if self.estimate and self.rows <= self.estimate else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    """One request, with its tables in the order in which they are read. `id` is that of its signal, if there was one.

    `created_ms` and `finished_ms` are Unix times of the producer's clock.
    """

    id: str
    origin: Origin
    state: SnapshotState
    blocking: bool
    position: Position | None
    created_ms: int
    finished_ms: int | None
    reason: str
    error: str
    tasks: tuple[SnapshotTask, ...]

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
    sign_ms: int | None
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


def snapshot_list(state: State, now_ms: int, before: SnapshotList | None = None) -> SnapshotList:
    """Return what the state topic says of snapshots; `StateError` for a document that is not understood.

    A liveness record that is newer than the one `before` proves that the producer lives, whatever the clocks show.
    """
    sign = state.one(Sign)
    is_moving = sign is not None and before is not None and before.sign_ms not in (None, sign.at_ms)
    has_offset = OffsetDocument.KEY in state
    producer = producer_state(ProducerFacts(now_ms=now_ms, started=has_offset, sign=sign, is_moving=is_moving))
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


def running_only(found: SnapshotList) -> SnapshotList:
    """Return the list without what has ended."""
    requests = tuple(request for request in found.requests if not request.state.final)
    return replace(found, requests=requests, children=tuple(task for task in found.children if not task.state.final))


def rates(before: SnapshotList, now: SnapshotList) -> Mapping[tuple[str, str], float]:
    """Return the rows per second by request and table, of those that were seen twice and have not ended."""
    seconds = (now.read_ms - before.read_ms) / 1000
    if seconds <= 0:
        return {}
    earlier = {(task.request, task.table): task.rows for task in before.tasks}
    return {
        (task.request, task.table): max(0, task.rows - earlier[task.request, task.table]) / seconds
        for task in now.tasks
        if (task.request, task.table) in earlier and not task.state.final
    }


def eta_s(task: SnapshotTask, rate: float | None) -> float | None:
    """Return the seconds until a table is read; None where that is not known: no rate, no estimate, or more rows than that."""
    if task.state is not SnapshotState.RUNNING or not rate or task.estimate is None or task.rows >= task.estimate:
        return None
    return round((task.estimate - task.rows) / rate, 1)


def document_of(now: SnapshotList, pace: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    """Return the list in JSON; what is not known is null."""
    return {
        "read_ms": now.read_ms,
        "producer": standing_document(now.producer),
        "requests": [request_document(request, pace) for request in now.requests],
        "children": [_task_document(task, pace) for task in now.children],
    }


def standing_document(producer: Standing) -> dict[str, Any]:
    """Return the state of the producer in JSON."""
    return {"state": producer.state.value, "reason": producer.reason or None, "alive": producer.alive}


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


def request_document(request: SnapshotRequest, pace: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    """Return a request with its tables in JSON."""
    return {
        "id": request.id,
        "origin": request.origin.value,
        "state": request.state.value,
        "outcome": request.outcome,
        "blocking": request.blocking,
        "position": None if request.position is None else request.position.text,
        "created_ms": request.created_ms,
        "finished_ms": request.finished_ms,
        "reason": request.reason or None,
        "error": request.error or None,
        "rows_read": request.rows,
        "tables": [_task_document(task, pace) for task in request.tasks],
    }


def _task_document(task: SnapshotTask, pace: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    rate = pace.get((task.request, task.table))
    return {
        "table": task.table,
        "state": task.state.value,
        "keyless": task.is_keyless,
        "rows_read": task.rows,
        "rows_estimated": task.estimate,
        "rows_per_s": None if rate is None else round(rate, 1),
        "eta_s": eta_s(task, rate),
        "chunks_done": task.chunks_done,
        "chunks_open": task.chunks_open,
        "condition": task.condition,
        "merge": task.merge,
        "via": task.via,
        "via_reason": task.via_reason or None,
        "waiting": task.waits or None,
        "error": task.error or None,
    }
