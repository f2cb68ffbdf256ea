"""What the tests of a folder may cost, and the judgement of a run by that.

A folder is judged by seconds of CPU, of the tests' process and of everything that it starts: servers, Java, commands.
Wall time shows how busy the machine was with other work; CPU time shows what the tests need. A machine that is
slower than the one of the file gets more, by the `slowness` that a small calculation shows.
"""

from __future__ import annotations

import hashlib
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BUDGETS: Final = Path(__file__).parents[1] / "budget.toml"
SHARED: Final = "(servers)"
"""Where the start of what a whole session uses is counted: no folder pays for being the first."""
NAMED: Final = 5
_CALCULATIONS: Final = 7


@dataclass(frozen=True)
class Cost:
    """What one test needed: `cpu_s` without `shared_s`, the start of servers that later tests use too."""

    test: str
    cpu_s: float
    shared_s: float = 0.0
    wall_s: float = 0.0

    @property
    def folder(self) -> str:
        """The folder of `tests/` that it belongs to."""
        parts = self.test.partition("::")[0].split("/")
        return parts[1] if len(parts) > 2 else "tests"  # tests/<folder>/<file>


@dataclass(frozen=True)
class Budgets:
    """CPU seconds for each folder and for a whole run, on a machine that needs `calculation_s` for `calculate`."""

    run_s: float
    calculation_s: float
    folders: Mapping[str, float]

    def slowness(self, measured_s: float) -> float:
        """How many times slower this machine is than that of the file; a faster one is no reason to be strict."""
        return max(1.0, measured_s / self.calculation_s)


def read(path: Path = BUDGETS) -> Budgets:
    """Read the file of the budgets."""
    document = tomllib.loads(path.read_text("utf-8"))
    return Budgets(float(document["run_s"]), float(document["calculation_s"]), document["folders"])


def calculate(times: int = _CALCULATIONS) -> float:
    """Return the CPU seconds of a fixed piece of work: the least of several, the others were disturbed."""
    found = []
    for _ in range(times):
        begun = time.thread_time()
        text = b"tidemark"
        for number in range(20_000):
            text = hashlib.sha256(text + number.to_bytes(4, "big")).digest()
        found.append(time.thread_time() - begun)
    return min(found)


def by_folder(costs: Iterable[Cost]) -> dict[str, list[Cost]]:
    """Group the costs, the dearest test of each folder first."""
    grouped: dict[str, list[Cost]] = defaultdict(list)
    for cost in costs:
        grouped[cost.folder].append(cost)
    return {folder: sorted(found, key=lambda cost: -cost.cpu_s) for folder, found in sorted(grouped.items())}


def table(costs: Iterable[Cost], budgets: Budgets, slowness: float) -> list[str]:
    """Return the lines that are printed at the end of a run."""
    costs = list(costs)
    lines = [f"{'folder':<14}{'tests':>7}{'CPU s':>9}{'budget':>9}{'wall s':>9}"]
    for folder, found in by_folder(costs).items():
        budget = budgets.folders.get(folder)
        allowed = "-" if budget is None else f"{budget * slowness:.0f}"
        used, waited = sum(cost.cpu_s for cost in found), sum(cost.wall_s for cost in found)
        lines.append(f"{folder:<14}{len(found):>7}{used:>9.1f}{allowed:>9}{waited:>9.1f}")
    shared = sum(cost.shared_s for cost in costs)
    total = shared + sum(cost.cpu_s for cost in costs)
    lines.append(f"{SHARED:<14}{'':>7}{shared:>9.1f}{'-':>9}")
    lines.append(f"{'all':<14}{len(costs):>7}{total:>9.1f}{budgets.run_s * slowness:>9.0f}")
    return lines


def judge(costs: Iterable[Cost], budgets: Budgets, slowness: float, folders: Iterable[str], *, whole: bool) -> list[str]:
    """Return what is wrong: the `folders`, which ran whole, that cost more than they may; and a `whole` run that does."""
    costs = list(costs)
    wrong = []
    grouped = by_folder(costs)
    for folder in sorted(set(folders) & grouped.keys()):
        found, used = grouped[folder], sum(cost.cpu_s for cost in grouped[folder])
        if folder not in budgets.folders:
            wrong.append(f"tests/{folder} has no budget in tests/budget.toml; it needed {used:.0f} s of CPU")
            continue
        allowed = budgets.folders[folder] * slowness
        if used > allowed:
            dearest = "\n".join(f"    {cost.cpu_s:7.1f} s  {cost.test}" for cost in found[:NAMED])
            wrong.append(f"tests/{folder} needed {used:.0f} s of CPU, its budget is {allowed:.0f} s; the dearest:\n{dearest}")
    total = sum(cost.cpu_s + cost.shared_s for cost in costs)
    if whole and total > budgets.run_s * slowness:
        wrong.append(f"the run needed {total:.0f} s of CPU, its budget is {budgets.run_s * slowness:.0f} s")
    return wrong


def chosen_whole(root: Path, chosen: Iterable[Path]) -> tuple[set[str], bool]:
    """Return the folders of `root` that a run of these paths has in whole, and whether that is every folder."""
    folders = [path for path in chosen if path.is_dir()]
    names = {path.name for path in root.iterdir() if path.is_dir()}
    whole = {name for name in names if any((root / name).is_relative_to(folder) for folder in folders)}
    return whole, any(root.is_relative_to(folder) for folder in folders)
