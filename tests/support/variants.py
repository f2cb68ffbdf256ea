"""Tests that prove again what another test proves: on another server, with another writer, or as a whole of proven parts.

`make test` leaves them out, as those marked slow where they are written; `make test-all` runs them. A pattern is matched with the
beginning of a test's name below `tests/`, and says what remains in `make test`.
"""

from __future__ import annotations

import re
from typing import Final

import pytest

VARIANTS: Final = (
    (r"sinks/test_kafka_mirror\.py::TestKafkaMirror::test_a_(random_history|batch_that_died.*\[recorded\])", "merge/test_mirrored_topics"),
    (r"merge/test_record_columns\.py::test_a_row_has_the_op.*\[by Spark\]", "by workers; soft_delete is read by Spark in merge/test_soft_delete"),
    (r"e2e/test_topic_names", "schemas/test_topics; e2e/test_hostile_names"),
    (r"sinks/test_mixed_writers\.py::test_(the_jvm_with|a_put_that)", "merge/test_grouped_tables (what workers decline)"),
    (r"merge/test_changelog_files\.py::test_a_changelog_folded.*\[parquet\]", "merge/test_changelog_kafka, the crash points of sinks' TestFiles"),
    (r"binlog/test_charsets\.py::test_every_code.*\[mariadb114\]", "mysql80; codec/test_the_server_is_the_oracle on MariaDB"),
    (r"integration/test_without_gtids\.py::test_a_chunked_snapshot.*\[(mysql57-.*|mysql80-producer)\]", "mysql80-spark"),
    (r"integration/test_read_only\.py::test_a_source_that_is_only_read_gives.*\[.*-spark\]", "-producer"),
    (r"integration/test_watermark_race\.py::.*\[mysql57\]", "mysql80"),
    (r"codec/test_damaged_bytes\.py::.*\[mariadb114\]", "mysql80"),
    (r"e2e/test_loaded_by_the_merge_job", "merge/test_merge_loads, integration/test_loaded_tables"),
    (r"e2e/test_evolution", "merge/test_evolution"),
    (r"e2e/test_merged_by_the_producer", "integration/test_producer_merge"),
    (r"e2e/test_cascades", "integration/test_cascades, merge/test_spark_model (sweeps)"),
    (r"e2e/test_registry_lost", "merge/test_given_schemas, merge/test_left_out"),
    (r"e2e/test_many_sinks", "merge/test_merge_jobs; e2e/test_routed_sink kills a merge job"),
    (r"e2e/test_operations\.py::test_rows_that_a_ddl_changed", "integration/test_schema_changes"),
    (r"integration/test_(cascades|logs_without_names|set_aside|read_only|watermark_race|one_view)\.py::.*mariadb", "the same on MySQL"),
    (r"snapshot/(?!test_coordinator).*mariadb", "the same on MySQL, snapshot/test_coordinator on MariaDB"),
    (r"merge/test_evolution\.py::test_a_table_that_had_no_datetime_takes_one\[an older version", "those of this version"),
    (r"merge/test_evolution\.py::test_a_table_that_had_no_datetime_takes_one\[this version-added ", "this version-added"),
    (r"merge/test_put_back\.py::.*(copied_back|overwritten)\]", "restored, replaced"),
    (r"merge/test_merge_loads\.py::test_wherever_the_job_dies.*\[(loaded|answered|published)\]", "merged, saved"),
    (r"merge/test_quarantine\.py::test_a_row_that_a_parent_may_have_taken", "the sweeps of merge/test_spark_model"),
    (r"merge/test_spark_model\.py::test_late_rows.*\[None-jvm\]", "None-auto"),
    (r"merge/test_grouped_tables\.py::test_(killed_after_the_commit_of_the_jvm|with_the_writer_of_the_jvm)", "the other kills there"),
    (r"merge/test_set_aside\.py::.*\[snapshots\]", "changes"),
    (r"sinks/test_delta_sink\.py::TestDelta::test_a_batch_that_is_repeated.*\[after (quarantine|evolve|sweep)\]", "after put"),
    (r"sinks/test_delta_sink\.py::TestDeltaByArrow::test_a_batch_that_is_repeated.*\[after (quarantine|evolve)\]", "after put, after sweep"),
    (r"sinks/test_relational_sinks\.py::TestPostgres::test_a_batch_that_is_repeated.*\[after (evolve|commit)\]", "before sweep"),
    (r"sinks/test_relational_sinks\.py::TestPostgres::test_a_target_that_was_put_back.*while the job runs\]", "at the start"),
    (
        (r"sinks/test_relational_sinks\.py::TestPostgres::test_(a_column_is_filled_with|a_column_that_one_table|a_floor_marks|a_key_that|"
        r"a_narrower_type|a_record_is_quarantined|a_write_between|no_rows_at_all|rows_of_several_tables|rows_whose_keys|the_states_of|"
        r"values_of_a_range|what_others_do)"),
        "the other tests of TestPostgres; in memory and in Delta",
    ),
)  # fmt: skip
"""What matches, and what proves it in `make test`."""

_PATTERNS: Final = tuple(re.compile(f"tests/{pattern}") for pattern, _ in VARIANTS)


def matched(nodeid: str) -> list[int]:
    """Return the numbers of the patterns that a test's name matches."""
    return [number for number, pattern in enumerate(_PATTERNS) if pattern.match(nodeid)]


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark variants as slow. A pattern that matches no test of a whole run is an error: what it meant has another name now."""
    used: set[int] = set()
    for item in items:
        found = matched(item.nodeid)
        used.update(found)
        if found:
            item.add_marker(pytest.mark.slow)
    if config.args == config.getini("testpaths"):
        for number, (pattern, _) in enumerate(VARIANTS):
            if number not in used:
                message = f"tests/support/variants.py: no test matches {pattern!r}"
                raise pytest.UsageError(message)
