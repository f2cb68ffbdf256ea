"""Record options that leave no exact mirror: the merge job refuses them when it starts."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import ConfigError
from schemas.settings import from_mapping
from spark_jobs.job import require_supported


def start(**records: Any) -> None:
    require_supported(
        from_mapping(
            {
                "name": "shop",
                "source": {"tables": ["shop\\..*"]},
                "format": {"type": "avro", "registry": "http://registry:8080"},
                "sinks": [{"path": "/data/lake"}],
                "records": records,
            }
        )
    )


@pytest.mark.parametrize("op", ["c", "u", "d"])
def test_a_mirror_needs_every_change_of_rows(op: str) -> None:
    with pytest.raises(ConfigError, match=f"records.skipped_operations: without {op} "):
        start(skipped_operations=[op])


def test_options_that_keep_the_mirror_exact_are_served() -> None:
    start(tombstones=False, skipped_operations=["none"], skip_messages_without_change=True)
