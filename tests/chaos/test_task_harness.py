"""The judgement of rounds of a task: faults are planted, and it has to find them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos import task_round
from tests.chaos.sink_judgement import Judgement
from tests.chaos.task_faults import ALL, MEMBERS
from tests.chaos.task_judgement import (
    IN_ORDER,
    KEYS,
    Number,
    compare_logs,
    compare_logs_of_workers,
    compare_numbers,
    compare_order,
)
from tests.chaos.task_world import JOURNAL, WITNESS, TaskScene
from tests.e2e.binlog import Logged

pytestmark = pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning")
NAME = "shop"
SEEDS = range(40)


def log_of(rng: random.Random, *, transactions: int = 60) -> list[list[Logged]]:
    """Transactions of a source, each with its number, a change in a table that is written in order, and one in another."""
    log = []
    for n in range(1, transactions + 1):
        pair, hot = rng.randrange(4), rng.randrange(4)
        log.append(
            [
                Logged("pairs", "u", (pair,), {"slot": n, "n": n}),
                Logged("hot", "u", (hot,), {"n": n, "tag": "a"}),
                Logged(JOURNAL, "c", (n,), {"n": n}),
            ]
        )
    return log


def compacted(rng: random.Random, log: list[list[Logged]]) -> list[Logged]:
    """The log of a target with transactions of several of the source, in which `hot` has one change for each key."""
    applied, begin = [], 0
    while begin < len(log):
        end = begin + rng.randint(1, 9)
        rows = [one for transaction in log[begin:end] for one in transaction]
        applied += [one for one in rows if one.table != "hot"]
        applied += {one.key: one for one in rows if one.table == "hot"}.values()
        begin = end
    return applied


def compared(log: list[list[Logged]], applied: list[Logged], loaded: int) -> Judgement:
    judgement = Judgement()
    compare_logs(NAME, [one for transaction in log for one in transaction], applied, loaded, IN_ORDER, judgement)
    return judgement


@pytest.mark.parametrize("seed", SEEDS)
def test_a_change_of_the_target_that_is_missing_doubled_or_swapped_is_found_in_its_log(seed: int) -> None:
    rng = random.Random(seed)
    log = log_of(rng)
    applied = compacted(rng, log)
    loaded = rng.randint(1, 20)
    assert compared(log, applied, loaded) == Judgement()
    begin = next(index for index, one in enumerate(applied) if one.table == JOURNAL and one.key == (loaded,)) + 1
    in_order = [index for index in range(begin, len(applied)) if applied[index].table in IN_ORDER]
    at = rng.choice(in_order)
    assert compared(log, [*applied[:at], *applied[at + 1 :]], loaded).lost == 1
    assert compared(log, [*applied[:at], applied[at], *applied[at:]], loaded).duplicated == 1
    first, second = in_order[at % (len(in_order) - 1)], in_order[at % (len(in_order) - 1) + 1]
    swapped = list(applied)
    swapped[first], swapped[second] = swapped[second], swapped[first]
    assert compared(log, swapped, loaded).out_of_order == 1
    hot = [index for index in range(begin, len(applied)) if applied[index].table == "hot"]
    old = rng.choice([index for index in hot if any(applied[later].key == applied[index].key for later in hot if later > index)])
    assert compared(log, [*applied, applied[old]], loaded).duplicated == 1, "an old version came back"
    assert compared(log, [], loaded).lost == 2 * (60 - loaded), "a log without the number has nothing behind it"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_change_of_workers_that_is_missing_or_doubled_is_found(seed: int) -> None:
    rng = random.Random(seed)
    log = log_of(rng)
    logged, applied = ([one for transaction in log for one in transaction] for _ in range(2))
    for begin in range(0, len(applied), 30):  # a batch
        in_order = [one for one in applied[begin : begin + 30] if one.table != "hot"]
        rng.shuffle(in_order)
        applied[begin : begin + 30] = [*in_order, *(one for one in applied[begin : begin + 30] if one.table == "hot")]

    def judged(applied: list[Logged]) -> Judgement:
        judgement = Judgement()
        compare_logs_of_workers(NAME, logged, applied, 20, IN_ORDER, judgement)
        return judgement

    assert judged(applied) == Judgement()
    at = rng.choice([index for index, one in enumerate(applied) if index > 100 and one.table in IN_ORDER])
    assert judged([*applied[:at], *applied[at + 1 :]]).lost == 1
    assert judged([*applied[:at], applied[at], *applied[at:]]).duplicated == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_number_that_is_missing_doubled_or_out_of_order_is_found(seed: int) -> None:
    rng = random.Random(seed)
    committed = sorted(rng.sample(range(1, 200), 50))
    numbers = [Number(rng.choice("ab"), n, float(n), n + 0.5) for n in committed]

    def judged(numbers: list[Number], *, is_global: bool) -> tuple[int, int, int]:
        judgement = Judgement()
        for name in "ab":
            compare_numbers(name, [n for one, n in sources if one == name], [(one.name, one.n) for one in numbers], judgement)
        compare_order(numbers, judgement, is_global=is_global)
        return judgement.lost, judgement.duplicated, judgement.out_of_order

    sources = [(one.name, one.n) for one in numbers]
    assert judged(numbers, is_global=True) == (0, 0, 0)
    at = rng.randrange(len(numbers) - 1)
    assert judged([*numbers[:at], *numbers[at + 1 :]], is_global=True) == (1, 0, 0)
    assert judged([*numbers[:at], numbers[at], *numbers[at:]], is_global=True)[:2] == (0, 1)
    swapped = [*numbers[:at], numbers[at + 1], numbers[at], *numbers[at + 2 :]]
    assert judged(swapped, is_global=True)[2] > 0
    is_of_one = numbers[at].name == numbers[at + 1].name
    assert judged(swapped, is_global=False)[2] == is_of_one, "nothing is promised between two sources"
    late = [*numbers[:at], *numbers[at + 1 :], Number(numbers[at].name, 1_000, numbers[at].earliest, 1_000.0)]
    judgement = Judgement()
    compare_order(late, judgement, is_global=True)
    assert judgement == Judgement(), "a source that joins again publishes with the time of its join"


def test_rounds_in_a_row_have_each_fault_and_both_orders() -> None:
    drawn = [task_round.plan(seed) for seed in range(1, 61)]
    names = Counter(name for one in drawn for name in one.names)
    assert min(names[name] for name in ALL) > 0, names.most_common()[-5:]
    assert min(names[name] for name in MEMBERS) > 5
    assert Counter(one.order for one in drawn) == {"source": 30, "global": 30}
    assert 15 < sum(one.has_workers for one in drawn) < 40
    assert {kind for one in drawn for kind in one.kinds} == {"mysql80", "mariadb114"}
    assert set(KEYS) >= IN_ORDER


@pytest.mark.slow
@pytest.mark.parametrize(("target", "seed"), [("mysql80", 3), ("mariadb114", 2)])
def test_a_round_of_two_sources_loses_and_doubles_nothing_and_its_judgement_finds_planted_faults(
    target: str, seed: int, tmp_path: Path
) -> None:
    tried: list[str] = []

    def plant(scene: TaskScene, judge: Callable[[], Judgement]) -> None:
        member = scene.members[0]

        def planted(*statements: str) -> Judgement:
            with scene.target.server.connect(database=member.database) as connection, connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
            tried.append(statements[0])
            return judge()

        good = judge()
        assert (good.lost, good.duplicated, good.differing, good.out_of_order, good.wrong) == (0, 0, 0, 0, []), good.wrong
        assert planted("DELETE FROM ledger ORDER BY id LIMIT 1").differing == 1
        seq = f"SELECT MAX(seq) FROM {WITNESS}.applied"
        twice = f"INSERT INTO {WITNESS}.applied (name, n) SELECT name, n FROM {WITNESS}.applied WHERE seq = ({seq})"
        assert planted(twice).duplicated > 0
        assert planted(f"DELETE FROM {WITNESS}.applied WHERE name = '{member.database}' ORDER BY seq DESC LIMIT 2").lost > 0
        later = f"SELECT MAX(seq) + 1000 FROM {WITNESS}.applied"
        moved = f"UPDATE {WITNESS}.applied SET seq = (SELECT * FROM ({later}) AS later) WHERE name = '{member.database}' AND n = {{}}"
        before = judge()
        assert planted(moved.format(member.last_number() - 5)).out_of_order > before.out_of_order
        assert planted("UPDATE pairs SET n = n + 1 ORDER BY id LIMIT 1").duplicated > before.duplicated

    with task_round.TaskServers(tmp_path / "servers", target) as servers:
        outcome = task_round.play(servers, seed, tmp_path / "round", only=("kill task", "alter", "put target back"), look=plant)
    assert outcome.good, outcome.wrong
    assert outcome.kills > 1
    assert outcome.events > 100, "the load did not write"
    assert len(tried) == 5


