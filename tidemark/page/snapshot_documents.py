"""What the view of snapshots says: requests and their tables, how far each is, which chunks are done (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidemark.api.snapshot_list import rates

if TYPE_CHECKING:
    from tidemark.api.snapshot_list import SnapshotRequest, SnapshotTask
    from tidemark.page.page_facts import Facts

SHOWN: Final = 50
"""So many requests are shown, the newest."""


def snapshots(facts: Facts) -> dict[str, Any]:
    """Return the requests, newest first, with their tables, and how many older ones there are."""
    found = rates(facts.snapshots_before, facts.snapshots)
    requests = facts.snapshots.requests[::-1]
    producer = facts.snapshots.producer
    return {
        "producer": producer.text,
        "producer_alive": producer.alive,
        "requests": [_request(request, found, facts) for request in requests[:SHOWN]],
        "older": max(0, len(requests) - SHOWN),
        "paused": any(request.state.value == "paused" for request in requests),
        "running": facts.snapshots.is_running,
    }


def _request(request: SnapshotRequest, found: Any, facts: Facts) -> dict[str, Any]:
    return {
        "id": request.id,
        "origin": request.origin.value,
        "state": request.state.value,
        "created_ms": request.created_ms,
        "finished_ms": request.finished_ms,
        "reason": request.reason or None,
        "error": request.error or None,
        "rows": request.rows,
        "tables": [_task(task, found.get((task.request, task.table)), facts) for task in request.tasks],
    }


def _task(task: SnapshotTask, rate: float | None, facts: Facts) -> dict[str, Any]:
    chunks = facts.chunks.get((task.request, task.table))
    left = None if task.estimate is None or task.rows >= task.estimate else task.estimate - task.rows
    is_read = task.state.value == "running"
    return {
        "table": task.table,
        "state": task.state.value,
        "rows": task.rows,
        "estimate": task.estimate,
        "share": task.share,
        "rows_per_s": None if rate is None else round(rate, 1),
        "eta_s": round(left / rate, 1) if is_read and left is not None and rate else None,
        "condition": task.condition,
        "via": task.via,
        "via_reason": task.via_reason or None,
        "error": task.error or None,
        "waits": task.waits or None,
        "chunks": None
        if chunks is None
        else {
            "planned": chunks.planned,
            "done": chunks.done,
            "is_planned": chunks.is_planned,
            "cells": [cell.value for cell in chunks.cells],
            "per_cell": chunks.per_cell,
            "errors": list(chunks.errors),
        },
    }
