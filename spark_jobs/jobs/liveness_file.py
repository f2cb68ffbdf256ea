"""The merge job's liveness record: a file beside its progress, written every few seconds while the job runs.

The status is read from it, also in the middle of a long batch, which leaves no other trace.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import structlog

from schemas.batch_stages import RECENT, BatchStages
from schemas.errors import StateError
from schemas.json_codec import encode
from schemas.lasting import logged_errors
from schemas.liveness import EVERY_S, Sign, machine, read_sign

log = structlog.get_logger()

_ROOM: Final = 2048
_SHORTENED: Final = 300


class LivenessFile:
    """A writer of the record, on a thread of its own while it is entered; at the end it writes why the job ended.

    Between two attempts (`waiting`) it writes what the job waits for, and so it does in the next ones (`lasts`) until one succeeds.

    On a full disk the record is written over the one before, without the figures of batches, in the room that each record
    leaves for that. A record that cannot be written at all is logged once and ends nothing: the status then calls the job silent.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ended = threading.Event()
        self._write = threading.Lock()
        self._batch: dict[str, Any] = {}
        self._stages: dict[str, Any] = {}
        self._state, self._reason = "running", ""
        self._since_ms: int | None = None
        self._failed = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if not self._is_writing:  # else it waits from before its entry on (`lasts`)
            self._begin("running", "", None)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end("" if error is None else (str(error).splitlines() or [type(error).__name__])[0])

    @contextmanager
    def waiting(self, reason: str, since_ms: int) -> Iterator[None]:
        """Write that the job waits before another attempt, why, and since when. Not while it is entered."""
        self._begin("waiting", reason, since_ms)
        try:
            yield
        finally:
            self._stop()

    def lasts(self, reason: str, since_ms: int) -> None:
        """Write from now on that the job waits although it retries, until `succeeded` or its end."""
        self._begin("waiting", reason, since_ms)

    def succeeded(self) -> None:
        """Write that the job runs."""
        if self._state == "waiting":
            self._state, self._reason, self._since_ms = "running", "", None
            self._give("running")

    def note_end(self, reason: str, begun_ms: int) -> None:
        """Write why a job ended that began at a time and may not have been entered here.

        Nothing is written if the file has its end already, or the record of another job that may run, or has no folder; and nothing
        of a job that was stopped before it began.
        """
        if self._is_writing:
            self._end(reason)
            return
        if not reason or not self._path.parent.is_dir():
            return
        try:
            last = read_sign(self._path)
        except StateError:
            last = None
        now_ms = time.time_ns() // 1_000_000
        if last is None or (last.at_ms < begun_ms if last.state == "ended" else last.silent_ms(now_ms)):
            self._give("ended", reason)

    def _begin(self, state: str, reason: str, since_ms: int | None) -> None:
        self._stop()
        self._batch, self._state, self._reason, self._since_ms = {}, state, reason, since_ms
        self._ended.clear()
        self._thread = threading.Thread(target=self._run, name="liveness", daemon=True)
        self._give(state, reason)
        self._thread.start()

    def _end(self, reason: str) -> None:
        self._stop()
        self._since_ms = None
        self._give("ended", reason)

    def _stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._thread = None

    @property
    def _is_writing(self) -> bool:
        return self._thread is not None

    def note_stages(self, recent: Sequence[BatchStages]) -> None:
        """Write with the next record how long the stages of the last batches took."""
        self._stages = {RECENT: [encode(one) for one in recent]}

    @contextmanager
    def batch(self, number: int) -> Iterator[None]:
        """Write that this batch runs, and afterwards how long it took."""
        began = time.monotonic()
        self._batch = {**self._batch, "number": number, "since_ms": time.time_ns() // 1_000_000}
        self._give(self._state, self._reason)
        yield
        self._batch = {**self._stages, "last_s": round(time.monotonic() - began, 1)}
        self._give(self._state, self._reason)

    def _run(self) -> None:
        while not self._ended.wait(EVERY_S):
            with logged_errors(log.exception, "merge.liveness_not_written"):  # a job without its records would count as silent
                self._give(self._state, self._reason)

    def _give(self, state: str, reason: str = "") -> None:
        at_ms = time.time_ns() // 1_000_000
        sign = Sign(at_ms=at_ms, state=state, reason=reason, since_ms=self._since_ms, machine=machine(), batch=self._batch)
        with self._write:
            try:
                self._replace(sign)
                self._failed = False
            except OSError as error:
                if not self._failed:
                    log.warning("merge.liveness_not_written", path=str(self._path), reason=str(error))
                self._failed = True
                self._overwrite(replace(sign, batch={}))

    def _replace(self, sign: Sign) -> None:
        beside = self._path.with_name(f".{self._path.name}.tmp")
        try:
            beside.write_text(json.dumps(encode(sign)).ljust(_ROOM), encoding="utf-8")
            beside.replace(self._path)  # not synced: a record from before a power cut is of no use
        except OSError:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise

    def _overwrite(self, sign: Sign) -> None:
        """Write over the last record, which needs no new room on the disk; a file that is missing stays so."""
        with suppress(OSError), self._path.open("r+b", buffering=0) as file:
            size = self._path.stat().st_size
            text = json.dumps(encode(sign)).encode()
            if len(text) > size:
                text = json.dumps(encode(replace(sign, reason=f"{sign.reason[:_SHORTENED]}..."))).encode()
            file.write(text.ljust(size))
