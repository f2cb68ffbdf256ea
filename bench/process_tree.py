"""All processes below one, as a whole: stopped and continued, and the memory of those that merge.

A stopped merge job keeps its JVM, its compiled code and its workers. So records can be put into Kafka while it stands still, and
what it does from then on is what a warm job does with a backlog.
"""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

_WORKERS = (b"worker_daemon", b"pyspark.daemon", b"pyspark/daemon")


def pids_of(pid: int) -> list[int]:
    """Return a process and everything below it, parents first."""
    children: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            text = (folder / "stat").read_text(encoding="ascii", errors="replace")
            children[int(text.rpartition(")")[2].split()[1])].append(int(folder.name))
    found = [pid]
    for one in found:
        found.extend(children[one])
    return found


def freeze(pid: int) -> None:
    """Stop a process and everything below it; those that are started meanwhile are stopped as well."""
    stopped: set[int] = set()
    while new := [one for one in pids_of(pid) if one not in stopped]:
        for one in new:
            _send(one, signal.SIGSTOP)
            stopped.add(one)


def thaw(pid: int) -> None:
    """Continue what was stopped, children first."""
    for one in reversed(pids_of(pid)):
        _send(one, signal.SIGCONT)


def worker_peak_mib(pid: int) -> float:
    """Return the peak of resident memory of the largest Python worker below a process; 0 where there is none."""
    return max((_peak_mib(one) for one in pids_of(pid) if _is_worker(one)), default=0.0)


def _is_worker(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return any(word in words for word in _WORKERS)


def _peak_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
