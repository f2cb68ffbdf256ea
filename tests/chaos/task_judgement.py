"""The judgement of a task that has applied its sources: rows, each event once, and their order.

Three witnesses: the rows on both servers, the log of the target against the log of each source, and the numbers that triggers of the
target have noted.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tests.chaos.load import TABLES
from tests.chaos.log import CommittedChanges
from tests.chaos.sink_judgement import SHOWN, Judgement
from tests.chaos.task_world import JOURNAL, WITNESS
from tidemark.demo import row_comparison

if TYPE_CHECKING:
    from tests.chaos.task_world import Member, TaskScene
    from tests.e2e.binlog import Logged

KEYS: Final[Mapping[str, Sequence[str]]] = {**{name: table.key for name, table in TABLES.items()}, JOURNAL: ["n"]}
IN_ORDER: Final = frozenset({"pairs", "owners", "pets", JOURNAL})
"""Tables with another unique key, foreign keys or a trigger: each change is written by itself."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a source, and between which times its transaction has its time."""

    name: str
    n: int
    earliest: float
    latest: float


def judged(scene: TaskScene, logged: Mapping[str, Sequence[Logged]], *, is_compacted: bool, start: tuple[str, int]) -> Judgement:
    """Judge a target that has everything: `logged`, by the name of the database. `start` is the end of its log when the round began."""
    judgement = Judgement()
    applied = _applied(scene)
    numbers = {member.database: list(_numbers(member)) for member in scene.members}
    for member in scene.members:
        rows, differences = row_comparison.compare(member.servers.database, scene.target.server, member.database)
        judgement.rows += rows
        judgement.differing += len(differences)
        judgement.wrong += differences
        compare_numbers(member.database, [one.n for one in numbers[member.database]], applied, judgement)
        applied_log = CommittedChanges(scene.target.server, member.database, KEYS, start).read()
        assert member.loaded is not None
        in_order = IN_ORDER if is_compacted else KEYS.keys()
        compare = compare_logs if scene.is_ordered else compare_logs_of_workers
        compare(member.database, logged[member.database], applied_log, member.loaded, in_order, judgement)
    followed = {(one.name, one.n): one for member in scene.members for one in numbers[member.database] if one.n >= (member.loaded or 0)}
    if not scene.is_ordered:
        return judgement
    compare_order([followed[one] for one in applied if one in followed], judgement, is_global=scene.order == "global")
    return judgement


def _applied(scene: TaskScene) -> list[tuple[str, int]]:
    """Return the numbers that the triggers of the target have noted, in the order in which they were inserted."""
    with scene.target.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT name, n FROM {WITNESS}.applied ORDER BY seq")
        return [(str(name), int(n)) for name, n in cursor.fetchall()]


def _numbers(member: Member) -> Iterator[Number]:
    """Yield the numbers of a source: a transaction is committed before the next one has its number.

    MariaDB logs the second in which a transaction has written its last row. A source that joins again publishes the transactions of
    meanwhile with the time at which it joins.
    """
    server = member.servers.database
    with server.connect(database=member.database) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT n, at FROM {JOURNAL} ORDER BY n")
        rows = [(int(n), _seconds(at)) for n, at in cursor.fetchall()]
    ends = [*(at for _, at in rows[1:]), time.time()]
    for (n, at), end in zip(rows, ends, strict=True):
        late = max((until for span, until in member.late if n in span), default=0.0)
        yield Number(member.database, n, float(int(at)) if server.flavour == "mariadb" else at, max(end, late))


def _seconds(at: datetime) -> float:
    return at.replace(tzinfo=UTC).timestamp()


# ---- pure


def compare_numbers(name: str, committed: Sequence[int], applied: Iterable[tuple[str, int]], judgement: Judgement) -> None:
    """Note numbers of a source that were inserted twice, or never."""
    counts = Counter(n for source, n in applied if source == name)
    missing = [n for n in committed if n not in counts]
    twice = [n for n, count in counts.items() if count > 1]
    judgement.lost += len(missing)
    judgement.duplicated += sum(counts[n] - 1 for n in twice)
    judgement.wrong += [f"{name}: numbers {missing[:SHOWN]} were never inserted"] if missing else []
    judgement.wrong += [f"{name}: numbers {twice[:SHOWN]} were inserted more than once"] if twice else []


def behind(changes: Sequence[Logged], number: int) -> list[Logged]:
    """Return the changes behind the insert of a number: none if the log has no such insert."""
    at = next((index for index, one in enumerate(changes) if one.table == JOURNAL and one.op == "c" and one.key == (number,)), None)
    return [] if at is None else list(changes[at + 1 :])


