"""The CPU time of each test, with that of every process it starts, and the check of the budgets at the end of a run.

Only what ran whole is judged: every test of the folder that `make test` has, and all of them passed.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support import budgets
from tests.support.budgets import Cost

QUICK_S: Final = 0.3
"""Tests that are over sooner are counted by this process alone: to look at all processes costs more than they do."""
PROPERTY: Final = "cpu"
COSTS: Final = "TIDEMARK_TEST_COSTS"
"""A file that gets a line for each test, the dearest first: seconds of CPU, of servers it started for all, of waiting."""
JUDGED: Final = "not slow"
"""The selection that the budgets are made for."""

SAMPLE_EVERY_S: Final = 15.0
LEAST_SAMPLES: Final = 5

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def of_tree(root: int) -> float:
    """Return the CPU seconds of a process, of those below it, and of all that have ended there."""
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - thousands of times in a run
        if not name.isdigit():
            continue
        try:
            stat = Path("/proc", name, "stat").read_bytes()
        except OSError:
            continue  # it ended meanwhile
        fields = stat[stat.rindex(b")") + 2 :].split()
        children.setdefault(int(fields[1]), []).append(int(name))
        used[int(name)] = sum(map(int, fields[11:15]))
    total, open_ones = 0, [root]
    while open_ones:
        pid = open_ones.pop()
        total += used.get(pid, 0)
        open_ones += children.get(pid, ())
    return total / _TICKS


class Meter:
    """What each test of this process costs."""

    def __init__(self) -> None:
        self._tree_s = of_tree(os.getpid())
        self._counted_s = 0.0  # since the tree was read
        self._shared_s = 0.0
        self._depth = 0
        self._begun: tuple[float, float] = (0.0, 0.0)

    def restart(self) -> None:
        """Leave out what was done so far: imports, the collection."""
        self._tree_s, self._counted_s = of_tree(os.getpid()), 0.0

    def begin(self) -> None:
        """Begin a test."""
        self._begun = (time.monotonic(), time.process_time())
        self._shared_s = 0.0

    def end(self, test: str) -> Cost:
        """End a test and report its cost."""
        wall_s = time.monotonic() - self._begun[0]
        if wall_s < QUICK_S and not self._shared_s:
            cpu_s = time.process_time() - self._begun[1]
            self._counted_s += cpu_s
            return Cost(test, cpu_s, 0.0, wall_s)
        now_s = of_tree(os.getpid())
        cpu_s = now_s - self._tree_s - self._counted_s - self._shared_s
        self._tree_s, self._counted_s = now_s, 0.0
        return Cost(test, max(0.0, cpu_s), self._shared_s, wall_s)

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Count what is done inside as shared: the start of a server that the session keeps."""
        before_s = of_tree(os.getpid()) if self._depth == 0 else 0.0
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._shared_s += max(0.0, of_tree(os.getpid()) - before_s)


class Machine:
    """How long the small calculation takes while the tests run: the median of what a thread measures now and then.

    A machine that is shared, or whose cores are two threads of one, is slower then than before and after a run.
    """

    def __init__(self) -> None:
        self._found: list[float] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="machine", daemon=True)

    def start(self) -> None:
        """Begin to measure."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> float:
        """End, and return the seconds of CPU; measured now where the run was too short."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        return statistics.median(self._found) if len(self._found) >= LEAST_SAMPLES else budgets.calculate()

    def _run(self) -> None:
        while not self._end.wait(SAMPLE_EVERY_S):
            self._found.append(budgets.calculate(1))


_machine = Machine()
_meter = Meter()
shared_start = _meter.shared
_costs: list[Cost] = []


def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin to measure the machine, in the process that judges."""
    if not hasattr(session.config, "workerinput"):
        _machine.start()


def pytest_collection_finish() -> None:
    """Begin with the first test."""
    _meter.restart()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Begin to count."""
    _meter.begin()
    yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Any:
    """Count, and give the cost to the report that comes next."""
    try:
        return (yield)
    finally:
        cost = _meter.end(item.nodeid)
        item.user_properties.append((PROPERTY, [cost.cpu_s, cost.shared_s, cost.wall_s]))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Any:
    """Count what a session keeps as shared, also its end: that comes with the last test of a process."""
    if fixturedef.scope != "session":
        return (yield)
    ending = ExitStack()
    fixturedef.addfinalizer(ending.close)  # finalizers run in reverse order: this one is the last
    try:
        with shared_start():
            return (yield)
    finally:
        fixturedef.addfinalizer(lambda: ending.enter_context(shared_start()))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the costs, where tests run in workers: from these."""
    if report.when == "teardown":
        _costs.extend(Cost(report.nodeid, *value) for name, value in report.user_properties if name == PROPERTY)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Judge a run whose tests passed."""
    config = session.config
    if hasattr(config, "workerinput"):
        return
    limits = budgets.read()
    slowness = limits.slowness(_machine.stop())
    if COSTS in os.environ:
        rows = sorted(_costs, key=lambda cost: -cost.cpu_s)
        lines = (f"{cost.cpu_s:.1f}\t{cost.shared_s:.1f}\t{cost.wall_s:.1f}\t{cost.test}\n" for cost in rows)
        Path(os.environ[COSTS]).write_text("".join(lines), "utf-8")
    judged, whole = what_ran_whole(config) if exitstatus == pytest.ExitCode.OK else (set(), False)
    wrong = budgets.judge(_costs, limits, slowness, judged, whole=whole)
    config.stash[_LINES] = (budgets.table(_costs, limits, slowness) if judged else [], wrong, slowness)
    if wrong:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


_LINES: Final = pytest.StashKey[tuple[list[str], list[str], float]]()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what each folder cost, and which cost too much."""
    lines, wrong, slowness = config.stash.get(_LINES, ([], [], 1.0))
    if lines:
        terminalreporter.section(f"CPU time of the tests (slowness of this machine {slowness:.2f})")
        for line in lines:
            terminalreporter.write_line(line)
    for text in wrong:
        terminalreporter.write_line(f"OVER BUDGET: {text}", red=True)


def what_ran_whole(config: pytest.Config) -> tuple[set[str], bool]:
    """Return the folders whose tests were all chosen, and whether that is every folder."""
    option = config.option
    partly = (option.keyword, option.deselect, option.ignore, option.ignore_glob, getattr(option, "lf", False))
    if option.markexpr != JUDGED or any(partly):
        return set(), False
    chosen = [(config.invocation_params.dir / argument).resolve() for argument in config.args]
    return budgets.chosen_whole(config.rootpath / "tests", chosen)
