"""The merge rule against random histories: the source's rows come out, and every part of it is needed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

import pytest

from schemas.errors import SinkError
from schemas.identity import SourceId
from schemas.markers import CompleteMarker, FloorMarker, HeartbeatMarker, Marker
from schemas.memory_table import Batch, MemoryTable, Progress
from schemas.merge_rule import NOTHING, DueSweep, Entry, TableState
from schemas.position import Position
from tests.merge.history import TABLE, History, Shape, batches

SEEDS = range(300)
"""More than three times as many as it takes to catch the mutant below that is hardest to catch (seed 87)."""
MORE_SEEDS = range(300, 2000)
some_and_more = pytest.mark.parametrize(
    "seeds", [SEEDS, pytest.param(MORE_SEEDS, marks=pytest.mark.slow)], ids=["some", "more"]
)


def rows_after(table: MemoryTable, history: History, seed: int) -> dict[Hashable, int]:
    """The rows after all batches, some applied twice: a crash before the progress was recorded."""
    rng = random.Random(seed + 1)
    progress = Progress()
    for batch in batches(history, seed):
        applied = table.apply(batch, progress)
        while rng.random() < 0.15:
            applied = table.apply(batch, progress)
        progress = applied
    table_rows = {key: entry.row for key, entry in table.rows.items()}
    assert not progress.state.has_pending_work
    assert not progress.tombstones, "every tombstone is gone when H has passed it"
    return table_rows


@some_and_more
def test_random_histories_end_in_the_rows_of_the_source(seeds: range) -> None:
    counts: Counter[str] = Counter()
    for seed in seeds:
        history = History(seed).run()
        assert rows_after(MemoryTable(), history, seed) == history.source, f"seed {seed}"
        counts += history.counts
    assert counts["deletes in windows"] > len(seeds), counts
    for happening in (
        "late rows",
        "key moves",
        "key updates",
        "truncates",
        "lost changes",
        "complete snapshots",
    ):
        assert counts[happening] > len(seeds) / 20, counts


def test_random_histories_whose_windows_the_producer_merged_end_in_the_rows_of_the_source() -> None:
    """Rows of snapshots stand in the change topic then, among changes older and newer than they are."""
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        history = History(seed, Shape(merge="producer")).run()
        assert rows_after(MemoryTable(), history, seed) == history.source, f"seed {seed}"
        assert not any(isinstance(record, Entry) for topic in history.snapshots for record in topic)
        counts += history.counts
    for happening in ("rows written", "rows not written", "windows read again", "lost changes", "key moves"):
        assert counts[happening] > 30, counts


def test_who_keeps_the_last_record_of_each_key_has_the_source_when_the_producer_merges() -> None:
    shape = Shape(merge="producer", key_moves=0, truncates=0, lost_log=0)
    for seed in SEEDS:
        history = History(seed, shape).run()
        kept = {entry.key: entry for topic in history.changes for entry in topic}
        rows = {key: entry.row for key, entry in kept.items() if not entry.deleted}
        assert rows == history.source, f"seed {seed}"


class WithNothingLeftOut(MemoryTable):
    """What could not be read is not remembered."""

    def apply(self, batch: Batch, progress: Progress) -> Progress:
        return super().apply(replace(batch, left_out=None), progress)


def even_batches(history: History, count: int) -> list[Batch]:
    """The history's topics cut into batches that have the same share of each partition."""
    found = []
    for number in range(count):
        entries, markers, ends = list[Entry](), list[Marker](), dict[int, int]()
        for topics in (history.changes, history.snapshots):
            for partition, records in enumerate(topics):
                start, end = (len(records) * share // count for share in (number, number + 1))
                entries += [record for record in records[start:end] if isinstance(record, Entry)]
                markers += [record for record in records[start:end] if not isinstance(record, Entry)]
                if topics is history.changes:
                    ends[partition] = end
        found.append(Batch(tuple(entries), tuple(markers), ends))
    return found


def rows_without_some(table: MemoryTable, history: History, seed: int) -> tuple[dict[Hashable, int], TableState]:
    """The rows after all batches, where some records of the first ones could not be read."""
    rng, progress, played = random.Random(seed + 2), Progress(), even_batches(history, 16)
    unread = rng.randint(1, 16)
    for number, batch in enumerate(played):
        read = tuple(entry for entry in batch.entries if number >= unread or rng.random() > 0.1)
        left_out = dict(batch.end_offsets) if len(read) < len(batch.entries) else None
        progress = table.apply(replace(batch, entries=read, left_out=left_out), progress)
    return {key: entry.row for key, entry in table.rows.items()}, progress.state


@pytest.mark.parametrize(
    "seeds", [SEEDS, pytest.param(range(300, 600), marks=pytest.mark.slow)], ids=["some", "more"]
)
def test_a_table_that_is_called_consistent_equals_its_source_whatever_could_not_be_read_before(seeds: range) -> None:
    """A snapshot counts where it began after all records that were left out, and only there."""
    consistent, false, left = 0, 0, 0
    for seed in seeds:
        history = History(seed).run()
        rows, state = rows_without_some(MemoryTable(), history, seed)
        assert not state.is_consistent or rows == history.source, f"seed {seed}"
        assert TableState.from_json(state.to_json()) == state
        consistent += state.is_consistent
        left += state.gap is not None
        rows, state = rows_without_some(WithNothingLeftOut(), history, seed)
        false += state.is_consistent and rows != history.source
    assert min(consistent, left, false) > 15, (consistent, left, false)


class Amounts(MemoryTable):
    """Rows are amounts here, not columns by name."""

    def sweeps(self, due: DueSweep, entry: Entry) -> bool:
        return due.takes({"amount": entry.row}, entry.version)


CHILDREN = Shape(cascades=0.06, slow=0.3)


@some_and_more
def test_children_that_foreign_keys_change_in_silence_are_swept_or_read_again(seeds: range) -> None:
    counts: Counter[str] = Counter()
    for seed in seeds:
        history = History(seed, CHILDREN).run()
        assert rows_after(Amounts(), history, seed) == history.source, f"seed {seed}"
        counts += history.counts
    assert counts["children changed in silence"] > 5 * len(seeds), counts
    assert counts["sweeps of children"] > 5 * len(seeds), counts
    assert counts["slow readers"] > len(seeds) / 5, counts


class WithoutSweepsOfChildren(Amounts):
    def sweeps(self, due: DueSweep, entry: Entry) -> bool:
        return False


class WithSweepsOfRowsReadAgain(Amounts):
    def sweeps(self, due: DueSweep, entry: Entry) -> bool:
        return super().sweeps(replace(due, below="9"), entry)


class WithSweepsThatDoNotWait(Amounts):
    """A sweep is carried out as soon as its marker is read, whatever the horizon is."""

    def apply(self, batch: Batch, progress: Progress) -> Progress:
        after = super().apply(batch, progress)
        due = [DueSweep(m.sweep, m.first_bound.text) for m in batch.markers if isinstance(m, CompleteMarker) and m.sweep]
        self.rows = {key: e for key, e in self.rows.items() if not any(self.sweeps(one, e) for one in due)}
        done = {name: c for name, c in after.state.completions.items() if c.sweep is None}
        return replace(after, state=replace(after.state, completions=done))


class WithSweepsThatDoNotWaitForTheHorizon(Amounts):
    """A sweep is carried out as soon as all before its marker is read, though windows may still hold rows from before."""

    def apply(self, batch: Batch, progress: Progress) -> Progress:
        after = super().apply(batch, progress)
        known = after.state.completions.items()
        read = {name: c for name, c in known if c.sweep is not None and c.reached(batch.end_offsets)}
        due = [DueSweep(c.sweep, c.first_bound) for c in read.values() if c.sweep is not None]
        self.rows = {key: e for key, e in self.rows.items() if not any(self.sweeps(one, e) for one in due)}
        left = {name: c for name, c in known if name not in read}
        return replace(after, state=replace(after.state, completions=left))


@pytest.mark.parametrize(
    "mutant",
    [
        WithoutSweepsOfChildren,
        WithSweepsOfRowsReadAgain,
        WithSweepsThatDoNotWait,
        WithSweepsThatDoNotWaitForTheHorizon,
    ],
)
def test_a_sweep_of_children_with_a_part_taken_out_is_caught(mutant: type[MemoryTable]) -> None:
    assert any(rows_after(mutant(), History(seed, CHILDREN).run(), seed) != History(seed, CHILDREN).run().source
               for seed in SEEDS)  # fmt: skip


class WithoutTombstones(MemoryTable):
    def expired(self, version: str, state: TableState) -> bool:
        return True


class WithTheHorizonOfOnePartition(MemoryTable):
    def expired(self, version: str, state: TableState) -> bool:
        return version <= max(state.guard.values(), default=NOTHING)


class WithoutWaitingForTheChangeTopic(MemoryTable):
    def expired(self, version: str, state: TableState) -> bool:
        lowest = state.lowest_promise
        return lowest is not None and version <= lowest.horizon


class WithoutGuard(MemoryTable):
    def admits(self, entry: Entry, before: TableState, after: TableState) -> bool:
        return entry.version >= after.floor


class WithTheGuardOfThisBatch(MemoryTable):
    def admits(self, entry: Entry, before: TableState, after: TableState) -> bool:
        return super().admits(entry, after, after)


class WithoutPositions(MemoryTable):
    def wins_against(self, challenger: Entry, holder: Entry) -> bool:
        return True


class WithoutFloor(MemoryTable):
    def apply(self, batch: Batch, progress: Progress) -> Progress:
        progress = super().apply(batch, replace(progress, state=replace(progress.state, floor=NOTHING)))
        return replace(progress, state=replace(progress.state, floor=NOTHING))


class WithTheFloorForgotten(MemoryTable):
    """Rows below a floor are deleted when it comes, but may return later."""

    def apply(self, batch: Batch, progress: Progress) -> Progress:
        after = super().apply(batch, progress)
        return replace(after, state=replace(after.state, floor=NOTHING))


@pytest.mark.parametrize(
    "mutant",
    [
        WithoutTombstones,
        WithTheHorizonOfOnePartition,
        WithoutWaitingForTheChangeTopic,
        WithoutGuard,
        WithTheGuardOfThisBatch,
        WithoutPositions,
        WithoutFloor,
        WithTheFloorForgotten,
    ],
)
def test_a_rule_with_a_part_taken_out_is_caught(mutant: type[MemoryTable]) -> None:
    for seed in SEEDS:
        history = History(seed).run()
        try:
            if rows_after(mutant(), history, seed) != history.source:
                return
        except AssertionError:
            return
    pytest.fail(f"{mutant.__name__} gave the right rows in all {len(SEEDS)} histories")


def position(offset: int, ordinal: int = 0) -> Position:
    return Position(1, 1, offset, ordinal)


def text(offset: int, ordinal: int = 0) -> str:
    return position(offset, ordinal).text


def heartbeat(
    at: int, horizon: int, partition: int, ends: dict[int, int], partitions: int = 2
) -> HeartbeatMarker:
    return HeartbeatMarker(
        table=TABLE,
        position=position(at),
        horizon=position(horizon),
        partitions=partitions,
        partition=partition,
        change_offsets=ends,
    )


def test_a_create_wins_against_a_delete_at_one_and_the_same_position() -> None:
    table, at = MemoryTable(), text(100, 1)
    both = (Entry("a", at, row=1), Entry("a", at, deleted=True))
    for entries in (both, both[::-1]):
        table.apply(Batch(entries, (), {}), Progress())
        assert [entry.row for entry in table.rows.values()] == [1]


def test_a_row_of_the_new_spelling_survives_the_delete_of_the_old_one() -> None:
    update = (Entry("a", text(200, 1), deleted=True), Entry("A", text(200, 1), row=2))
    before, after = Entry("a", text(150), row=1, partition=0), Entry("A", text(150), row=2, partition=0)
    for row in (before, after, Entry("A", text(250), row=2, partition=0)):
        for first, second in (((row,), update), (update, (row,)), ((*update, row), ())):
            table = MemoryTable()
            progress = table.apply(Batch(first, (), {}), Progress())
            table.apply(Batch(second, (), {}), progress)
            assert {key: entry.row for key, entry in table.rows.items()} == {"A": 2}


def test_tombstones_wait_for_every_partition_and_for_the_change_topic() -> None:
    table = MemoryTable()
    progress = table.apply(Batch((Entry("a", text(100, 1), deleted=True),), (), {0: 2}), Progress())
    for markers, ends, kept in (
        ((heartbeat(200, 200, 0, {0: 2, 1: 5}),), {0: 2}, 1),
        ((heartbeat(200, 200, 1, {0: 2, 1: 5}),), {0: 2, 1: 4}, 1),
        ((), {0: 2, 1: 5}, 0),
    ):
        progress = table.apply(Batch((), markers, ends), progress)
        assert len(progress.tombstones) == kept


def test_a_partition_never_seen_holds_tombstones_back() -> None:
    table = MemoryTable()
    progress = table.apply(Batch((Entry("a", text(100, 1), deleted=True),), (), {}), Progress())
    markers = tuple(heartbeat(200, 200, number, {}, partitions=3) for number in (0, 1))
    progress = table.apply(Batch((), markers, {}), progress)
    assert progress.tombstones
    progress = table.apply(Batch((), (heartbeat(210, 210, 2, {}, partitions=3),), {}), progress)
    assert not progress.tombstones
    assert progress.state.applied_position == text(200)


def test_a_horizon_counts_only_when_its_own_marker_was_read_everywhere() -> None:
    """An idle source repeats its position with a higher horizon; rows may stand before it elsewhere."""
    first = [heartbeat(200, 100, number, {}) for number in (0, 1)]
    state = TableState().advance([*first, heartbeat(200, 200, 0, {})], {})
    assert state.safe_horizon == text(100)
    assert state.advance([heartbeat(200, 200, 1, {})], {}).safe_horizon == text(200)


def test_a_floor_takes_rows_whose_low_is_where_the_truncate_starts() -> None:
    table = MemoryTable()
    row = Entry("a", text(100), row=1, partition=0)
    floor = FloorMarker(
        table=TABLE, position=position(100), horizon=position(100), partitions=1, reason="truncate"
    )
    progress = table.apply(Batch((row,), (), {}), Progress())
    progress = table.apply(Batch((), (floor,), {}), progress)
    assert not table.rows
    table.apply(Batch((row, Entry("b", text(100, 1), row=2)), (), {}), progress)
    assert list(table.rows) == ["b"]


def test_a_table_that_was_seen_empty_is_consistent_once_all_changes_up_to_there_are_applied() -> None:
    """The rows of CREATE ... SELECT are logged with it; a marker that does not say that the table was empty proves nothing."""
    common = {"table": TABLE, "horizon": position(100), "partitions": 2, "change_offsets": {0: 5}, "reason": "create"}
    made = FloorMarker(**common, position=position(100), empty=True)  # type: ignore[arg-type]
    first, second = made.for_partitions()

    state = TableState().advance([first], {0: 5})
    assert state.consistent_at == "", "the other partition may hold something that came before"
    state = TableState.from_json(state.to_json()).advance([second], {0: 4})
    assert state.consistent_at == "", "changes from before the marker were not read"
    state = TableState.from_json(state.to_json()).advance([], {0: 5})
    assert state.consistent_at == text(100)

    foreign = FloorMarker(**common, position=position(100))  # type: ignore[arg-type]
    assert TableState().advance(foreign.for_partitions(), {0: 5}).consistent_at == ""


def test_a_complete_snapshot_sweeps_what_it_did_not_find() -> None:
    table = MemoryTable()
    progress = table.apply(Batch((Entry("gone", text(100, 1), row=1),), (), {0: 1}), Progress())
    complete = CompleteMarker(
        table=TABLE,
        position=position(400),
        horizon=position(300),
        partitions=1,
        change_offsets={0: 2},
        request="again",
        first_bound=position(300),
        whole_table=True,
        rows=1,
    )
    progress = table.apply(
        Batch((Entry("here", text(300), row=2, partition=0),), (complete,), {0: 1}), progress
    )
    assert set(table.rows) == {"gone", "here"}, "the change topic has not come that far"
    progress = table.apply(Batch((), (), {0: 2}), progress)
    assert set(table.rows) == {"here"}
    assert progress.state.consistent_at == text(400)


def test_a_snapshot_with_a_condition_sweeps_nothing_and_leaves_the_table_as_consistent_as_it_was() -> None:
    def complete(start: int, *, whole_table: bool) -> CompleteMarker:
        return CompleteMarker(
            table=TABLE,
            position=position(start + 100),
            horizon=position(start),
            partitions=1,
            request=str(start),
            first_bound=position(start),
            whole_table=whole_table,
            rows=0,
        )

    table = MemoryTable()
    some = Batch((Entry("a", text(100, 1), row=1),), (complete(300, whole_table=False),), {})
    progress = table.apply(some, Progress())
    assert set(table.rows) == {"a"}
    assert not progress.state.consistent_at, "rows that the condition left out are not there"
    assert not progress.state.has_pending_work
    progress = table.apply(Batch((), (complete(500, whole_table=True),), {}), progress)
    assert progress.state.consistent_at == text(600)
    progress = table.apply(Batch((), (complete(700, whole_table=False),), {}), progress)
    assert progress.state.consistent_at == text(600), "it is as it was"


@pytest.mark.parametrize("cascades", [0.0, 0.06])
def test_the_state_survives_its_json_form(cascades: float) -> None:
    for seed in range(50):
        history, progress, table = History(seed, Shape(partitions=2, cascades=cascades)).run(), Progress(), Amounts()
        for batch in batches(history, seed):
            progress = table.apply(batch, progress)
            assert TableState.from_json(progress.state.to_json()) == progress.state


def test_a_long_wait_for_one_partition_keeps_few_marks() -> None:
    state = TableState()
    for at in range(1, 5000):
        state = state.advance([heartbeat(at, at, 0, {})], {})
    assert len(state.marks) <= 64
    state = state.advance([heartbeat(4999, 4999, 1, {})], {})
    assert (state.safe_horizon, state.marks) == (text(4999), ())


def test_markers_of_another_source_are_refused_and_change_nothing() -> None:
    def marker(at: int, source: str | None) -> HeartbeatMarker:
        named = None if source is None else SourceId(source)
        return HeartbeatMarker(
            table="shop.orders", position=position(at), horizon=position(at), partitions=1, source=named, change_offsets={0: 1}
        )

    state = TableState().advance([marker(100, None)], {0: 1})
    assert state.source is None, "a marker of an earlier version names none"
    state = state.advance([marker(200, "shop"), marker(150, None)], {0: 1})
    assert (state.source, state.applied_position) == (SourceId("shop"), position(200).text)
    state = TableState.from_json(state.to_json())
    with pytest.raises(SinkError, match="markers of source billing, its rows are of source shop: two producers write to it"):
        state.advance([marker(300, "billing")], {0: 1})
    with pytest.raises(SinkError, match="two producers"):
        TableState().advance([marker(300, "billing"), marker(100, "shop")], {0: 1})
