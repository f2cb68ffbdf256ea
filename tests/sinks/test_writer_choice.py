"""The choice between two writers that give the same rows: costs decide, and what delta-rs cannot write is never given to it."""

from __future__ import annotations

import pytest

from spark_jobs.sinks.delta.writer_choice import WriterName, WriterSetting, chosen_writer

ROOM = 2**30


@pytest.mark.parametrize(
    ("batch", "touched", "memory", "writer"),
    [
        (2, 3, ROOM, "arrow"),
        (250_000, 1_000_000, ROOM, "arrow"),
        (1_000_000, 5_000_000, ROOM, "arrow"),
        (100, 20_000_000, ROOM, "jvm"),
        (250_000, 1_000_000, 2**20, "jvm"),
    ],
)
def test_the_cheaper_writer_is_chosen_where_memory_allows_it(batch: int, touched: int, memory: int, writer: WriterName) -> None:
    assert chosen_writer(batch, touched, None, memory) == writer


@pytest.mark.parametrize("forced", ["auto", "arrow", "jvm"])
def test_a_table_that_delta_rs_cannot_write_is_the_jvms_whatever_the_setting(forced: WriterSetting) -> None:
    assert chosen_writer(2, 3, "it has partition columns", ROOM, forced) == "jvm"


def test_a_setting_forces_a_writer_whatever_it_costs() -> None:
    assert chosen_writer(100, 20_000_000, None, 0, "arrow") == "arrow"
    assert chosen_writer(2, 3, None, ROOM, "jvm") == "jvm"
