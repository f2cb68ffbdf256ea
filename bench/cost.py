"""What processes cost: CPU seconds and memory of a process and everything below it, from /proc."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds so far, and the peak of resident memory of the largest process."""

    cpu_s: float
    peak_mib: float


def cost_of(pid: int) -> Cost:
    """The cost of a process tree; children that have ended and been waited for count with their parent."""
    used = _used(pid)
    return Cost(_sum(used), _largest_peak_mib(used))


class CostMeter:
    """The cost of a process tree whose processes come and go, from now on: `look` while they do.

    Spark's daemon ignores SIGCHLD, so that Linux does not add the CPU of a worker that has ended to that of the daemon (wait(2)).
    Such a worker counts with what it had used when it was last seen. Spark ends one that was idle for a minute, or stopped.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._looked = time.monotonic()
        self._seen = _used(pid)
        self._lost = 0.0
        self._before = _sum(self._seen)

    def look(self, every_s: float = 0.0) -> None:
        """Note what the processes have used, unless the last look is less than `every_s` seconds ago."""
        if time.monotonic() - self._looked < every_s:
            return
        now, before = _used(self._pid), self._seen
        ended = _sum({key: used for key, used in before.items() if key not in now})
        taken_over = sum(now[key][1] - before[key][1] for key in now.keys() & before.keys())
        self._lost += max(0.0, ended - taken_over)
        self._looked, self._seen = time.monotonic(), now

    def cost(self) -> Cost:
        """Return the CPU since the meter was made, and the peak of resident memory of the largest process that is there."""
        self.look()
        return Cost(_sum(self._seen) + self._lost - self._before, _largest_peak_mib(self._seen))


_Process = tuple[int, str]
"""A process by its number and the time of its start: numbers are used again."""


def _used(pid: int) -> dict[_Process, tuple[float, float]]:
    """The CPU seconds of each process of a tree, and those of its children that it has waited for."""
    found: dict[_Process, tuple[float, float]] = {}
    for one in tree_of(pid):
        fields = _stat(Path(f"/proc/{one}"))
        if fields is not None:
            own, children = (sum(int(field) for field in fields[at : at + 2]) / _TICKS for at in (11, 13))
            found[one, fields[19]] = own, children
    return found


def _sum(used: Mapping[_Process, tuple[float, float]]) -> float:
    return sum(own + children for own, children in used.values())


def _largest_peak_mib(processes: Iterable[_Process]) -> float:
    return max((_peak_mib(pid) for pid, _ in processes), default=0.0)


def _stat(folder: Path) -> list[str] | None:
    """The fields of /proc/<pid>/stat behind the name: state, ppid, ... utime, stime, cutime, cstime."""
    try:
        return (folder / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _peak_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0.0
    sizes = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return sizes[0] / 1024 if sizes else 0.0


def resident_mib(pid: int) -> list[tuple[str, float]]:
    """Return command line and resident memory of a process and of everything below it."""
    found: list[tuple[str, float]] = []
    for one in tree_of(pid):
        try:
            words = Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            pages = int(Path(f"/proc/{one}/statm").read_text(encoding="ascii").split()[1])
        except OSError:
            continue
        found.append((words, pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)))
    return found


def java_of(pid: int) -> int | None:
    """Return the first JVM below a process, None where there is none."""
    for one in tree_of(pid):
        try:
            program = Path(f"/proc/{one}/exe").readlink().name
        except OSError:
            continue
        if program == "java":
            return one
    return None


def tree_of(pid: int) -> list[int]:
    """Return a process and everything below it, parents first."""
    children = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        fields = _stat(folder)
        if fields is not None:
            children[int(fields[1])].append(int(folder.name))
    found = [pid]
    for one in found:
        found.extend(children[one])
    return found
