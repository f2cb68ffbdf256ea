"""`order.group`: settings that it excludes, and that a table which cannot be published then stops the producer."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import ConfigError
from schemas.settings import from_mapping

SOURCE = {"name": "shop", "source": {"tables": [r"shop\..*"]}}
AVRO = {"registry": "http://registry:8081"}


def test_sources_in_an_order_publish_whole_rows_in_avro() -> None:
    settings = from_mapping({**SOURCE, "format": AVRO, "order": {"group": "shops"}})
    assert (settings.order.group, settings.order.heartbeat_ms) == ("shops", 1_000)


def test_sources_in_an_order_publish_truncates_and_hear_signals_from_kafka() -> None:
    ordered = from_mapping({**SOURCE, "format": AVRO, "order": {"group": "shops"}})
    assert not ordered.records.skips("t")
    assert ordered.signal.channels == ("source", "kafka")
    alone = from_mapping({**SOURCE, "format": AVRO})
    assert alone.records.skips("t")
    assert alone.signal.channels == ("source",)


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"format": {}}, "order.group: format.type is json"),
        ({"records": {"unwrap": True}}, "order.group: records.unwrap"),
        ({"records": {"column_exclude_list": [r"shop\.a\.b"]}}, "leave out columns"),
        ({"records": {"column_include_list": [r"shop\.a\.b"]}}, "leave out columns"),
        ({"records": {"column_mask_with_chars": [{"chars": 3, "columns": ["shop.a.b"]}]}}, "other values"),
        ({"records": {"column_truncate_to_chars": [{"chars": 3, "columns": ["shop.a.b"]}]}}, "other values"),
        ({"records": {"skipped_operations": ["t", "d"]}}, "without d a target does not follow"),
        ({"records": {"include_schema_changes": False}}, "records.include_schema_changes"),
        ({"order": {"group": "no/topic"}}, "order.group: 'no/topic' cannot begin a topic's name"),
        ({"order": {"group": "shops", "heartbeat_ms": 10}}, "order.heartbeat_ms: 10 is below"),
    ],
)
def test_rows_that_are_not_whole_cannot_be_ordered(sections: dict[str, Any], reason: str) -> None:
    settings: dict[str, Any] = {**SOURCE, "format": AVRO, "order": {"group": "shops"}, **sections}
    with pytest.raises(ConfigError, match=reason.replace("(", r"\(")):
        from_mapping(settings)
    if "order" not in sections:
        from_mapping({**settings, "order": {}})


@pytest.mark.parametrize(("group", "choice", "is_set_aside"), [(None, "set_aside", True), (None, "stop", False), ("g", "set_aside", False)])
def test_in_an_order_no_table_is_set_aside(group: str | None, choice: str, is_set_aside: bool) -> None:
    settings = from_mapping({**SOURCE, "format": AVRO, "order": {"group": group}, "on_table_error": choice})
    assert settings.sets_tables_aside == is_set_aside
