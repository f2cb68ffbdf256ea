"""The kernels alone: bytes that are none are bad, and nothing outside of a record has an effect."""

from __future__ import annotations

import pickle
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from schemas.columns import Column, ColumnType, TableSchema
from schemas.errors import UnsupportedTypeError
from schemas.markers import MARKER_KEY
from spark_jobs.arrow import avro_kernels as kernels
from spark_jobs.arrow.arrow_decoder import ArrowDecoder, DecoderPlan, Judged
from spark_jobs.arrow.arrow_types import UnsupportedBatchError
from spark_jobs.arrow.commit_times import MOST_RECORDS, commit_times_ms
from spark_jobs.arrow.newest import admitted, newest, not_overtaken, observed
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.decode.table_layout import layout
from tests.merge.lake import at
from tests.merge.test_decode import (
    OLD,
    TYPES,
    Record,
    column,
    envelope,
    framed,
    key_writers,
    table,
    value_writers,
)

SOURCE = table(*[item for item, _, _ in TYPES])
(WRITER,), KEYS = value_writers(SOURCE), key_writers(SOURCE)
PLAN = layout(KEYS, [WRITER])


def decoder() -> ArrowDecoder:
    return ArrowDecoder(pickle.loads(pickle.dumps(DecoderPlan.of(PLAN))))  # noqa: S301 - our own bytes


def record(ident: int, op: str, offset: int, **after: object) -> Record:
    found = envelope(op, None, None if op == "d" else {"id": ident, **after})
    found["source"]["sequence"] = at(offset, 1).text
    return framed(KEYS[0], {"id": ident}), framed(WRITER, found)


def judge(one: ArrowDecoder, records: list[Record], snapshot: object = 0) -> Judged:
    keys, values = zip(*records, strict=True)
    return one.judge(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), snapshot, 0)


def test_every_truncation_of_a_record_is_bad() -> None:
    key, value = record(1, "c", 5, text="grüß", dec=None)
    assert value is not None
    codes = judge(decoder(), [(key, value[:size]) for size in range(len(value))]).reasons
    assert set(codes[:6].tolist()) == {kernels.VALUE_UNFRAMED}
    assert set(codes[6:].tolist()) == {kernels.VALUE_DAMAGED}


def test_bytes_outside_of_a_record_have_no_effect() -> None:
    rng = random.Random(3)
    one = decoder()
    found = []
    for fill in (b"\0", b"\xff", b"\x02"):
        rng.seed(3)
        keys, values, starts = fill * 40, fill * 40, []
        for _ in range(3000):
            key, value = record(rng.randrange(99), "c", rng.randrange(1, 9), text="x" * rng.randrange(90), vector=[1.0])
            damaged = bytearray(value or b"")
            text = (value or b"").index(at(0, 0).text[:5].encode())  # no position that only the JVM can count
            for _ in range(rng.randrange(4)):
                damaged[rng.choice((rng.randrange(5, text), rng.randrange(text + 39, len(damaged))))] = rng.randrange(256)
            del damaged[rng.randrange(6, len(damaged) * 3) :]
            starts.append((len(keys), len(key or b""), len(values), len(damaged)))
            keys += (key or b"") + fill * 40
            values += bytes(damaged) + fill * 40
        limits = np.array(starts, np.int64)
        # Every second record is the bytes between two others: it is not looked at.
        ends = np.stack([limits[:, 2], limits[:, 2] + limits[:, 3]], 1).ravel().astype(np.int32)
        key_ends = np.stack([limits[:, 0], limits[:, 0] + limits[:, 1]], 1).ravel().astype(np.int32)
        arrays = [
            pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
            for offsets, data in ((key_ends, keys), (ends, values))
        ]
        found.append(one.judge(*arrays, False, 0).reasons[::2].tolist())
    assert found[0] == found[1] == found[2]
    assert {kernels.GOOD, kernels.VALUE_DAMAGED} <= set(found[0])


def test_random_bytes_are_judged_and_never_read_outside() -> None:
    rng = random.Random(4)
    records: list[Record] = [
        (KEYS[0].frame + rng.randbytes(rng.randrange(9)), WRITER.frame + rng.randbytes(rng.randrange(300))) for _ in range(5000)
    ]
    assert kernels.GOOD not in judge(decoder(), records).reasons


def test_the_newest_of_each_key_wins_and_a_create_over_a_delete_at_one_position() -> None:
    rng = random.Random(5)
    facts = [(rng.randrange(40), rng.choice("cud"), rng.randrange(1, 30)) for _ in range(600)]
    one = decoder()
    judged = judge(one, [record(*fact) for fact in facts])
    expected: dict[int, tuple[int, bool]] = {}
    for ident, op, offset in facts:
        expected[ident] = max(expected.get(ident, (0, False)), (offset, op != "d"))
    chosen = newest(one, judged, admitted(judged, {}, ""))
    rows = one.columns(judged, chosen).to_pylist()
    assert {row["id"]: (row[POSITION], not row[DELETED]) for row in rows} == {
        ident: (at(offset, 1).text, lives) for ident, (offset, lives) in expected.items()
    }
    counts = observed(one, judged, chosen, one.columns(judged, chosen), at(20, 0).text)
    assert (counts.bad, counts.winners, counts.newest) == (0, len(expected), None)
    assert (counts.low, counts.high) == (min(expected), max(expected))
    assert counts.oldest == at(min(offset for offset, _ in expected.values()), 1).text
    assert counts.tombstones == sum(not lives and offset >= 20 for offset, lives in expected.values())


