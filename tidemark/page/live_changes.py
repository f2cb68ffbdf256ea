"""The newest changes, decoded, for as long as somebody looks: the first view starts a thread that reads the change topics."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import structlog

from schemas.errors import DecodeError, TidemarkError
from schemas.json_codec import Form, encode
from tidemark.api.change_reader import Change, ChangeReader
from tidemark.api.value_text import OPERATIONS, value_text

if TYPE_CHECKING:
    from schemas.settings import Settings

log = structlog.get_logger(__name__)

KEPT: Final = 500
_FORGOTTEN_S: Final = 60.0
"""Nobody has looked for so long: the reader is closed."""
_SINCE_S: Final = 60.0
"""The first view begins with changes that are so old."""
_SILENT_S: Final = 10.0
_TOO_FAST: Final = "they came faster than they can be shown"
_LATE: Final = 20 * KEPT
"""So many records are not read yet: they come faster than they are decoded."""
_TURN_S: Final = 0.5
_LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class Cell:
    """A column of a change: its value before and after as text, None where there is no such row, and whether they differ."""

    name: str
    before: str | None
    after: str | None
    is_changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveChange:
    """A change as text. `cells` are its columns.

    `number` counts what this process has read. `gap` is why changes before this one were left out, "" where none were.
    """

    JSON: ClassVar = Form(head=lambda change: {"operation": change.operation, "changed": [encode(cell) for cell in change.changed]})

    number: int
    table: str
    op: str
    key: str
    cells: tuple[Cell, ...]
    committed_ms: int | None
    position: str
    topic: str
    partition: int
    offset: int
    gap: str = ""

    @property
    def operation(self) -> str:
        """The operation as a word."""
        return OPERATIONS.get(self.op, self.op)

    @property
    def changed(self) -> tuple[Cell, ...]:
        """The columns that differ; all of a row that is new or gone."""
        return tuple(one for one in self.cells if one.is_changed)


class LiveChanges:
    """The ring of changes. `newest` starts the reader if none runs.

    Kafka has answered last at `read_ms`, None before its first answer. `trouble` is why there is nothing newer, "" else.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ring: deque[LiveChange] = deque(maxlen=KEPT)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._asked_s = 0.0
        self._thread: threading.Thread | None = None
        self._number = 0
        self._trouble = ""
        self._read_s: float | None = None
        self.read_ms: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    @property
    def trouble(self) -> str:
        """Why what was read is not of now, "" where it is; also where Kafka has answered nothing for some time."""
        if self._read_s is None:
            return self._trouble
        silent_s = time.monotonic() - self._read_s
        if silent_s <= _SILENT_S:
            return ""
        return self._trouble or f"Kafka has not answered for {silent_s:.0f} s"

    def newest(self) -> tuple[LiveChange, ...]:
        """Return what is there, newest first, and have the reader run for the next minute."""
        with self._lock:
            self._asked_s = time.monotonic()
            if self._thread is None and not self._ended.is_set():
                self._thread = threading.Thread(target=self._run, name="changes", daemon=True)
                self._thread.start()
            return tuple(reversed(self._ring))

    def _is_wanted(self) -> bool:
        """Return whether to continue; else the thread is forgotten under the lock, so that the next look starts another one.

        A thread that was forgotten already, and whose reader has taken its time to close, has a successor: it is not wanted.
        """
        with self._lock:
            if self._thread is not threading.current_thread():
                return False
            if not self._ended.is_set() and time.monotonic() - self._asked_s < _FORGOTTEN_S:
                return True
            self._thread, self._read_s, self.read_ms = None, None, None
            self._ring.clear()  # what comes after a pause does not follow on it
            return False

    def _run(self) -> None:
        begin: float | str = time.time() - _SINCE_S
        gap = ""
        while self._is_wanted():
            try:
                with ChangeReader(self._settings, begin=begin) as reader:
                    self._read(reader, gap)
                gap = _TOO_FAST
            except TidemarkError as error:
                gap = self._trouble = str(error)
                if not self._ended.is_set():  # a page that was closed has nothing to say of what it waited for
                    log.debug("page.changes_unknown", reason=gap)
                self._ended.wait(_TURN_S)
            except Exception as error:  # the thread must live: nobody would start another one
                gap = self._trouble = f"reading failed: {error!r}; see the log of `tidemark page`"
                log.exception("page.changes_failed")
                self._ended.wait(_TURN_S)
            begin = "latest"

    def _read(self, reader: ChangeReader, gap: str) -> None:
        """Keep changes until nobody wants them, or until they come too fast: reading then continues with the newest ones."""
        while self._is_wanted():
            try:
                change = reader.next_change(_TURN_S)
            except DecodeError as error:  # the reader is behind the record now
                gap = str(error)
                continue
            if reader.answered_s is not None:
                self._read_s, self._trouble = reader.answered_s, ""
                self.read_ms = time.time_ns() // 1_000_000 - int(1000 * (time.monotonic() - reader.answered_s))
            if change is None:
                continue
            self._number += 1
            with self._lock:
                self._ring.append(live_change(change, self._number, gap))
            gap = ""
            if self._number % KEPT == 0 and reader.unread > _LATE:
                return


def live_change(change: Change, number: int, gap: str = "") -> LiveChange:
    """Return a change as text; long values are cut, with their length."""
    before, after = change.before, change.after
    names = list(dict.fromkeys([*(after or {}), *(before or {})]))
    return LiveChange(
        number=number,
        table=change.table,
        op=change.op,
        key=_row(change.key, change.kinds),
        cells=tuple(_cell(before, after, name, change.kinds.get(name, "")) for name in names),
        committed_ms=change.committed_ms,
        position=change.position,
        topic=change.topic,
        partition=change.partition,
        offset=change.offset,
        gap=gap,
    )


def wanted(changes: tuple[LiveChange, ...], table: str, op: str, key: str, most: int) -> tuple[LiveChange, ...]:
    """Return the changes whose table and key contain the texts, of that operation ("" for all)."""
    table, key = table.casefold(), key.casefold()
    is_wanted = (
        (one, table in one.table.casefold() and (not op or one.op == op) and key in one.key.casefold()) for one in changes
    )
    chosen = (one for one, is_so in is_wanted if is_so)
    return tuple(one for _, one in zip(range(most), chosen, strict=False))


def _cell(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, name: str, kind: str) -> Cell:
    old, new = (None if row is None or name not in row else text_of(row[name], kind) for row in (before, after))
    is_changed = before is None or after is None or (name in before) != (name in after) or before.get(name) != after.get(name)
    return Cell(name, old, new, is_changed)


def _row(values: Mapping[str, Any] | None, kinds: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={text_of(value, kinds.get(name, ''))}" for name, value in (values or {}).items())


def text_of(value: Any, kind: str = "") -> str:
    """Return a value for a person; `kind` as for `value_text`."""
    if isinstance(value, bytes):
        shown = f"0x{value[: _LONGEST // 2].hex()}"
        return shown if len(value) <= _LONGEST // 2 else f"{shown}… ({len(value):,} bytes)"
    text = value_text(value, kind)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"
