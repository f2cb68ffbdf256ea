"""Loads by delta-rs: keys of any type in range and not, and an attempt that dies between its two commits."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from schemas.errors import SinkError
from spark_jobs.decode.record_columns import POSITION
from spark_jobs.sinks.delta import known_keys
from spark_jobs.sinks.delta.arrow_limits import open_table
from spark_jobs.sinks.delta.arrow_load import ArrowLoad
from spark_jobs.sinks.delta.arrow_put import ArrowPut, UnsupportedTableError
from spark_jobs.sinks.worker_writes import LoadedRows

LOW = "p5"
KINDS: Mapping[str, tuple[pa.DataType, Any]] = {
    "integer": (pa.int64(), lambda number: number * 3 - 40),
    "text": (pa.string(), lambda number: f"it's \\ {'Ä' * 70} {number:03}"),
    "date": (pa.date32(), lambda number: dt.date(1999, 12, 1) + dt.timedelta(number)),
    "decimal": (pa.decimal128(20, 0), lambda number: Decimal(2**64 - 60 + number)),
    "binary": (pa.binary(), lambda number: bytes((255, number, 0))),
}


def table(kind: str, rows: Mapping[int, int], position: str = LOW) -> pa.Table:
    made, key = KINDS[kind]
    keys = pa.array([key(number) for number in rows], made)
    return pa.table([keys, pa.array(rows.values(), pa.int32()), pa.repeat(position, len(rows))], names=["a key", "v", POSITION])


def arrow_load(path: Path, version: int = 1, *, ranged: bool = False) -> ArrowLoad:
    over = ArrowPut(str(path), ("a key",), ("a key", "v"), "tidemark/q/t/load-over/0", version, '{"tidemark":1}')
    load = ArrowLoad(over, "tidemark/q/t/load/0", "a key" if ranged else None)
    copied: ArrowLoad = pickle.loads(pickle.dumps(load))  # noqa: S301 - our own
    return copied


def run(load: ArrowLoad, *blocks: pa.Table) -> LoadedRows:
    """Both steps of a load."""
    kept = Path(load.over.path).with_name("kept")
    done = load.run(iter(blocks), LOW, kept)
    if done.older:
        load.replace_older(kept)
    return replace(done, older=0)


def values(path: Path, kind: str) -> dict[int, tuple[int, str]]:
    rows = open_table(str(path)).to_pyarrow_table().to_pylist()
    numbers = {KINDS[kind][1](number): number for number in range(64)}
    found = {numbers[row["a key"]]: (row["v"], row[POSITION]) for row in rows}
    assert len(found) == len(rows), "no key twice"
    return found


@pytest.mark.parametrize("kind", list(KINDS))
def test_keys_of_any_type_are_found_where_they_are(kind: str, tmp_path: Path) -> None:
    older, same, newer = {1: 0, 20: 0}, {2: 0, 21: 0}, {3: 0, 40: 0}
    for rows, position in ((older, "p1"), (same, LOW), (newer, "p9")):
        write_deltalake(str(tmp_path), table(kind, rows, position), mode="append")
    chunk = dict.fromkeys((0, 1, 2, 3, 19, 20, 21, 22), 7)
    blocks = [table(kind, dict(list(chunk.items())[:5])), table(kind, dict(list(chunk.items())[5:]))]
    assert run(arrow_load(tmp_path), *blocks).rows == 8
    loaded = dict.fromkeys((0, 1, 19, 20, 22), (7, LOW))
    assert values(tmp_path, kind) == {2: (0, LOW), 21: (0, LOW), 3: (0, "p9"), 40: (0, "p9")} | loaded


def test_a_key_of_several_columns(tmp_path: Path) -> None:
    def rows(*keys: tuple[int, str], position: str = LOW) -> pa.Table:
        numbers, texts = ([key[side] for key in keys] for side in (0, 1))
        return pa.table([pa.array(numbers, pa.int64()), pa.array(texts), pa.repeat(position, len(keys))], names=["n", "s", POSITION])

    write_deltalake(str(tmp_path), rows((1, "a"), (2, "a"), position="p9"))
    over = ArrowPut(str(tmp_path), ("n", "s"), ("n", "s"), "over", 1, '{"tidemark":1}')
    run(ArrowLoad(over, "load", "n"), rows((1, "a"), (1, "b"), (2, "A"), (2, "a")))
    found = open_table(str(tmp_path)).to_pyarrow_table().to_pylist()
    assert sorted((row["n"], row["s"], row[POSITION]) for row in found) == [
        (1, "a", "p9"), (1, "b", LOW), (2, "A", LOW), (2, "a", "p9"),
    ]  # fmt: skip


@pytest.mark.parametrize("harm", ["commit", "files"])
def test_a_load_has_arrived_once_the_driver_sees_its_commits_and_their_files(harm: str, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), table("integer", {1: 0}, "p1"))
    load, kept = arrow_load(tmp_path / "t", ranged=True), tmp_path / "kept"
    done = load.run(iter([table("integer", {1: 7, 2: 7})]), LOW, kept)
    assert (done.rows, done.older, done.has_added) == (2, 1, True)
    load.require_arrived(replace(done, older=0))
    with pytest.raises(SinkError, match="the driver sees no commit of it"):
        load.require_arrived(done)  # the older row is not replaced yet
    assert load.replace_older(kept) == 1
    load.require_arrived(done)
    for file in tmp_path.glob("t/_delta_log/*1.json" if harm == "commit" else "t/part-*"):
        file.unlink()
    with pytest.raises(SinkError, match="do not share this folder"):
        load.require_arrived(done)


def test_an_attempt_that_dies_between_its_commits_is_completed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the second SELECT has besides is not added: the log brings it, and a later delete of it would find two rows."""
    write_deltalake(str(tmp_path), table("integer", {1: 0, 30: 0}, "p1"))
    with monkeypatch.context() as patched:
        patched.setattr(ArrowPut, "run", lambda *_: (_ for _ in ()).throw(RuntimeError("killed")))
        with pytest.raises(RuntimeError, match="killed"):
            run(arrow_load(tmp_path, ranged=True), table("integer", {1: 7, 2: 7, 9: 7}))
    assert values(tmp_path, "integer") == {1: (0, "p1"), 30: (0, "p1"), 2: (7, LOW), 9: (7, LOW)}
    done = run(arrow_load(tmp_path, ranged=True), table("integer", {1: 8, 2: 8, 3: 8}))
    assert done == LoadedRows(3, (1 * 3 - 40, 30 * 3 - 40)), "the range has the rows of the first attempt"
    after = {1: (8, LOW), 30: (0, "p1"), 2: (7, LOW), 9: (7, LOW)}
    assert values(tmp_path, "integer") == after
    commits = DeltaTable(str(tmp_path)).version()
    run(arrow_load(tmp_path, ranged=True), table("integer", {1: 9, 2: 9, 3: 9}))
    assert (values(tmp_path, "integer"), DeltaTable(str(tmp_path)).version()) == (after, commits)


