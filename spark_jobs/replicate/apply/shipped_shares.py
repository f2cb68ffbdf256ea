"""Shares for another process: rows enter at the task and leave as bytes, which the `ShareWorker` of that process applies."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from schemas.errors import result_or_error
from spark_jobs.replicate.apply.share_workers import ShareWorker
from spark_jobs.replicate.rows.row_events import RowEvent
from spark_jobs.replicate.rows.row_statements import TextedRow
from spark_jobs.replicate.rows.row_texts import RowTexts
from spark_jobs.replicate.rows.row_values import RowDecoder

if TYPE_CHECKING:
    from spark_jobs.replicate.apply.share_workers import WorkerSetup


@dataclass(frozen=True, slots=True)
class ShippedShare:
    """The share of a worker in a plan. `schemas` are the texts of the schemas of its records, by their ids."""

    plan: int
    worker: int
    schemas: Mapping[int, str]
    packed: bytes

    @classmethod
    def of(cls, plan: int, worker: int, rows: Sequence[TextedRow], decoder: RowDecoder) -> ShippedShare:
        """Return the share without the records of its rows: their texts are enough to apply them."""
        schemas = {ident: json.dumps(decoder.schema(ident)) for ident in {row.event.schema_id for row in rows}}
        plain = [
            (event.position, event.op, event.table, event.schema_id, event.checks_keys, event.source, *texts, *flags)
            for event, texts, *flags in rows
        ]  # tuples are packed in a tenth of the time of named ones
        return cls(plan, worker, schemas, pickle.dumps(plain))

    def rows(self) -> list[TextedRow]:
        """Return the rows."""
        return [
            TextedRow(
                RowEvent(position, op, table, schema_id, None, None, checks_keys, source=source),
                RowTexts(values, old_key, new_key, changes, is_changed, fits),
                *flags,
            )
            for (
                position, op, table, schema_id, checks_keys, source, values, old_key, new_key, changes, is_changed, fits,
                *flags,
            ) in pickle.loads(self.packed)  # noqa: S301 - packed by the task
        ]  # fmt: skip


class ShareProcess:
    """The worker of a process for the shares that are sent to it. It keeps its session, and its facts about tables."""

    def __init__(self) -> None:
        self._setup: WorkerSetup | None = None
        self._worker: ShareWorker | None = None
        self._schemas: dict[int, str] = {}

    def apply(self, setup: WorkerSetup, share: ShippedShare) -> None:
        """Apply a share. Errors as `ShareWorker.apply`."""
        if self._worker is None or setup != self._setup:
            if self._worker is not None:
                self._worker.close()
            self._schemas = {}
            self._setup, self._worker = setup, ShareWorker(setup, RowDecoder(self._schemas.__getitem__))
        self._schemas.update(share.schemas)
        self._worker.apply(share.plan, share.worker, share.rows())


_OF_THIS_PROCESS: Final = ShareProcess()


def apply_shipped(setup: WorkerSetup, share: ShippedShare) -> Exception | None:
    """Apply a share in this process. Return its error, which the task raises: Spark would repeat it, and make a text of it."""
    return result_or_error(lambda: _OF_THIS_PROCESS.apply(setup, share))
