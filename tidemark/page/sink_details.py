"""What takes too long for every look at a sink: its files, the records in its quarantine, and another attempt at those."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from schemas.errors import ConfigError, SinkError

if TYPE_CHECKING:
    from schemas.settings import Settings

_MOST_TABLES: Final = 200
_RETRY_S: Final = 600
_LAST_LINES: Final = 30


def files_of(settings: Settings) -> dict[str, Any]:
    """Return the tables of a sink of type Delta with the number and the bytes of their files, the largest first.

    `unknown` says why they are not counted, "" where they are; `more` tables were not looked at.
    """
    if settings.sink.type != "delta":
        return {"tables": [], "more": 0, "unknown": f"files of a sink of type {settings.sink.type} are not counted"}
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ModuleNotFoundError as error:
        return {"tables": [], "more": 0, "unknown": f"{error.name} is not installed here (the extra verify)"}
    root = Path(settings.sink.path)
    if not root.is_dir():
        reason = f"there is no folder {root}: nothing has been merged into it, or it is not mounted here"
        return {"tables": [], "more": 0, "unknown": reason}
    folders = sorted(log.parent for log in root.glob("*/*/_delta_log") if not log.parent.parent.name.startswith("_"))
    rows: list[dict[str, Any]] = []
    for folder in folders[:_MOST_TABLES]:
        try:
            table = DeltaTable(str(folder))
            sizes = table.get_add_actions(flatten=True)["size_bytes"].to_pylist()
        except (DeltaError, OSError) as error:
            rows.append({"table": _name(folder), "files": None, "bytes": None, "version": None, "unknown": str(error)})
            continue
        counted = {"files": len(sizes), "bytes": sum(sizes), "version": table.version(), "unknown": None}
        rows.append({"table": _name(folder), **counted})
    rows.sort(key=lambda one: -(one["bytes"] or 0))
    return {"tables": rows, "more": max(0, len(folders) - _MOST_TABLES), "unknown": ""}


def _name(folder: Path) -> str:
    return f"{folder.parent.name}.{folder.name}"


def is_writable(settings: Settings) -> bool:
    """Return whether this process may write to a sink's own folder, as another attempt at its quarantine does."""
    return os.access(settings.sink.service_path, os.W_OK | os.X_OK)


def quarantine_of(settings: Settings) -> dict[str, Any]:
    """Return the records in quarantine by table, partition and reason; `unknown` says why that is not known, "" where it is."""
    try:
        from tidemark.verify.quarantined_rows import groups

        return {"groups": groups(settings), "unknown": ""}
    except ModuleNotFoundError as error:
        return {"groups": [], "unknown": f"{error.name} is not installed here (the extra verify)"}
    except SinkError as error:
        return {"groups": [], "unknown": str(error)}


class Retries:
    """Runs `tidemark quarantine retry`, one at a time, in a process of its own: it needs a JVM, and the merge job must not run.

    `config_path` is the file of the settings that the process reads.
    """

    def __init__(self, config_path: str) -> None:
        self._config_path = config_path
        self._lock = threading.Lock()
        self._latest: dict[str, dict[str, Any]] = {}
        self._runs = ""

    def begin(self, sink: str, tables: Sequence[str]) -> None:
        """Begin one for a sink; `tables` are patterns, none for all. Raises `ConfigError` while one runs."""
        with self._lock:
            if self._runs:
                raise ConfigError(f"records of {self._runs} are being retried: wait until that has ended")
            self._runs = sink
        command = [sys.executable, "-m", "tidemark", "quarantine", "retry", *tables, "--sink", sink, "--config", self._config_path]
        threading.Thread(target=self._run, args=(sink, command), name="retry", daemon=True).start()

    def latest(self, sink: str) -> dict[str, Any]:
        """Return whether one runs, and of the last one its exit code, when it ended and the end of what it said."""
        with self._lock:
            return {"code": None, "ended_ms": None, "said": "", **self._latest.get(sink, {}), "running": self._runs == sink}

    def _run(self, sink: str, command: Sequence[str]) -> None:
        code: int | None = None
        try:
            done = subprocess.run(  # its input is closed: nothing waits for a person
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_RETRY_S, check=False
            )
            code, said = done.returncode, done.stdout.decode(errors="replace")
        except subprocess.TimeoutExpired:
            said = f"it did not end within {_RETRY_S} s, and was ended"
        except (OSError, ValueError) as error:  # that cannot be started, or be an argument
            said = str(error)
        lines = [line for line in said.splitlines() if not line.startswith("{") and " WARN " not in line]
        with self._lock:
            self._latest[sink] = {"code": code, "ended_ms": time.time_ns() // 1_000_000, "said": "\n".join(lines[-_LAST_LINES:])}
            self._runs = ""
