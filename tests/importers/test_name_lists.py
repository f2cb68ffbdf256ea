"""Lists of names: our settings choose the tables, the columns and the masks that Debezium itself has chosen for random lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from schemas.applied.shape import shaped
from schemas.columns import Column, ColumnType, TableSchema
from schemas.errors import ConfigError
from schemas.settings import Settings, from_mapping
from tests.importers.name_list_cases import COLUMNS, names_of_tables, random_connectors, recorded
from tidemark.importers.debezium import translate

_CONNECTOR: Final = {
    "topic.prefix": "p", "database.hostname": "h", "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "snapshot.mode": "no_data",
}  # fmt: skip
_KINDS: Final = {"TruncateColumn": "truncate", "MaskStrings": "hidden"}
_COLUMNS: Final = tuple(Column(name, ColumnType.VARCHAR, nullable=True, length=100, charset="utf8mb4") for name in COLUMNS)


def imported(properties: dict[str, str]) -> Settings:
    return from_mapping(translate(_CONNECTOR | properties).settings)


def outcome(settings: Settings) -> dict[str, str]:
    """What becomes of each table and column: `clear`, `truncate`, `hidden`, or nothing for one that is not published."""
    found: dict[str, str] = {}
    for database, table in names_of_tables():
        if not settings.source.captures(database, table):
            continue
        schema = shaped(TableSchema(database, table, _COLUMNS), settings.records)
        found[schema.full_name] = "captured"
        for column in COLUMNS:
            if column not in schema.dropped:
                mask = schema.mask_of(column)
                kind = "clear" if mask is None else "truncate" if mask.kind == "truncate" else "hidden"
                found[f"{schema.full_name}.{column}"] = kind
    return found


def of_debezium(answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The same by Debezium's answer; columns that it hashes the old way are left out here, and are `hidden` there."""
    tables, columns = _bits(answer["tables"], len(names_of_tables())), _bits(answer["columns"], len(names_of_tables()) * len(COLUMNS))
    masks = {kind: _bits(text, len(columns)) for kind, text in answer["masked"].items()}
    for at, (database, table) in enumerate(names_of_tables()):
        if tables[at]:
            yield f"{database}.{table}", "captured"
            for number, column in enumerate(COLUMNS, at * len(COLUMNS)):
                if columns[number]:
                    kind = next((_KINDS[kind] for kind, bits in masks.items() if bits[number]), "clear")
                    yield f"{database}.{table}.{column}", kind


def _bits(text: str, width: int) -> list[bool]:
    return [digit == "1" for digit in f"{int(text, 16):0{width}b}"]


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_random_lists_choose_what_debezium_chose(step: int) -> None:
    assert [properties for properties, _ in recorded()] == random_connectors(), "run: python -m tests.importers.record_name_lists"
    differing: list[str] = []
    for properties, answer in recorded()[::step]:
        if "error" in answer:
            with pytest.raises(ConfigError, match="no regular expression"):
                imported(properties)
            continue
        ours, theirs = outcome(imported(properties)), dict(of_debezium(answer))
        for name in theirs.keys() & ours.keys():  # Debezium matches its masks with `null.<column>` as well, by mistake
            if name.rpartition(".")[2] in answer["nulls"]:
                theirs[name] = ours[name]
        # What Debezium masks may be left out, if it hashes the old way; it is never in clear.
        left_out = {name for name in theirs.keys() - ours.keys() if theirs[name] == "hidden"}
        old = any(name.startswith("column.mask.hash.SHA") for name in properties)
        expected = {name: kind for name, kind in theirs.items() if not (old and name in left_out)}
        if ours != expected:
            wrong = sorted({name for name in ours.keys() | expected.keys() if ours.get(name) != expected.get(name)})[:4]
            differing.append(f"{properties}: {[(name, expected.get(name), ours.get(name)) for name in wrong]}")
    assert differing == []


def test_alternatives_stay_within_their_pattern() -> None:
    """The example of an outsider: the second alternative, and the database that is left out, were published in clear."""
    settings = imported(
        {
            "database.exclude.list": "app_99",
            "table.include.list": r"app_[0-9]+\.orders|app_[0-9]+\.items",
            "column.include.list": r"app_[0-9]+\.orders\..*|app_[0-9]+\.items\..*",
            "column.mask.hash.SHA-256.with.salt.abc": r"app_[0-9]+\.items\.secret",
        }
    )
    found = outcome(settings)
    assert {name.lower() for name in found if found[name] == "captured"} == {"app_1.items", "app_1.orders", "app_2.items", "app_2.orders"}
    assert "app_1.items.note" in found
    assert "app_1.items.secret" not in found


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (r"shop\.a\,b", ["shop.a,b"], ["shop.a", "b"]),
        (r"\Qshop.a\E|shop\.b", ["shop.a", "shop.b"], ["shopxa"]),
        (r"shop\.(a|b){1\,2},crm\..*", ["shop.ab", "crm.x"], ["shop.abc"]),
        (r"shop\.[(],shop\.[)]", ["shop.(", "shop.)"], ["shop.x"]),
    ],
)
def test_lists_divide_where_debezium_divides_them(text: str, inside: list[str], outside: list[str]) -> None:
    source = imported({"table.include.list": text}).source
    assert [name for name in inside if not source.captures(*name.split(".", 1))] == []
    assert [name for name in outside if source.captures(*name.split(".", 1) if "." in name else (name, ""))] == []


def test_a_comma_in_brackets_is_reported_since_debezium_divides_there() -> None:
    translation = translate(_CONNECTOR | {"table.include.list": r"shop\.t{1,2},shop\.u"})
    assert from_mapping(translation.settings).source.captures("shop", "tt")
    assert any(finding.name == "table.include.list" and "\\," in finding.what for finding in translation.findings)


@pytest.mark.parametrize("name", ["table.include.list", "table.exclude.list", "column.exclude.list", "column.mask.with.4.chars"])
@pytest.mark.parametrize("text", ["*.orders", r"shop\.(a", r"shop\.\p{IsLatin}+", "(?x) a b", ",", " , "])
def test_a_list_that_cannot_be_read_is_refused_by_its_name(name: str, text: str) -> None:
    if text.strip(" ,"):
        with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
            imported({name: text})
    elif "include" in name:
        with pytest.raises(ConfigError, match="names nothing"):
            imported({name: text})


def test_a_dot_in_the_name_of_a_database_keeps_it_out_of_the_lists_of_others() -> None:
    source = imported({"database.exclude.list": r".*secret,my\.db"}).source
    assert [source.captures(*name) for name in (("my.secret", "t"), ("my.db", "t"), ("my", "t"))] == [False, False, True]
    source = imported({"database.include.list": r"sh.*,my\.db"}).source
    assert [source.captures(*name) for name in (("shop", "t.x"), ("my.db", "t"), ("sh", "x"))] == [True, True, True]