def compare_logs(
    name: str, logged: Sequence[Logged], applied: Sequence[Logged], number: int, in_order: Collection[str], judgement: Judgement
) -> None:
    """Compare the changes in the log of a source with those in the log of the target, behind the insert of a number.

    Of tables that are written `in_order` the changes are the same, one by one. In another table a key has some of its versions, in
    their order: changes of one transaction of the target were made one, and follow those in order.
    """
    applied = behind(applied, number)
    wanted = [_plain(one) for one in behind(logged, number) if one.table in in_order]
    actual = [_plain(one) for one in applied if one.table in in_order]
    if wanted != actual:
        _note_difference(name, wanted, actual, judgement)
    _compare_versions(name, logged, applied, in_order, judgement)


def compare_logs_of_workers(
    name: str, logged: Sequence[Logged], applied: Sequence[Logged], number: int, in_order: Collection[str], judgement: Judgement
) -> None:
    """Compare the same of a task with workers: changes of one batch may be on either side of the number."""
    both = [Counter(_plain(one) for one in changes if one.table in in_order) for changes in (logged, applied)]
    wanted, actual = ([_plain(one) for one in behind(log, number) if one.table in in_order] for log in (logged, applied))
    missing, surplus = Counter(wanted) - both[1], Counter(actual) - both[0]
    judgement.lost += missing.total()
    judgement.duplicated += surplus.total()
    for sentence, changes in (("are missing in the target", missing), ("are more often in the target", surplus)):
        if changes:
            judgement.wrong.append(f"{name}: {list(changes)[:SHOWN]} {sentence}")
    _compare_versions(name, logged, behind(applied, number), in_order, judgement)


def _compare_versions(
    name: str, logged: Sequence[Logged], applied: Sequence[Logged], in_order: Collection[str], judgement: Judgement
) -> None:
    versions, seen = _by_key(logged, in_order), _by_key(applied, in_order)
    for key, states in seen.items():
        left = iter(versions.get(key, ()))
        wrong = next((state for state in states if not any(one == state for one in left)), None)
        if wrong is not None:
            judgement.duplicated += 1
            judgement.wrong += [f"{name}: {key} has {wrong} in the target behind a later version, or never in the source"][: _room(judgement)]


def _note_difference(name: str, wanted: list[Any], actual: list[Any], judgement: Judgement) -> None:
    missing, surplus = Counter(wanted) - Counter(actual), Counter(actual) - Counter(wanted)
    judgement.lost += missing.total()
    judgement.duplicated += surplus.total()
    at = next((index for index, both in enumerate(zip(wanted, actual, strict=False)) if both[0] != both[1]), min(len(wanted), len(actual)))
    if not missing and not surplus:
        judgement.out_of_order += 1
    judgement.wrong.append(f"{name}: change {at} is {wanted[at : at + SHOWN]} in the source, and {actual[at : at + SHOWN]} in the target")


def _plain(change: Logged) -> tuple[Any, ...]:
    return change.table, change.op, change.key, _state(change)


def _state(change: Logged) -> tuple[Any, ...] | None:
    """Return the columns that identify a version of a row; None if it is deleted."""
    if change.after is None:
        return None
    table = TABLES.get(change.table)
    return tuple(change.after[name] for name in table.identified_by) if table is not None else ()


def _by_key(changes: Iterable[Logged], but: Collection[str]) -> dict[tuple[Any, ...], list[Any]]:
    versions: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for one in changes:
        if one.table not in but:
            versions[one.table, *one.key].append(_state(one))
    return versions


def compare_order(numbers: Sequence[Number], judgement: Judgement, *, is_global: bool) -> None:
    """Note numbers that were applied behind a later one of their source, or, in one order of all, behind one of a later time."""
    last: dict[str, int] = {}
    time_s, latest = 0.0, None
    for one in numbers:
        if one.n <= last.get(one.name, 0):
            judgement.out_of_order += 1
            judgement.wrong += [f"{one.name}: number {one.n} was applied behind {last[one.name]}"][: _room(judgement)]
        last[one.name] = max(one.n, last.get(one.name, 0))
        if is_global and one.latest < time_s and latest is not None:
            judgement.out_of_order += 1
            judgement.wrong += [
                f"{one.name} {one.n}, of {one.latest:.6f} at the latest, was applied behind {latest.name} {latest.n} of {time_s:.6f}"
            ][: _room(judgement)]
        if one.earliest > time_s:
            time_s, latest = one.earliest, one


def _room(judgement: Judgement) -> int:
    """Return 1 while another sentence is worth its place."""
    return int(len(judgement.wrong) < 4 * SHOWN)
