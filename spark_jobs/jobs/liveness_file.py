"""The merge job's liveness record: a file beside its progress, written every few seconds while the job runs.

The status is read from it, also in the middle of a long batch, which leaves no other trace.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

from schemas.batch_stages import RECENT, BatchStages
from schemas.json_codec import encode
from schemas.liveness import EVERY_S, Sign, machine

log = structlog.get_logger()


class LivenessFile:
    """A writer of the record, on a thread of its own while it is entered; at the end it writes why the job ended.

    Between two attempts (`waiting`) it writes what the job waits for.

    A record that cannot be written (a full disk) is logged once and ends nothing: the status then calls the job silent.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ended = threading.Event()
        self._write = threading.Lock()
        self._batch: dict[str, Any] = {}
        self._stages: dict[str, Any] = {}
        self._state, self._reason = "running", ""
        self._failed = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._begin("running", "")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end("" if error is None else (str(error).splitlines() or [type(error).__name__])[0])

    @contextmanager
    def waiting(self, reason: str) -> Iterator[None]:
        """Write that the job waits before another attempt, and why. Not while it is entered."""
        self._begin("waiting", reason)
        try:
            yield
        finally:
            self._end(reason)

    def _begin(self, state: str, reason: str) -> None:
        self._batch, self._state, self._reason = {}, state, reason
        self._ended.clear()
        self._thread = threading.Thread(target=self._run, name="liveness", daemon=True)
        self._give(state, reason)
        self._thread.start()

    def _end(self, reason: str) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._give("ended", reason)

    def note_stages(self, recent: Sequence[BatchStages]) -> None:
        """Write with the next record how long the stages of the last batches took."""
        self._stages = {RECENT: [one.document for one in recent]}

    @contextmanager
    def batch(self, number: int) -> Iterator[None]:
        """Write that this batch runs, and afterwards how long it took."""
        began = time.monotonic()
        self._batch = {**self._batch, "number": number, "since_ms": time.time_ns() // 1_000_000}
        self._give("running")
        yield
        self._batch = {**self._stages, "last_s": round(time.monotonic() - began, 1)}
        self._give("running")

    def _run(self) -> None:
        while not self._ended.wait(EVERY_S):
            try:
                self._give(self._state, self._reason)
            except Exception:  # a job without its records would count as silent
                log.exception("merge.liveness_not_written")

    def _give(self, state: str, reason: str = "") -> None:
        at_ms = time.time_ns() // 1_000_000
        sign = Sign(at_ms=at_ms, state=state, reason=reason, machine=machine(), batch=self._batch)
        beside = self._path.with_name(f".{self._path.name}.tmp")
        try:
            with self._write:
                beside.write_text(json.dumps(encode(sign)), encoding="utf-8")
                beside.replace(self._path)  # not synced: a record from before a power cut is of no use
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.warning("merge.liveness_not_written", path=str(self._path), reason=str(error))
            self._failed = True
