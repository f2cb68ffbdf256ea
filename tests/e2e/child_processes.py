"""Processes of ours as subprocesses with their logs in files; tests kill, stop and start them, and they never outlive a test."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import tidemark
from devservers.processes import GuardedProcess

_TAIL = 40


class ChildProcesses:
    """Processes in one folder, each by a name of ours. Use it in a `with` statement."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: dict[str, GuardedProcess] = {}
        self._killed: list[GuardedProcess] = []
        self.env: dict[str, str] = {}
        self._log_begins: dict[str, int] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for verb in list(self._children):
            self.kill(verb)
        self.wait_for_killed()

    def start(self, *verbs: str) -> None:
        """Start `tidemark <verb>`; further starts append to its log."""
        for verb in verbs:
            assert verb not in self._children, f"{verb} is running already"
            path = self.log_path(verb)
            self._log_begins[verb] = path.stat().st_size if path.exists() else 0
            self._children[verb] = self.spawn(verb, path)

    def spawn(self, verb: str, log_path: Path, *arguments: str) -> GuardedProcess:
        """A process that is not looked after here."""
        raise NotImplementedError

    def spawn_command(self, words: Sequence[str], log_path: Path) -> GuardedProcess:
        """The same, of `tidemark` with these arguments."""
        command = [sys.executable, "-m", "tidemark", *words]
        return GuardedProcess.spawn(command, log_path, cwd=self.folder, env={**environment(), **self.env})

    def kill(self, verb: str) -> None:
        """kill -9, and wait until it is gone; Spark's JVM may live on for a moment, as after a real one."""
        child = self._children.pop(verb)
        self._killed.append(child)
        child.signal(signal.SIGKILL)
        while Path(f"/proc/{child.pid}").exists():
            time.sleep(0.005)

    def wait_for_killed(self) -> None:
        """Wait until all that killed processes had started is gone, too."""
        for child in self._killed:
            assert child.wait(120)

    def stop(self, verb: str) -> int | None:
        """SIGTERM; the exit status."""
        child = self._children.pop(verb)
        child.signal(signal.SIGTERM)
        ended = child.wait(180)
        child.kill()
        assert ended, f"{verb} did not stop in time:\n{self.log_tail(verb)}"
        return child.status

    def is_silent(self, verb: str) -> bool:
        """Whether a process has said nothing since it was started last."""
        return self.log_path(verb).stat().st_size == self._log_begins[verb]

    def wait_for_end(self, verb: str, seconds: float = 180.0) -> tuple[int | None, str]:
        """Wait until a process ends by itself: its status and its log."""
        child = self._children.pop(verb)
        ended = child.wait(seconds)
        child.kill()
        assert ended, f"{verb} still runs:\n{self.log_tail(verb)}"
        return child.status, self.log_path(verb).read_text(encoding="utf-8", errors="replace")

    def give_away(self, verb: str) -> GuardedProcess:
        """A process that was started here, and is not looked after from now on."""
        return self._children.pop(verb)

    def running(self, verb: str) -> bool:
        return verb in self._children and self._children[verb].status is None

    def pid(self, verb: str) -> int:
        """Of a process that was started."""
        return self._children[verb].pid

    def check(self) -> None:
        """Fail with the end of its log when a process has ended by itself."""
        for verb, child in self._children.items():
            assert child.status is None, f"{verb} ended with {child.status}:\n{self.log_tail(verb)}"

    def log_path(self, verb: str) -> Path:
        return self.folder / f"{verb}.log"

    def log_tail(self, verb: str) -> str:
        path = self.log_path(verb)
        if not path.exists():
            return "(no log)"
        return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:])


def environment() -> dict[str, str]:
    """Ours, with this checkout importable, and a JVM that warms up fast: its work here is short."""
    root = str(Path(tidemark.__file__).parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn400m -XX:MetaspaceSize=256m"  # and collects nothing at its start
    return {**os.environ, "PYTHONPATH": path, "JAVA_TOOL_OPTIONS": options}
