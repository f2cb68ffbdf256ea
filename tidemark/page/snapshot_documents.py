"""What the view of snapshots says: what `tidemark snapshot list` says, and which chunks are done (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidemark.api.snapshot_list import rates, request_document, standing_document

if TYPE_CHECKING:
    from tidemark.api.chunk_map import ChunkMap
    from tidemark.api.snapshot_list import SnapshotRequest
    from tidemark.page.page_facts import Facts

SHOWN: Final = 50
"""So many requests are shown, the newest."""


def snapshots(facts: Facts) -> dict[str, Any]:
    """Return the requests, newest first, with their tables, and how many older ones there are."""
    pace = rates(facts.snapshots_before, facts.snapshots)
    requests = facts.snapshots.requests[::-1]
    return {
        "producer": standing_document(facts.snapshots.producer),
        "requests": [_request(request, request_document(request, pace), facts) for request in requests[:SHOWN]],
        "older": max(0, len(requests) - SHOWN),
        "paused": any(request.state.value == "paused" for request in requests),
        "running": facts.snapshots.is_running,
    }


def _request(request: SnapshotRequest, document: dict[str, Any], facts: Facts) -> dict[str, Any]:
    tables = [
        {**table, "share": task.share, "chunks": _chunks(facts.chunks.get((task.request, task.table)))}
        for task, table in zip(request.tasks, document["tables"], strict=True)
    ]
    failed = sum(not task.is_keyless for task in request.failed)
    return {**document, "tables": tables, "failed": failed}


def _chunks(chunks: ChunkMap | None) -> dict[str, Any] | None:
    if chunks is None:
        return None
    return {
        "planned": chunks.planned,
        "done": chunks.done,
        "is_planned": chunks.is_planned,
        "cells": [cell.value for cell in chunks.cells],
        "per_cell": chunks.per_cell,
        "errors": list(chunks.errors),
    }
