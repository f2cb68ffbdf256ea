"""The readers: each asks every five seconds on a thread of its own, so that one slow answer delays no other."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from devservers.processes import GuardedProcess
from schemas.overriding import override
from tests.truth import allowances, shown
from tests.truth.shown import Shown

HTTP_S: Final = 10.0
_LOOK_S: Final = 0.05
_FRESH_EVERY_S: Final = 45.0
_START_SLACK_S: Final = 0.5


class Samples:
    """What all readers were shown and is not judged yet."""

    def __init__(self) -> None:
        self._samples: list[Shown] = []
        self._lock = threading.Lock()

    def add(self, sample: Shown) -> None:
        with self._lock:
            self._samples.append(sample)

    def taken(self) -> list[Shown]:
        with self._lock:
            found, self._samples = self._samples, []
        return found


class Reader:
    """A thread that asks until it is left."""

    def __init__(self, name: str, samples: Samples) -> None:
        self.name, self._samples = name, samples
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        self.failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(60)

    def _guarded(self) -> None:
        try:
            while not self._ended.is_set():
                self._ask()
        except BaseException as error:  # noqa: BLE001 - raised in the main thread
            self.failure = error

    def _ask(self) -> None:
        raise NotImplementedError


class HttpReader(Reader):
    """Asks an endpoint; what it gives no answer to has a reason."""

    def __init__(self, name: str, samples: Samples, url: str, form: Callable[[float, float, str], Shown]) -> None:
        super().__init__(name, samples)
        self._url, self._form = url, form

    @override
    def _ask(self) -> None:
        asked_s = time.time()
        try:
            with urllib.request.urlopen(self._url, timeout=HTTP_S) as answer:  # noqa: S310 - loopback
                text = answer.read().decode()
            sample = self._form(asked_s, time.time(), text)
        except (OSError, urllib.error.URLError) as error:
            sample = Shown(reader=self.name, asked_s=asked_s, answered_s=time.time(), trouble=str(error) or type(error).__name__)
        self._samples.add(sample)
        self._ended.wait(max(0.0, allowances.EVERY_S - (time.time() - asked_s)))


class CommandReader(Reader):
    """A real process, `tidemark lag` or `tidemark status` with `--output json`.

    It stays open (`--watch 5`), or is started for each question (`is_fresh`). One that ends with an error gave no answer; it is
    started again.
    """

    def __init__(
        self, verb: str, samples: Samples, spawn: Callable[..., GuardedProcess], folder: Path, *, is_fresh: bool = False
    ) -> None:
        super().__init__(f"fresh {verb}" if is_fresh else verb, samples)
        self._verb, self._spawn, self._is_fresh = verb, spawn, is_fresh
        self._path = folder / f"{self.name.replace(' ', '-')}.out"
        self._form = {"lag": shown.of_lag, "status": shown.of_status}[verb]

    @override
    def _ask(self) -> None:
        more = () if self._is_fresh else ("--watch", f"{allowances.EVERY_S:g}")
        asked_s = time.time()
        begin = self._path.stat().st_size if self._path.exists() else 0
        child = self._spawn(self._verb, self._path, "--output", "json", *more)
        try:
            answered = self._follow(child, begin, asked_s)
        finally:
            child.kill()
        if self._is_fresh:
            self._ended.wait(max(0.0, _FRESH_EVERY_S - (time.time() - asked_s)))
        elif not answered:
            self._ended.wait(1.0)

    def _follow(self, child: GuardedProcess, begin: int, asked_s: float) -> bool:
        """Take each line that it prints, until it ends."""
        rest, last, answered = b"", "", False
        while not self._ended.wait(_LOOK_S):
            has_ended = child.status is not None
            with self._path.open("rb") as file:
                file.seek(begin)
                read = file.read()
            begin, rest, seen_s = begin + len(read), rest + read, time.time()
            *lines, rest = rest.split(b"\n")
            for line in lines:
                last = line.decode("utf-8", "replace") or last
                document = _document(last)
                if document is not None:
                    self._samples.add(self._form(self.name, asked_s, seen_s, document))
                    answered = True
                    asked_s = seen_s + allowances.EVERY_S - _START_SLACK_S
            if has_ended:
                if not answered or not self._is_fresh:
                    self._samples.add(Shown(reader=self.name, asked_s=min(asked_s, seen_s), answered_s=seen_s, trouble=last or "it ended"))
                break
        return answered


def _document(line: str) -> Any:
    with contextlib.suppress(ValueError):
        found = json.loads(line)
        if isinstance(found, dict) and ("sinks" in found or "read_ms" in found):
            return found
    return None