def test_a_key_that_is_written_in_another_way_is_the_same_key() -> None:
    one = decoder()
    first, second = record(1, "c", 5), record(1, "c", 6)
    judged = judge(one, [(KEYS[0].frame + b"\x82\0", first[1]), second, (KEYS[0].frame + b"\x02more", record(1, "d", 3)[1])])
    assert judged.has_loose_keys
    assert newest(one, judged, judged.good).tolist() == [1]


@pytest.mark.parametrize(("digits", "one", "other"), [(40, "\x05", "\0\x05"), (18, "\1\0\0\0\0\0\0\5", "\2\1\0\0\0\0\0\0\5")])
def test_a_decimal_key_with_bytes_that_do_not_count_is_the_same_key(digits: int, one: str, other: str) -> None:
    """Two winners of one key would be two rows."""
    made = TableSchema("shop", "t", (Column("id", ColumnType.DECIMAL, nullable=False, precision=digits, scale=0),), ("id",))
    (writer,), keys = value_writers(made), key_writers(made)
    found = ArrowDecoder(DecoderPlan.of(layout(keys, [writer])))
    records = []
    for offset, text in enumerate((one, other), 5):
        change = envelope("c", None, {"id": text.encode("latin-1")})
        change["source"]["sequence"] = at(offset, 1).text
        records.append((framed(keys[0], {"id": text.encode("latin-1")}), framed(writer, change)))
    judged = judge(found, records)
    winners = newest(found, judged, judged.good)
    assert (winners.tolist(), found.columns(judged, winners)["id"].to_pylist()) == ([1], ["5" if digits == 40 else Decimal(2**56 + 5)])


def test_guard_and_floor_leave_rows_out() -> None:
    one = decoder()
    judged = judge(one, [record(n, "r", 10 + n) for n in range(4)], [True, True, False, False])
    assert admitted(judged, {0: at(11, 1).text, 1: at(99, 1).text}, "").tolist() == [False, True, True, True]
    assert admitted(judged, {}, at(12, 2).text).tolist() == [False, False, False, True]


def test_markers_tombstones_and_truncates_are_left_out() -> None:
    truncate = framed(WRITER, envelope("t", None, None))
    records = [(MARKER_KEY, b"{}"), (b"k", None), (None, truncate), record(1, "c", 1), (None, record(1, "c", 1)[1])]
    assert judge(decoder(), records, True).reasons.tolist() == [-1, -1, -1, 0, kernels.NO_KEY]
    assert judge(decoder(), records[:1]).reasons.tolist() == [kernels.VALUE_UNFRAMED]


def test_rows_that_a_tombstone_has_overtaken_go_and_stay_at_a_tie() -> None:
    rows = pa.table({"id": pa.array([1, 2, 3, None], pa.int32()), POSITION: ["a", "b", "c", "a"]})
    dead = pa.table({"id": pa.array([1, 2, 1, None], pa.int32()), POSITION: ["b", "b", "0", "z"]})
    assert not_overtaken(rows, dead, ["id"])["id"].to_pylist() == [2, 3, None]


def committed(ident: int, op: str, at_ms: int) -> Record:
    found = envelope(op, None, None if op == "d" else {"id": ident})
    found["source"] |= {"sequence": at(ident, 1).text, "ts_ms": at_ms}
    return framed(KEYS[0], {"id": ident}), framed(WRITER, found)


def test_the_time_of_a_commit_is_read_of_changes_alone() -> None:
    records = [committed(1, "c", 5_000), committed(2, "d", 6_000), committed(3, "r", 7_000), committed(4, "u", 0)]
    records.append(committed(5, "u", 8_000))
    one = decoder()
    judged = judge(one, records, [False, False, False, False, True])
    assert commit_times_ms(one, judged, np.arange(5)).tolist() == [5_000, 6_000]
    assert commit_times_ms(one, judged, np.array([1])).tolist() == [6_000]
    assert not commit_times_ms(one, judged, np.array([4])).size


def test_of_many_changes_the_times_are_read_of_some_first_and_last_among_them() -> None:
    one = decoder()
    count = 3 * MOST_RECORDS
    judged = judge(one, [committed(number, "c", 1_000 + number) for number in range(count)])
    found = commit_times_ms(one, judged, np.arange(count)).tolist()
    assert len(set(found)) == MOST_RECORDS
    assert (found[0], found[-1]) == (1_000, 999 + count)


def test_text_that_is_not_utf_8_is_left_to_the_jvm() -> None:
    one = decoder()
    key, value = record(1, "c", 5, text="abcd")
    assert value is not None
    judged = judge(one, [(key, value.replace(b"abcd", b"ab\xff\xfe"))])
    with pytest.raises(UnsupportedBatchError, match="UTF-8"):
        one.columns(judged, np.array([0]))


def test_what_is_not_supported_is_said_before() -> None:
    keyed = table(column("f", ColumnType.FLOAT))
    twice = value_writers(OLD)[0]
    with pytest.raises(UnsupportedTypeError, match="two schemas have one id"):
        ArrowDecoder(DecoderPlan.of(layout(key_writers(keyed), [twice, twice])))
    text = table(column("f", ColumnType.VARCHAR, length=3))
    with pytest.raises(UnsupportedTypeError, match="Java"):
        ArrowDecoder(DecoderPlan.of(layout(key_writers(keyed), value_writers(keyed, text))))
