"""Record options that leave no exact mirror: the merge job refuses them when it starts."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import ConfigError
from schemas.settings import Settings, from_mapping
from spark_jobs.jobs.merge_job import require_supported
from tidemark.verify import verify


def settings(**records: Any) -> Settings:
    return from_mapping(
        {
            "name": "shop",
            "source": {"tables": ["shop\\..*"]},
            "format": {"type": "avro", "registry": "http://registry:8080"},
            "sinks": [{"path": "/data/lake"}],
            "records": records,
        }
    )


def start(**records: Any) -> None:
    require_supported(settings(**records))


@pytest.mark.parametrize("op", ["c", "u", "d"])
def test_a_mirror_needs_every_change_of_rows(op: str) -> None:
    with pytest.raises(ConfigError, match=f"records.skipped_operations: without {op} "):
        start(skipped_operations=[op])


def test_a_mirror_needs_the_keys_of_the_tables() -> None:
    with pytest.raises(ConfigError, match=r"records\.message_key_columns: a chosen key"):
        start(message_key_columns={"shop.t": "a"})


def test_flat_rows_have_no_position() -> None:
    with pytest.raises(ConfigError, match=r"records\.unwrap: flat rows have no position"):
        start(unwrap=True)


def test_verify_compares_whole_rows_only() -> None:
    for records in (
        {"column_exclude_list": ["shop.t.a"]},
        {"column_truncate_to_chars": [{"chars": 5, "columns": ["shop.t.a"]}]},
    ):
        with pytest.raises(ConfigError, match="verify compares whole rows only"):
            verify(settings(**records))


def test_options_that_keep_the_mirror_exact_are_served() -> None:
    start(tombstones=False, skipped_operations=["none"], skip_messages_without_change=True)
    start(provide_transaction_metadata=True, heartbeat_interval_ms=1000, include_query=True)
    start(column_exclude_list=["shop.t.a"])
