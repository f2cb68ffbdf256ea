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
    cpu = peak = 0.0
    for one in tree_of(pid):
        fields = _stat(Path(f"/proc/{one}"))
        if fields is not None:
            cpu += sum(int(field) for field in fields[11:15]) / _TICKS
            peak = max(peak, _peak_mib(one))
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
