"""Verify on real servers, with sink tables written by hand: it finds what is wrong, and only that."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from schemas.errors import ConfigError
from schemas.json_codec import encode
from schemas.position import Position
from tests.verify import all_types, sinks
from tests.verify.conftest import Scene
from tidemark.status.status_tree import ASIDE
from tidemark.verify import DifferenceKind, TableReport, VerifyReport, verify
from tidemark.verify.judge import Judge
from tidemark.verify.verification import without_contradiction

OLD = Position(sinks.EPOCH, 1, 4).text


def only(report: VerifyReport) -> TableReport:
    (table,) = report.tables
    return table


def prepare_types(scene: Scene, count: int = 40) -> pa.Table:
    """A table with every type on the source, and its right sink, not yet written."""
    columns = all_types.COLUMNS
    if scene.server.flavour == "mysql":
        columns = (*columns, all_types.JSON_COLUMN)
    if scene.server.name in all_types.WITH_VECTORS:
        columns = (*columns, all_types.VECTOR_COLUMN)
    if scene.server.flavour == "mariadb":
        columns = (*columns, all_types.SHORT_YEAR_COLUMN)
    values = all_types.rows(count, columns)
    scene.sql(all_types.create_sql("types", columns), all_types.insert_sql("types", values))
    sinks.caught_up(scene.connection, scene.server.flavour, scene.settings, f"{scene.database}.types")
    return all_types.sink_rows(values, columns, OLD)


def changed(table: pa.Table, row: int, column: str, value: Any) -> pa.Table:
    index = table.schema.get_field_index(column)
    values = table.column(column).to_pylist()
    values[row] = value
    return table.set_column(index, column, pa.array(values, type=table.schema.field(column).type))


def test_every_type_is_equal_to_what_a_right_sink_holds(scene: Scene) -> None:
    sinks.write_table(scene.settings, scene.database, "types", prepare_types(scene))
    report = verify(scene.settings)
    assert report.ok, report.to_text()
    assert only(report).source_rows == only(report).sink_rows == 40
    # The JSON documents that differ as text (1 and 1.0) are compared by value.
    assert only(report).differing == 0


def test_a_changed_value_a_lost_row_and_a_row_too_many_are_each_reported(scene: Scene) -> None:
    right = prepare_types(scene)
    wrong = changed(right, 7, "c_double", 0.1 + 2**-56)
    wrong = changed(wrong, 12, "c_varchar", "日本 🌊")
    extra = changed(right.slice(3, 1), 0, "id", 1000)
    wrong = pa.concat_tables([wrong.slice(0, 20), wrong.slice(21), extra])
    sinks.write_table(scene.settings, scene.database, "types", wrong)
    report = verify(scene.settings)
    found = {(part.kind, part.key["id"]): part for part in only(report).differences}
    assert set(found) == {
        (DifferenceKind.VALUE, "7"),
        (DifferenceKind.VALUE, "12"),
        (DifferenceKind.MISSING, "20"),
        (DifferenceKind.EXTRA, "1000"),
    }
    assert [part.column for part in found[DifferenceKind.VALUE, "7"].columns] == ["c_double"]
    (column,) = found[DifferenceKind.VALUE, "12"].columns
    assert (column.column, column.source, column.sink) == ("c_varchar", "'日本 🌊 '", "'日本 🌊'")
    assert not report.ok
    text = report.to_text()
    assert "id=20: missing in the sink" in text
    assert "source does NOT equal sink" in text
    document = json.loads(json.dumps(encode(report)))
    assert document["ok"] is False
    assert document["tables"][0]["differing"] == 4


def test_a_table_that_is_set_aside_is_not_waited_for(scene: Scene) -> None:
    right = prepare_types(scene)
    sinks.write_table(scene.settings, scene.database, "types", changed(right, 7, "c_double", 0.5))
    begun = time.monotonic()
    report = verify(scene.settings, patience_s=60, awaited=lambda _table: f"{ASIDE}: no such column")
    assert time.monotonic() - begun < 30
    assert not report.ok
    assert "rows differed as read, and they are not judged: it is set aside: no such column" in str(only(report).not_compared)


def test_a_table_that_is_dropped_meanwhile_is_reported_and_the_others_are_compared(scene: Scene) -> None:
    kept, dropped = (f"{scene.database}.{name}" for name in ("a", "b"))
    rows = pa.table({"id": pa.array([1], pa.int32()), "_tm_position": [OLD]})
    for name in ("a", "b"):
        scene.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY)", f"INSERT INTO {name} VALUES (1)")
        sinks.write_table(scene.settings, scene.database, name, rows)
    sinks.caught_up(scene.connection, scene.server.flavour, scene.settings, kept, dropped)

    report = verify(scene.settings, on_progress=lambda _: scene.sql("DROP TABLE IF EXISTS b"))

    reasons = {table.table: table.not_compared for table in report.tables}
    assert reasons == {kept: None, dropped: "the table is gone from the source"}


@pytest.mark.parametrize("scene", ["mariadb114"], indirect=True)
def test_a_system_versioned_table_is_not_compared_as_it_is_not_captured(scene: Scene) -> None:
    scene.sql(
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "INSERT INTO a VALUES (1)",
        "CREATE TABLE prices (id INT PRIMARY KEY) WITH SYSTEM VERSIONING",
    )
    sinks.write_table(scene.settings, scene.database, "a", pa.table({"id": pa.array([1], pa.int32()), "_tm_position": [OLD]}))
    sinks.caught_up(scene.connection, scene.server.flavour, scene.settings, f"{scene.database}.a")

    report = verify(scene.settings)

    assert [table.table for table in report.tables] == [f"{scene.database}.a"]
    assert report.ok, report.to_text()


def test_one_wrong_value_of_any_type_is_found(scene: Scene) -> None:
    right = prepare_types(scene)
    other = {
        pa.int8(): 1, pa.int16(): 2, pa.int32(): 3, pa.int64(): 4, pa.float32(): 0.25, pa.float64(): 0.25,
        pa.bool_(): None, pa.string(): "9", pa.binary(): b"other", pa.date32(): all_types.date(2001, 1, 1),
        all_types.NAIVE: all_types.datetime(2001, 1, 1),
        all_types.SHAPE: {"srid": 7, "wkb": all_types.POINT},
        all_types.AWARE: all_types.datetime(2001, 1, 1, tzinfo=all_types.UTC),
    }  # fmt: skip
    wrong = right
    names = [name for name in right.column_names if name not in {"id", "_tm_position"}]
    for row, name in enumerate(names):
        kind = right.schema.field(name).type
        wrong = changed(wrong, row, name, all_types.Decimal(3) if pa.types.is_decimal(kind) else other[kind])
    sinks.write_table(scene.settings, scene.database, "types", wrong)
    found = {
        part.key["id"]: [column.column for column in part.columns]
        for part in only(verify(scene.settings)).differences
    }
    assert found == {str(row): [name] for row, name in enumerate(names)}


def test_keys_of_other_kinds_are_matched_by_code_points(scene: Scene) -> None:
    scene.sql(
        "CREATE TABLE words (w VARCHAR(40) COLLATE utf8mb4_general_ci, n SMALLINT, v INT,"
        " PRIMARY KEY (w, n)) CHARACTER SET utf8mb4",
        "INSERT INTO words VALUES ('abc', 1, 1), ('ABC', 2, 2), ('it''s \\\\', 3, 3), ('été', 4, 4)",
        "CREATE TABLE big (id BIGINT UNSIGNED PRIMARY KEY, v INT)",
        "INSERT INTO big VALUES (18446744073709551615, 1), (9223372036854775808, 2), (0, 3)",
        "CREATE TABLE raw (id VARBINARY(8) PRIMARY KEY, at DATETIME(6) NOT NULL, UNIQUE (at))",
        "INSERT INTO raw VALUES (x'00FF', '2024-01-01 00:00:00.5'), ('', '2024-01-02')",
        "CREATE TABLE at_unique (at DATETIME(6) NOT NULL, v INT, UNIQUE (at))",
        "INSERT INTO at_unique VALUES ('2024-01-01 00:00:00.5', 1), ('2024-01-02', 2)",
    )
    tables = ("words", "big", "raw", "at_unique")
    sinks.caught_up(
        scene.connection,
        scene.server.flavour,
        scene.settings,
        *(f"{scene.database}.{table}" for table in tables),
    )
    halves = [all_types.datetime(2024, 1, 1, 0, 0, 0, 500000), all_types.datetime(2024, 1, 2)]
    position = [OLD] * 4
    # 'ABC' has lost its case, 'it's \' its value, a big key is off by one, a binary key was trimmed.
    words = {"w": ["abc", "abc", "it's \\", "été"], "n": pa.array([1, 2, 3, 4], pa.int16())}
    words |= {"v": pa.array([1, 2, 0, 4], pa.int32()), "_tm_position": position}
    keys = pa.array(
        [all_types.Decimal(2**64 - 2), all_types.Decimal(2**63), all_types.Decimal(0)], pa.decimal128(20, 0)
    )
    big = {"id": keys, "v": pa.array([1, 2, 3], pa.int32()), "_tm_position": position[:3]}
    raw = {
        "id": pa.array([b"\xff", b""], pa.binary()),
        "at": pa.array(halves, all_types.NAIVE),
        "_tm_position": position[:2],
    }
    unique = {
        "at": pa.array(halves, all_types.NAIVE),
        "v": pa.array([1, 3], pa.int32()),
        "_tm_position": position[:2],
    }
    for table, columns in zip(tables, (words, big, raw, unique), strict=True):
        sinks.write_table(scene.settings, scene.database, table, pa.table(columns))
    report = verify(scene.settings)
    found = {
        (table.table.split(".")[1], part.kind, *part.key.values())
        for table in report.tables
        for part in table.differences
    }
    assert found == {
        ("words", DifferenceKind.MISSING, "'ABC'", "2"),
        ("words", DifferenceKind.EXTRA, "'abc'", "2"),
        ("words", DifferenceKind.VALUE, '"it\'s \\\\"', "3"),
        ("big", DifferenceKind.MISSING, str(2**64 - 1)),
        ("big", DifferenceKind.EXTRA, str(2**64 - 2)),
        ("raw", DifferenceKind.MISSING, "0x00ff"),
        ("raw", DifferenceKind.EXTRA, "0xff"),
        ("at_unique", DifferenceKind.VALUE, "2024-01-02 00:00:00.000000"),
    }


def test_what_is_no_date_in_a_required_column_is_what_records_have_for_it(scene: Scene) -> None:
    zero, feb_31 = "'0000-00-00 00:00:00'", "'2024-02-31 01:02:03'"
    dated = "'2019-05-06 07:08:09'"
    scene.sql(
        "CREATE TABLE zeros (id INT PRIMARY KEY, d DATE NOT NULL, e DATE NOT NULL DEFAULT '2020-02-29',"
        " m DATETIME NOT NULL DEFAULT '2021-03-04 05:06:07', u DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),"
        " s TIMESTAMP NOT NULL DEFAULT '2022-01-02 03:04:05', n DATETIME NULL)",
        f"INSERT INTO zeros VALUES (1, '0000-00-00', '0000-00-00', {zero}, {zero}, {zero}, {zero})",
        f"INSERT INTO zeros VALUES (2, '2024-02-31', '2024-00-10', {feb_31}, {feb_31}, {dated}, {feb_31})",
        f"INSERT INTO zeros VALUES (3, {dated}, {dated}, {dated}, {dated}, {dated}, {dated})",
        f"INSERT INTO zeros VALUES (4, '0000-00-00', {dated}, {dated}, {dated}, {dated}, {dated})",
        "CREATE TABLE zero_keys (d DATE PRIMARY KEY, v INT)",
        "INSERT INTO zero_keys VALUES ('0000-00-00', 1), ('2024-01-01', 2)",
    )
    tables = (f"{scene.database}.zeros", f"{scene.database}.zero_keys")
    sinks.caught_up(scene.connection, scene.server.flavour, scene.settings, *tables)
    moment, epoch = all_types.datetime(2019, 5, 6, 7, 8, 9), all_types.datetime(1970, 1, 1)
    defaults = {"e": all_types.date(2020, 2, 29), "m": all_types.datetime(2021, 3, 4, 5, 6, 7)}
    stamps = [all_types.datetime(2022, 1, 2, 3, 4, 5), moment, moment, moment]
    zeros = {
        "id": pa.array([1, 2, 3, 4], pa.int32()),
        "d": pa.array([epoch.date(), epoch.date(), moment.date(), all_types.date(1970, 1, 2)], pa.date32()),
        "e": pa.array([defaults["e"], defaults["e"], moment.date(), moment.date()], pa.date32()),
        "m": pa.array([defaults["m"], defaults["m"], moment, moment], all_types.NAIVE),
        "u": pa.array([epoch, epoch, moment, moment], all_types.NAIVE),
        "s": pa.array([stamp.replace(tzinfo=all_types.UTC) for stamp in stamps], all_types.AWARE),
        "n": pa.array([None, None, moment, moment], all_types.NAIVE),
        "_tm_position": [OLD] * 4,
    }
    keys = {"d": pa.array([epoch.date(), all_types.date(2024, 1, 1)], pa.date32())}
    keys |= {"v": pa.array([1, 2], pa.int32()), "_tm_position": [OLD] * 2}
    sinks.write_table(scene.settings, scene.database, "zeros", pa.table(zeros))
    sinks.write_table(scene.settings, scene.database, "zero_keys", pa.table(keys))
    report = verify(scene.settings)
    found = {(table.table, *part.key.values()): part.kind for table in report.tables for part in table.differences}
    assert found == {(tables[0], "4"): DifferenceKind.VALUE}, report.to_text()


def test_many_ranges_and_few_wrong_rows(scene: Scene) -> None:
    count, wrong = 5_000, {0, 255, 256, 2_500, 4_999}
    values = ",".join(f"({2 * index - 3000},{index})" for index in range(count))
    scene.sql("CREATE TABLE many (id INT PRIMARY KEY, v INT)", f"INSERT INTO many VALUES {values}")
    sinks.caught_up(scene.connection, scene.server.flavour, scene.settings, f"{scene.database}.many")
    table = pa.table(
        {
            "id": pa.array([2 * index - 3000 for index in range(count)], pa.int32()),
            "v": pa.array([-1 if index in wrong else index for index in range(count)], pa.int32()),
            "_tm_position": [OLD] * count,
        }
    )
    extra = pa.table(
        {
            "id": pa.array([-9000, 9000], pa.int32()),
            "v": pa.array([1, 1], pa.int32()),
            "_tm_position": [OLD] * 2,
        }
    )
    twice = table.slice(77, 1)
    sinks.write_table(scene.settings, scene.database, "many", pa.concat_tables([table, extra, twice]))
    report = only(verify(scene.settings))
    assert (report.source_rows, report.sink_rows) == (count, count + 3)
    assert report.ranges == -(-count // 256)
    keys = {(part.kind, int(part.key["id"])) for part in report.differences}
    expected = {(DifferenceKind.VALUE, 2 * index - 3000) for index in wrong}
    expected |= {
        (DifferenceKind.EXTRA, -9000),
        (DifferenceKind.EXTRA, 9000),
        (DifferenceKind.DUPLICATE, 77 * 2 - 3000),
    }
    assert keys == expected


def test_columns_that_only_one_side_has(scene: Scene) -> None:
    scene.sql(
        "CREATE TABLE drift (id INT PRIMARY KEY, kept INT, added INT NULL)",
        "INSERT INTO drift VALUES (1, 1, NULL), (2, 2, 5)",
    )
    sinks.caught_up(scene.connection, scene.server.flavour, scene.settings, f"{scene.database}.drift")
    columns = {
        "id": pa.array([1, 2], pa.int32()),
        "kept": pa.array([1, 2], pa.int32()),
        "dropped": ["x", "y"],
    }
    sinks.write_table(
        scene.settings, scene.database, "drift", pa.table(columns | {"_tm_position": [OLD] * 2})
    )
    report = only(verify(scene.settings))
    assert report.sink_only_columns == ("dropped",)
    assert report.absent_columns == ("added",)
    (difference,) = report.differences
    assert (difference.key, difference.columns[0].column, difference.columns[0].sink) == (
        {"id": "2"},
        "added",
        "NULL",
    )


def test_a_table_that_cannot_be_compared_is_not_ok_and_says_why(scene: Scene) -> None:
    scene.sql(
        "CREATE TABLE no_sink (id INT PRIMARY KEY)",
        "CREATE TABLE no_key (id INT)",
        "CREATE TABLE odd_type (id INT PRIMARY KEY, v VARCHAR(5))",
        "CREATE TABLE behind (id INT PRIMARY KEY)",
        "INSERT INTO behind VALUES (1)",
    )
    position = {"_tm_position": pa.array([], pa.string())}
    ids = {"id": pa.array([], pa.int32())}
    sinks.write_table(scene.settings, scene.database, "no_key", pa.table(ids | position))
    sinks.write_table(
        scene.settings, scene.database, "odd_type", pa.table(ids | {"v": pa.array([], pa.int32())} | position)
    )
    sinks.write_table(scene.settings, scene.database, "behind", pa.table(ids | position))
    sinks.write_table(scene.settings, scene.database, "gone", pa.table({"id": [1], "_tm_position": [OLD]}))
    sinks.write_progress(
        scene.settings, {f"{scene.database}.behind": {"applied_position": OLD, "change_offsets": {}}}
    )
    report = verify(scene.settings, patience_s=0.5)
    reasons = {table.table.split(".")[1]: table.not_compared or "" for table in report.tables}
    assert not report.ok
    assert "there is no Delta table" in reasons["no_sink"]
    assert "add a primary key" in reasons["no_key"]
    assert "column v: VARCHAR of the source needs string in the sink, which has int32" in reasons["odd_type"]
    assert f"the sink is behind: at {OLD}, wanted" in reasons["behind"]
    assert "1 rows differed as read" in reasons["behind"]
    assert "the source has no such table, the sink still holds 1 rows" in reasons["gone"]
    assert not verify(scene.settings, tables=[r".*\.no_sink"]).ok


def test_a_table_without_a_key_and_without_a_mirror_is_named_and_fails_nothing(scene: Scene) -> None:
    scene.sql("CREATE TABLE no_mirror (id INT)", "INSERT INTO no_mirror VALUES (1)", "CREATE TABLE t (id INT PRIMARY KEY)")
    empty = pa.table({"id": pa.array([], pa.int32()), "_tm_position": pa.array([], pa.string())})
    sinks.write_table(scene.settings, scene.database, "t", empty)
    report = verify(scene.settings, tables=[r".*\.(no_mirror|t)"], patience_s=0.5)
    found = {table.table.split(".")[1]: (table.verdict, table.left_out) for table in report.tables}
    assert found["t"] == ("equal", None)
    assert found["no_mirror"][0] == "no mirror"
    assert "add a primary key" in str(found["no_mirror"][1])
    assert report.ok
    assert "no_mirror: has no mirror: it has no primary key" in report.to_text()
    assert "source equals sink: 1 tables" in report.to_text()
    assert not verify(scene.settings, tables=[r".*\.no_mirror"]).ok, "nothing was compared"


def test_rows_in_a_partition_that_is_not_the_one_of_their_key_are_missing_in_the_sink(scene: Scene) -> None:
    scene.sql(
        "CREATE TABLE parts (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id)"
        " (PARTITION p0 VALUES LESS THAN (1000), PARTITION p1 VALUES LESS THAN MAXVALUE)",
        "CREATE TABLE aside (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO aside VALUES {', '.join(f'({number}, 1)' for number in range(1, 900))}, (5000, 1), (5001, 1)",
        "INSERT INTO parts VALUES (2000, 1)",
        "ALTER TABLE parts EXCHANGE PARTITION p0 WITH TABLE aside WITHOUT VALIDATION",
        "DROP TABLE aside",
    )
    sinks.caught_up(scene.connection, scene.server.flavour, scene.settings, f"{scene.database}.parts")
    right = [*range(1, 900), 2000, 5000, 5001]

    def verified(ids: list[int]) -> VerifyReport:
        rows = pa.table({"id": pa.array(ids, pa.int32()), "v": pa.array([1] * len(ids), pa.int32()), "_tm_position": [OLD] * len(ids)})
        sinks.write_table(scene.settings, scene.database, "parts", rows)
        return verify(scene.settings, patience_s=1.0)

    report = verified(right[:-2])
    assert (only(report).source_rows, only(report).sink_rows) == (902, 900)
    assert {part.key["id"]: part.kind for part in only(report).differences} == dict.fromkeys(("5000", "5001"), DifferenceKind.MISSING)
    assert "EXCHANGE PARTITION" in report.to_text()
    assert verified(right).ok


@pytest.mark.parametrize("scene", ["mysql80"], indirect=True)  # the MariaDB servers of the tests come without BLACKHOLE
def test_a_table_whose_engine_keeps_no_rows_is_named_and_fails_nothing(scene: Scene) -> None:
    scene.sql("CREATE TABLE hole (id INT PRIMARY KEY) ENGINE=BLACKHOLE", "CREATE TABLE t (id INT PRIMARY KEY)")
    sinks.write_table(scene.settings, scene.database, "hole", pa.table({"id": pa.array([1], pa.int32()), "_tm_position": [OLD]}))
    sinks.write_table(scene.settings, scene.database, "t", pa.table({"id": pa.array([], pa.int32()), "_tm_position": pa.array([], pa.string())}))
    report = verify(scene.settings)
    assert report.ok, report.to_text()
    assert "hole: has no mirror: its engine BLACKHOLE keeps no rows" in report.to_text()


def test_counts_that_contradict_a_verdict_are_no_verdict() -> None:
    for source, sink, suspects, is_ok in ((903, 901, 0, False), (901, 903, 1, False), (903, 901, 2, True), (3, 3, 0, True)):
        report = without_contradiction(TableReport(table="t", source_rows=source, sink_rows=sink, suspects=suspects))
        assert report.ok == is_ok
        assert is_ok or f"{source} rows were counted in the source and {sink} in the sink" in (report.not_compared or "")


def test_a_child_that_foreign_keys_change_in_silence_may_only_be_late(scene: Scene) -> None:
    """Its position in the sink says nothing of changes that are in no log."""
    scene.sql("CREATE TABLE p (id INT PRIMARY KEY)", "INSERT INTO p VALUES (1)")
    for name, rule in (("followed", "ON DELETE CASCADE"), ("checked", "ON DELETE RESTRICT")):
        scene.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) {rule})")
        rows = {"id": pa.array([1], pa.int32()), "p": pa.array([1], pa.int32()), "_tm_position": [OLD]}
        sinks.write_table(scene.settings, scene.database, name, pa.table(rows))
    names = [f"{scene.database}.{name}" for name in ("followed", "checked")]
    sinks.caught_up(scene.connection, scene.server.flavour, scene.settings, *names)
    known = json.loads(Path(scene.settings.sink.progress_path).read_text(encoding="utf-8"))["tables"]
    sinks.write_progress(scene.settings, {name: entry | {"consistent_at": OLD} for name, entry in known.items()})
    report = verify(scene.settings, tables=[r".*\.(followed|checked)"])
    notes = {table.table.split(".")[1]: (table.differing, table.note) for table in report.tables}
    assert notes["checked"] == (1, None)
    assert notes["followed"][0] == 1
    assert "were only late" in str(notes["followed"][1])


def test_tables_in_folders_of_other_names_are_there_and_what_is_ours_is_none(scene: Scene) -> None:
    """`$` and the like are written otherwise in names of folders; a pattern may be as wide as `.*`."""
    position = {"_tm_position": pa.array([OLD], pa.string())}
    for name in ("a$b", "ü c", "left$"):
        sinks.write_table(scene.settings, scene.database, name, pa.table({"id": pa.array([1], pa.int32())} | position))
    for name in ("a$b", "ü c"):
        scene.sql(f"CREATE TABLE `{name}` (id INT PRIMARY KEY)", f"INSERT INTO `{name}` VALUES (1)")
    write_deltalake(f"{scene.settings.sink.service_path}/quarantine", pa.table({"topic": ["t"]}))
    wide = replace(scene.settings.source, tables=(*scene.settings.source.tables, r"_tidemark\..*"))
    report = verify(replace(scene.settings, source=wide), patience_s=0.5)
    assert {table.table.removeprefix(f"{scene.database}."): table.not_compared for table in report.tables} == {
        "a$b": None,
        "ü c": None,
        "left$": "the source has no such table, the sink still holds 1 rows",
    }


def test_a_log_that_becomes_another_one_meanwhile_shows_no_difference(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a failover the sink is past every position of the old epoch, and need not hold what the new server has."""
    scene.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 2)")
    row = {"id": pa.array([1], pa.int32()), "v": pa.array([1], pa.int32()), "_tm_position": [OLD]}
    sinks.write_table(scene.settings, scene.database, "t", pa.table(row))

    def applied(position: str) -> None:
        entry = {"applied_position": position, "change_offsets": {}, "consistent_at": OLD}
        sinks.write_progress(scene.settings, {f"{scene.database}.t": entry})

    waits = Judge._wait_for

    def promoted(judge: Judge, wanted: Position) -> Any:
        """The source was read already."""
        applied(Position(sinks.EPOCH + 1, 1, 4).text)
        return waits(judge, wanted)

    applied(OLD)
    monkeypatch.setattr(Judge, "_wait_for", promoted)
    report = verify(scene.settings)
    assert (only(report).differing, report.ok) == (0, False)
    assert "its log became another one" in (only(report).not_compared or "")


def test_no_table_chosen_is_an_error(scene: Scene) -> None:
    with pytest.raises(ConfigError, match="no captured table to verify"):
        verify(scene.settings, tables=["nothing"])