def test_loads_of_one_table_that_run_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Each append is committed over a version in which another one was; the replacements come one after the other, behind them."""
    write_deltalake(str(tmp_path), table("integer", dict.fromkeys(range(0, 64, 2), 0), "p1"))
    loads = [replace(arrow_load(tmp_path), app_id=f"load/{lane}") for lane in range(3)]
    loads = [replace(one, over=replace(one.over, app_id=f"over/{lane}")) for lane, one in enumerate(loads)]

    def blocks(lane: int) -> Iterator[pa.Table]:
        """Rows during which all other loads begin, and end."""
        yield table("integer", dict.fromkeys(range(lane * 20, lane * 20 + 20), 7))
        if lane:
            assert loads[lane - 1].run(blocks(lane - 1), LOW, tmp_path.with_name(f"kept{lane - 1}")).older == 10

    assert loads[2].run(blocks(2), LOW, tmp_path.with_name("kept2")).older == 10
    for lane, one in enumerate(loads):
        one.replace_older(tmp_path.with_name(f"kept{lane}"))
    assert values(tmp_path, "integer") == dict.fromkeys(range(60), (7, LOW)) | {60: (0, "p1"), 62: (0, "p1")}


def test_files_whose_keys_are_elsewhere_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rows in ({1: 0, 2: 0}, {40: 0, 41: 0}):
        write_deltalake(str(tmp_path), table("integer", rows, "p1"), mode="append")
    monkeypatch.setattr(known_keys, "QueryBuilder", None)
    run(arrow_load(tmp_path), table("integer", dict.fromkeys(range(5, 35), 7)))
    assert len(values(tmp_path, "integer")) == 34


def test_many_blocks_go_through_a_bounded_number_in_memory(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), table("integer", {}, "p1"))
    ahead, count, rows = [0], 40, 1 << 16

    def blocks() -> Iterator[pa.Table]:
        for number in range(count):
            ahead[0] += 1
            keys = pa.array(range(number * rows, (number + 1) * rows), pa.int64())
            yield pa.table([keys, pa.repeat(pa.scalar(1, pa.int32()), rows), pa.repeat(LOW, rows)], names=["a key", "v", POSITION])

    done = arrow_load(tmp_path, ranged=True).run(blocks(), LOW, tmp_path / "kept")
    assert done == LoadedRows(count * rows, (0, count * rows - 1))
    assert open_table(str(tmp_path)).to_pyarrow_table().num_rows == count * rows


def test_a_panic_of_a_library_ends_the_load_and_does_not_leave_it_waiting(tmp_path: Path) -> None:
    class Panic(BaseException):
        """As PyO3's PanicException, which is no `Exception`."""

    def blocks() -> Iterator[pa.Table]:
        for number in range(8):  # more than are read before the commit begins
            keys = pa.array(range(number << 16, (number + 1) << 16), pa.int64())
            yield pa.table([keys, pa.repeat(pa.scalar(1, pa.int32()), 1 << 16), pa.repeat(LOW, 1 << 16)], names=["a key", "v", POSITION])
        raise Panic

    write_deltalake(str(tmp_path), table("integer", {}, "p1"))
    with pytest.raises(RuntimeError, match="Panic"):
        arrow_load(tmp_path).run(blocks(), LOW, tmp_path / "kept")


def test_a_table_that_delta_rs_must_not_write_is_refused_before_the_source_is_read(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), table("integer", {1: 1}), partition_by=["v"])

    def blocks() -> Iterator[pa.Table]:
        raise AssertionError
        yield

    with pytest.raises(UnsupportedTableError, match="partition columns"):
        arrow_load(tmp_path).run(blocks(), LOW, tmp_path / "kept")
