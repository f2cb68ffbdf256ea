"""What the column options make of a table."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.applied.shape import shaped
from schemas.columns import Column, ColumnType, Mask, TableSchema
from schemas.errors import ConfigError
from schemas.settings import RecordSettings, from_mapping

TABLE = TableSchema(
    "shop",
    "users",
    (
        Column("id", ColumnType.INT, nullable=False),
        Column("Name", ColumnType.VARCHAR, nullable=True, length=20, charset="utf8mb4"),
        Column("mail", ColumnType.TEXT, nullable=True, charset="utf8mb4"),
    ),
    ("id",),
)


def options(**records: Any) -> RecordSettings:
    return from_mapping({"name": "p", "source": {"tables": ["x"]}, "records": records}).records


def refusal(table: TableSchema = TABLE, **records: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        shaped(table, options(**records))
    return str(caught.value)


def test_a_table_without_options_is_itself() -> None:
    assert shaped(TABLE, options()) is TABLE


def test_columns_are_included_or_excluded_whole_names_only_upper_and_lower_case_alike() -> None:
    assert shaped(TABLE, options(column_exclude_list=[r"shop\.users\.name"])).dropped == {"Name"}
    assert shaped(TABLE, options(column_exclude_list=[r"shop\.users\.nam"])).dropped == frozenset()
    assert shaped(TABLE, options(column_include_list=[r".*\.ID", r".*\.mail"])).dropped == {"Name"}
    assert shaped(TABLE, options(column_include_list=[r"shop\.other\..*"])).dropped == {"id", "Name", "mail"}


def test_a_key_is_chosen_by_pattern_with_the_columns_in_the_order_given() -> None:
    table = shaped(TABLE, options(message_key_columns={r"shop\.USERS": "mail, name"}))
    assert table.record_key == ("mail", "Name")
    assert shaped(TABLE, options(message_key_columns={"shop.other": "x"})).record_key == ("id",)
    assert "shop.users has no column nick" in refusal(message_key_columns={r"shop\..*": "nick"})


def test_masks_name_column_and_kind() -> None:
    table = shaped(
        TABLE,
        options(
            column_mask_hash_v2=[{"salt": "abc", "columns": [r".*\.name"]}],
            column_truncate_to_chars=[{"chars": 5, "columns": [r".*\.mail"]}],
        ),
    )
    assert table.mask_of("Name") == Mask("hash", algorithm="SHA-256", salt="abc")
    assert table.mask_of("mail") == Mask("truncate", 5)
    assert table.mask_of("id") is None


def test_what_cannot_be_masked_is_refused() -> None:
    stars = [{"chars": 3, "columns": [r".*\.id"]}]
    assert "shop.users.id is int, only texts can be masked" in refusal(column_mask_with_chars=stars)
    name = [{"chars": 3, "columns": [r".*\.name"]}]
    assert "is masked by records.column_mask_with_chars already" in refusal(
        column_mask_with_chars=name, column_truncate_to_chars=name
    )
    assert "different rows would get one key" in refusal(
        column_mask_with_chars=name, message_key_columns={r"shop\.users": "name"}
    )


def test_a_column_left_out_needs_no_mask_unless_it_is_in_the_key() -> None:
    left_out: dict[str, Any] = {"column_exclude_list": [r".*\.name"]}
    hashed = {"column_mask_hash_v2": [{"salt": "abc", "columns": [r".*\.name"]}]}
    assert shaped(TABLE, options(**left_out, **hashed)).masks == ()
    chosen = shaped(TABLE, options(**left_out, **hashed, message_key_columns={r".*": "name"}))
    assert [name for name, _ in chosen.masks] == ["Name"]


def test_a_salt_is_never_shown() -> None:
    assert "pepper" not in repr(options(column_mask_hash_v2=[{"salt": "pepper", "columns": ["x"]}]))
