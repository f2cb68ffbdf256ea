"""The judgement of a run by the budgets of its folders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support import budgets
from tests.support.budgets import Budgets, Cost, judge, table
from tests.support.cpu_time import COSTS as COSTS_FILE
from tests.support.cpu_time import Meter, of_tree

TESTS = Path(__file__).parents[1]
LIMITS = Budgets(run_s=100, calculation_s=0.01, folders={"merge": 20.0, "cli": 5.0})
COSTS = [
    Cost("tests/merge/test_a.py::test_dear", 15.0, 3.0),
    Cost("tests/merge/test_b.py::test_cheap", 6.0),
    Cost("tests/cli/test_c.py::test_c[x/y]", 4.0, 90.0),
]


def test_a_folder_that_grows_past_its_budget_fails_with_its_slowest_tests_named() -> None:
    (wrong,) = judge(COSTS, LIMITS, 1.0, {"merge", "cli"}, whole=False)
    assert "tests/merge needed 21 s of CPU, its budget is 20 s" in wrong
    assert wrong.index("test_dear") < wrong.index("test_cheap")
    assert "test_c" not in wrong.replace("test_cheap", "")


def test_a_server_that_all_use_is_not_paid_by_the_folder_that_came_first() -> None:
    assert judge(COSTS, LIMITS, 1.0, {"cli"}, whole=False) == []


def test_a_folder_of_which_only_some_tests_ran_is_not_judged() -> None:
    assert judge(COSTS, LIMITS, 1.0, set(), whole=False) == []


def test_a_slower_machine_is_given_more_and_a_faster_one_not_less() -> None:
    assert judge(COSTS, LIMITS, LIMITS.slowness(0.02), {"merge"}, whole=False) == []
    assert judge(COSTS, LIMITS, LIMITS.slowness(0.001), {"cli"}, whole=False) == []
    assert LIMITS.slowness(0.001) == 1.0


def test_a_whole_run_has_a_budget_with_its_servers() -> None:
    (_, wrong) = judge(COSTS, LIMITS, 1.0, {"merge"}, whole=True)
    assert "the run needed 118 s of CPU, its budget is 100 s" in wrong


def test_a_folder_without_a_budget_is_reported() -> None:
    (wrong,) = judge([Cost("tests/new/test_n.py::test", 1.0)], LIMITS, 1.0, {"new"}, whole=False)
    assert "tests/new has no budget" in wrong


def test_the_table_has_every_folder_the_servers_and_the_sum() -> None:
    lines = table(COSTS, LIMITS, 2.0)
    assert [line.split()[0] for line in lines] == ["folder", "cli", "merge", budgets.SHARED, "all"]
    assert lines[2].split() == ["merge", "2", "21.0", "40", "0.0"]


def test_every_folder_with_tests_has_a_budget() -> None:
    folders = {path.parent.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/test_*.py")}
    assert budgets.read().folders.keys() == folders


def test_the_time_of_a_process_that_has_ended_is_counted_and_that_of_one_that_lives() -> None:
    burn = "import time\nwhile time.process_time() < 0.5: pass\n"
    before = of_tree(os.getpid())
    subprocess.run([sys.executable, "-c", burn], check=True)
    ended = of_tree(os.getpid())
    assert ended - before > 0.4
    wait = burn + "print(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", wait], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert of_tree(os.getpid()) - ended > 0.4
        process.communicate(b"\n")


def test_what_a_session_keeps_is_counted_apart() -> None:
    meter = Meter()
    meter.begin()
    with meter.shared(), meter.shared():  # a server whose start starts another
        subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"], check=True)
    cost = meter.end("t")
    assert cost.shared_s > 0.4
    assert cost.cpu_s < cost.shared_s


BURNING: Final = """
import pytest, time

def burn():
    until = time.process_time() + 0.5
    while time.process_time() < until:
        pass

@pytest.fixture(scope="session")
def server():
    yield
    burn()

@pytest.fixture(scope="module")
def own():
    yield
    burn()

def test_last(FIXTURE):
    pass
"""


@pytest.mark.parametrize(("fixture", "is_shared"), [("server", True), ("own", False)])
def test_the_end_of_a_server_that_all_use_is_not_paid_by_the_last_test(tmp_path: Path, fixture: str, *, is_shared: bool) -> None:
    (tmp_path / "test_it.py").write_text(BURNING.replace("FIXTURE", fixture), "utf-8")
    costs = tmp_path / "costs"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.cpu_time", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, cwd=TESTS.parent, env={**os.environ, COSTS_FILE: str(costs)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    cpu_s, shared_s = (float(figure) for figure in costs.read_text("utf-8").split("\t")[:2])
    assert (shared_s > 0.3, cpu_s > 0.3) == (is_shared, not is_shared)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ([TESTS / "binlog"], {"binlog"}),
        ([TESTS / "binlog", TESTS / "merge" / "test_decode.py"], {"binlog"}),
        ([TESTS / "binlog" / "test_events.py"], set()),
    ],
)
def test_only_what_was_chosen_whole_is_judged(chosen: list[Path], expected: set[str]) -> None:
    assert budgets.chosen_whole(TESTS, chosen) == (expected, False)


def test_a_run_of_all_is_whole() -> None:
    folders, whole = budgets.chosen_whole(TESTS, [TESTS])
    assert whole
    assert folders >= {"binlog", "merge", "e2e"}
