"""What processes cost: CPU seconds and memory of a process and everything below it, from /proc."""

from __future__ import annotations

import os
from collections import defaultdict
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
    children = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        fields = _stat(folder)
        if fields is not None:
            children[int(fields[1])].append(int(folder.name))
    cpu, peak, waiting = 0.0, 0.0, [pid]
    while waiting:
        current = waiting.pop()
        waiting.extend(children[current])
        fields = _stat(Path(f"/proc/{current}"))
        if fields is not None:
            cpu += sum(int(field) for field in fields[11:15]) / _TICKS
            peak = max(peak, _peak_mib(current))
    return Cost(cpu, peak)


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
