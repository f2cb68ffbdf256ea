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
    (r"e2e/test_topic_names", "schemas/test_topics"),
    (r"sinks/test_mixed_writers\.py::test_(the_jvm_with|a_put_that)", "sinks/test_writer_choice; merge/test_tables_by_workers"),
    (r"merge/test_changelog_files\.py::test_a_changelog_folded.*\[parquet\]", "merge/test_changelog_kafka, the crash points of sinks' TestFiles"),
    (r"integration/test_read_only\.py::test_a_source_that_is_only_read_gives.*\[.*-spark\]", "-producer"),
    (r"integration/test_watermark_race\.py::.*\[mysql57\]", "mysql80"),
    (r"e2e/test_loaded_by_the_merge_job", "merge/test_merge_loads, integration/test_loaded_tables"),
    (r"e2e/test_evolution", "merge/test_evolution"),
    (r"e2e/test_merged_by_the_producer", "integration/test_producer_merge"),
    (r"e2e/test_cascades", "integration/test_cascades, merge/test_spark_model (sweeps)"),
    (r"e2e/test_registry_lost", "merge/test_given_schemas, merge/test_left_out"),
    (r"e2e/test_many_sinks", "merge/test_merge_jobs; e2e/test_crashes kills a merge job"),
    (r"e2e/test_operations\.py::test_rows_that_a_ddl_changed", "integration/test_schema_changes"),
    (r"integration/test_(cascades|logs_without_names|set_aside|read_only|watermark_race|one_view)\.py::.*mariadb", "the same on MySQL"),
    (r"snapshot/(?!test_coordinator).*\[[^]]*mariadb", "the same on MySQL; windows, bounds and reports in snapshot/test_coordinator on MariaDB"),
    (r"merge/test_evolution\.py::test_a_table_that_had_no_datetime_takes_one\[an older version", "those of this version"),
    (r"merge/test_evolution\.py::test_a_table_that_had_no_datetime_takes_one\[this version-added ", "this version-added"),
    (r"merge/test_put_back\.py::.*(copied_back|overwritten)\]", "replaced; put back in sinks/test_delta_sink"),
    (r"merge/test_merge_loads\.py::test_wherever_the_job_dies.*\[(loaded|answered|published)\]", "saved; with its rows merged"),
    (r"merge/test_quarantine\.py::test_a_row_that_a_parent_may_have_taken", "the sweeps of merge/test_spark_model"),
    (r"merge/test_spark_model\.py::test_late_rows.*\[None-jvm\]", "test_late_rows_stay_away"),
    (r"merge/test_tables_by_workers\.py::test_(killed_after_the_commit_of_the_jvm|with_the_writer_of_the_jvm)", "the other kills there"),
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
    (r"e2e/test_routed_sink", "merge/test_routed_merge, verify/test_routed_verify; e2e/test_crashes kills a merge job"),
    (r"integration/test_producer_merge\.py::test_killed_again", "the other tests there; e2e/test_crashes kills a producer"),
    (r"e2e/test_silent_peers\.py::test_a_broker_that_freezes", "the other tests there, kafka/test_publisher"),
    (r"integration/test_flink\.py::test_flink_computes_the_tables_from_their_changes", "from a snapshot amid their changes"),
    (r"merge/test_load_histories", "merge/test_merge_loads, snapshot/test_load_windows"),
    (r"merge/test_spark_model\.py::test_a_history_ends.*\[auto-4-producer-0\]", "auto-5-spark-0.04"),
    (r"binlog/test_charsets\.py::test_every_code", "codec/test_the_server_is_the_oracle: every character set that the server lists"),
    (r"merge/test_left_out\.py::test_a_(snapshot_that_began_after|registry_that_lost)", "merge/test_merge_rule; the other tests there"),
    (r"codec/test_the_server_is_the_oracle\.py::test_binlog_chunk_and_select.*random_tables\[mariadb", "mysql80-mysql"),
    (r"integration/test_reload\.py::test_killed_before_and_after_a_reload", "the other tests there"),
    (r"devservers/test_servers\.py::test_(kafka_keeps_a_transaction|a_lost_port)", "all tests use these servers"),
    (r"e2e/test_operations\.py::test_a_merge_job_whose_jvm_is_ended.*\[True\]", "False"),
    (r"merge/test_tables_by_workers\.py::test_what_workers_decline", "sinks/test_writer_choice; the other tests there"),
    (r"integration/test_without_gtids\.py::test_a_chunked_snapshot", "integration/test_read_only, what GTIDs forbid"),
    (r"integration/test_without_gtids\.py::test_(all_that_gtids_forbid|another_log_of).*\[mysql57\]", "mysql80"),
    (r"merge/test_soft_delete\.py::test_rows_that_are_deleted_stay", "the other test there; sinks/test_delta_sink"),
    (r"merge/test_changelog_files\.py::test_a_change_on_which_an_expression_fails", "merge/test_routed_merge, merge/test_changelog_kafka"),
    (r"cli/test_standby_election\.py::test_a_password_of_kafka_that_is_rotated", "kafka/test_publisher has it for a producer"),
    (r"merge/test_meddling\.py::test_who_compacts.*\[compact-OPTIMIZE\]", "the others who compact"),
    (r"merge/test_quarantine\.py::test_(what_somebody_else_changes|a_row_among_the_changes|records_that_kafka_no_longer)", "retried records"),
    (r"integration/test_watermark_race\.py::test_a_bare_position", "the largest key there, and the barrier taken out"),
    (r"merge/test_set_aside\.py::test_(topics_that_were_created_again|a_column_with_the_sinks)", "created again between two attempts"),
    (r"sinks/test_mixed_writers\.py::test_verify_reads", "tests/verify"),
    (r"integration/test_torn_log\.py::test_what_was_prepared.*\[inside an event\]", "the other places"),
    (r"snapshot/test_planning_cost\.py::.*dense", "the other tables"),
    (r"integration/test_compare_prefixes\.py::test_two_producers_of_one_server_agree\[(json|schemas)\]", "avro"),
    (r"kafka/test_state_topic\.py::test_ends_of_topics_whose_leader", "the other tests there"),
    (r"merge/test_put_back\.py::.*\[between_two_runs-restored\]", "while it runs: replaced; put back in sinks/test_delta_sink"),
    (r"verify/test_moving\.py::.*read only\]", "by a row"),
    (r"merge/test_schema_behaviours\.py::test_a_column_of_a_shared_target_goes", "evolve follows the source"),
    (r"merge/test_evolution\.py::test_a_column_of_another_type.*\[some\]", "types in sinks/test_delta_sink, schemas of integration"),
    (r"e2e/test_hostile_names", "schemas/test_topics, sinks/test_iceberg_sink (every name), verify/test_relational_verify"),
    (r"merge/test_set_aside\.py::test_a_table_that_failed_half_way", "created again between two attempts; a batch that has written"),
    (r"merge/test_left_out\.py::test_(a_snapshot_row_is_not|an_id_that_was_given)", "merge/test_merge_rule; the other tests there"),
    (r"merge/test_routed_merge\.py::test_a_new_column_is_(filled_in|not_filled)", "filled once where its batch is run again"),
    (r"integration/test_compare_snapshots\.py::test_rows_of_quiet_tables", "two producers agree"),
    (r"codec/test_damaged_bytes", "codec/test_the_server_is_the_oracle; make fuzz"),
    (r"merge/test_table_delays\.py::.*\[jvm\]", "the other writers"),
    (r"integration/test_torn_log\.py::test_a_transaction_that_the_server.*\[(inside a header|between two events|inside the first)", "inside an event"),
    (r"integration/test_reload\.py::.*mariadb", "mysql80"),
    (r"sinks/test_delta_sink\.py::TestDelta::test_(a_write_between|only_a_newer_delete|each_step_is|the_first_batch_that|values_of_a|rows_whose)",
     "TestDeltaByArrow; a newer row and a crash after put are tested with the JVM's writer, too"),
    (r"integration/test_flink\.py", "integration/test_golden: records are those of Debezium, which Flink reads; merge/test_changelog_flink"),
    (r"integration/test_kafka_unreachable\.py::test_the_source_s_log_is_looked_at", "kafka/test_state_topic, e2e/test_silent_peers"),
    (r"integration/test_compare_prefixes\.py::test_tables_are_chosen.*\[(json|schemas)\]", "avro"),
    (r"e2e/test_operations\.py::test_a_snapshot_(pauses|stops)", "snapshot/test_coordinator"),
    (r"e2e/test_operations\.py::test_a_second_instance", "kafka/test_taken_over"),
    (r"e2e/test_operations\.py::test_half_of_the_changes", "merge/test_table_delays"),
    (r"e2e/test_security\.py::test_all_connections", "kafka/test_publisher (SASL), source/test_stream (TLS), the refusals in e2e/test_security"),
    (r"e2e/test_operations\.py::test_tables_come", "integration/test_set_aside, integration/test_reload, merge/test_left_out, verify/test_moving"),
    (r"merge/test_other_sink\.py::test_the_rows_of_the_source", "merge/test_iceberg_job: the same steps into Iceberg"),
    (r"integration/test_start_at\.py::test_events_and_rows.*\[mariadb114\]", "mysql80"),
    (r"integration/test_failover\.py::test_(the_rest.*\[options1|the_last_transaction.*\[mariadb114|repair.*\[reset)", "options0, mysql80, asked for"),
    (r"integration/test_one_view\.py::test_a_start_in_one_transaction.*\[mysql80-extended", "mysql80-minimal"),
    (r"integration/test_logs_without_names\.py::test_alters_while.*\[mysql80\]", "mysql57, whose logs never have names"),
    (r"integration/test_snapshot_modes\.py::test_(when_needed|always).*\[one_transaction\]", "chunked; integration/test_one_view"),
    (r"integration/test_producer_merge\.py::test_many_readers.*\[deleting_site\]", "site"),
    (r"integration/test_compare_prefixes\.py::test_what_waits_of_large", "the other tests there"),
    (r"stream/test_log_reader\.py::test_(defaults|columns).*\[mariadb114\]", "mysql80"),
    (r"devservers/test_servers\.py::test_(servers_start_side|the_command_prints.*\[15\])", "all tests use these servers; [2]"),
    (r"merge/test_meddling\.py::test_killed_between_two_tables", "merge/test_tables_by_workers, merge/test_iceberg_job; e2e/test_crashes"),
    (r"merge/test_decode\.py::test_dates_and_times.*\[Asia", "UTC, America/New_York"),
    (r"sinks/test_changelog_sinks\.py::Test(Files::.*\[before save|Kafka::.*\[after commit)", "after append"),
    (
        (r"sinks/test_delta_sink\.py::TestDelta::test_(the_first_rows|no_rows|a_column_without|a_target_of_another|a_target_that_no|"
        r"the_states|a_second_writer|an_error_of|a_file_that)"),
        "TestDeltaByArrow: the JVM makes its table, too",
    ),
    (r"integration/test_(loaded_tables|blocking_view)\.py::.*mariadb", "the same on MySQL"),
    (r"integration/test_start_at\.py::test_the_first_start.*\[mariadb114-(file|timestamp|earliest)", "mysql80; MariaDB by GTIDs"),
    (r"integration/test_rotated_password\.py::.*mariadb", "the same on MySQL"),
    (r"integration/test_unseen_triggers\.py::test_a_statement_of_which.*mariadb", "the same on MySQL; its triggers and functions"),
    (r"integration/test_logs_without_names\.py::test_(tables_made|a_row_whose|a_start_in|an_alter_that).*\[mysql80\]",
     "mysql57, whose logs never have names; full metadata on mysql80"),
    (r"integration/test_producer_merge\.py::test_a_table_read_while.*\[mariadb_site\]", "site"),
    (r"e2e/test_shop", "e2e/test_crashes: the same under kills, on MySQL; e2e/test_operations on MariaDB, compiled"),
    (r"verify/test_verify\.py::test_(?!every_type|one_wrong|keys_of|what_is_no_date|a_system_versioned).*\[mariadb114\]", "mysql80; types and keys on both"),
    (r"verify/test_(routed_verify|moving)\.py::.*mariadb114", "mysql80"),
    (r"cli/test_init_command\.py::test_(a_password|a_file|tables_that).*\[mariadb114\]", "mysql80; what the source lacks on both"),
    (r"integration/test_foreign_statements\.py::test_a_statement_that_may_change.*\[mariadb114", "mysql80; catalog parses both"),
    (r"integration/test_producer_merge\.py::test_rows_are_distinguished_in_every_format\[json_schema\]", "avro; tests/formats"),
    (r"e2e/test_standby", "cli/test_standby_election, kafka/test_taken_over"),
    (r"merge/test_put_back\.py::.*\[while_it_runs-restored\]", "while it runs: replaced"),
    (r"merge/test_left_out\.py::test_a_retry_leaves", "merge/test_quarantine: retried records"),
    (r"integration/test_one_view\.py::test_a_start_in_one_transaction.*\[mysql(57|97)", "mysql80"),
    (r"integration/test_one_view\.py::test_killed_in_the_middle", "snapshot/test_blocking; e2e/test_crashes kills a producer"),
    (r"merge/test_tables_by_workers\.py::test_killed_after_the_commits.*\[jvm\]", "auto"),
    (r"merge/test_changelog_files\.py::test_(rows_that_start|shards_fold)", "merge/test_changelog_kafka; merge/test_routed_merge"),
    (r"merge/test_changelog_kafka\.py::test_topics_of_somebody_else", "sinks/test_changelog_sinks: what others wrote is refused"),
    (r"merge/test_evolution\.py::test_a_table_that_had_no_datetime.*\[this version-(DATE|TIMESTAMP)", "this version-added"),
    (r"arrow/test_arrow_as_spark\.py::test_times_of_every_mode.*\[(connect|isostring)\]", "microseconds, nanoseconds; merge/test_decode has each"),
    (r"codec/test_byte_identity\.py::.*\[mysql57\]", "mysql80"),
    (
        (r"sinks/test_delta_sink\.py::TestDelta::test_(a_column_is_|a_column_that_|floors_and_sweeps|a_record_is_quarantined|a_compaction_leaves|"
        r"rows_below_a_position|what_others_do|a_sweep_takes|a_batch_that_is_repeated_with|a_second_table|a_target_that_(is|was|this)|"
        r"columns_come_with|a_floor_|a_narrower|a_batch_has_a_commit|rows_of_several)"),
        "TestDeltaByArrow; what the JVM puts is tested here",
    ),
    (r"merge/test_spark_model\.py::test_late_rows.*\[(horizon|guard)-auto\]", "test_late_rows_stay_away; merge/test_merge_rule has both parts taken out"),
    (r"merge/test_routed_merge\.py::test_a_row_that_stopped_matching.*\[False-auto\]", "True-auto, which notices it (make mutations)"),
    (r"merge/test_routed_merge\.py::test_a_row_that_stopped_matching.*\[False-auto\]", "True-auto: this is its mutant"),
    (
        r"merge/test_routed_merge\.py::test_histories_of_shards",
        "shards, filters, late rows, crashes: the other tests there; merge/test_spark_model: a history through crashes",
    ),
    (r"merge/test_meddling\.py::test_records_that_kafka_has_dropped.*\[snapshots\]", "changes"),
    (r"merge/test_tables_by_workers\.py::test_where_workers_cannot_read.*\[False\]", "True; could not read again and again"),
    (r"merge/test_merge_loads\.py::test_a_chunk_that_was_loaded_and_saved.*\[published\]", "saved"),
    (r"merge/test_merge_loads\.py::test_rows_of_a_chunk_that_only.*\[another writer\]", "no source"),
    (r"merge/test_changed_repeat\.py::test_each_type_of_sink.*\[iceberg\]", "another filter: the batch refuses it before it opens a target"),
    (r"stream/test_log_reader\.py::test_(rolled_back|the_ordinal).*\[mariadb114\]", "mysql80; stream/test_rollback on MariaDB"),
    (r"stream/test_(outbox|shadow_tables)\.py::.*\[mariadb114(-gh-ost)?\]", "mysql80; mariadb114-pt-osc"),
    (r"kafka/test_state_topic\.py::test_a_kafka_that_goes_away", "kafka/test_played_brokers: silence is no fault of a topic; e2e/test_silent_peers"),
    (r"integration/test_logs_without_names\.py::test_every_type.*\[mysql80\]", "mysql57; every type of mysql80 in codec/test_the_server_is_the_oracle"),
    (r"devservers/test_servers\.py::test_registry_speaks", "all tests use these servers"),
    (r"demo/test_sources_demo\.py::test_the_demo", "the watcher and the comparison there; replicate/test_many_sources joins, kills and orders"),
    (r"demo/test_interrupt\.py::test_a_terminated", "interrupted while its servers start; killed, which leaves nothing either"),
    (r"integration/test_failover\.py::test_where_the_replica_lacks_what_was_published_in_part", "published whole; the rest of one published in part"),
    (r"integration/test_failover\.py::test_what_was_published_in_part.*\[False\]", "True; a log that was reset"),
    (r"integration/test_unseen_triggers\.py::test_a_trigger_that.*\[(mysql80-beside|mariadb114-elsewhere)\]", "mysql80-elsewhere, mariadb114-beside"),
    (r"stream/test_log_reader\.py::test_resume_starts.*\[mariadb114\]", "mysql80; stream/test_xa restarts on MariaDB"),
    (r"stream/test_xa\.py::test_xa_transactions_are_published_in_commit_order\[mariadb114\]", "mysql80; the other tests there on MariaDB"),
    (
        r"snapshot/test_coordinator\.py::test_(patterns|a_table_without|an_id|two_requests|a_paused|stop_|an_automatic|progress).*mariadb",
        "mysql80; the other tests there on MariaDB",
    ),
    (r"merge/test_put_back\.py::test_a_table_that_vanished", "merge/test_set_aside: a table that vanished"),
    (r"merge/test_put_back\.py::.*\[between_two_runs-replaced\]", "while it runs; at the start in sinks/test_delta_sink"),
    (r"merge/test_routed_merge\.py::test_a_row_that_stopped_matching.*\[False-auto\]", "True-auto: this is its mutant"),
    (
        r"merge/test_routed_merge\.py::test_histories_of_shards",
        "shards, filters, late rows, crashes: the other tests there; merge/test_spark_model: a history through crashes",
    ),
    (r"merge/test_meddling\.py::test_records_that_kafka_has_dropped.*\[snapshots\]", "changes; both topics in merge/test_set_aside"),
    (r"replicate/test_two_way\.py::test_both_servers_are_equal.*-one\]", "-workers; killed tasks: replicate/test_crash_points"),
    (r"replicate/test_clock_skew\.py::.*\[an hour ahead-mariadb114\]", "an hour ahead-mysql80; set back on MariaDB"),
    (r"replicate/test_clock_skew\.py::.*\[set back by an hour-mysql80\]", "set back by an hour-mariadb114"),
    (r"replicate/test_clock_skew\.py::test_a_clock_is_corrected.*\[mariadb114\]", "mysql80; stream/test_commit_seal: whole seconds"),
    (r"replicate/test_share_executors\.py::.*\[killed_before\]", "killed_behind, cut_behind"),
    (r"replicate/test_two_way\.py::test_changes_and_statements.*\[mysql80-mariadb114\]", "mariadb114-mysql97"),
    (r"replicate/test_key_sets\.py::test_texts_that_a_collation.*\[mysql80-", "mysql97, mariadb114"),
    (r"sinks/test_old_files\.py::test_a_file_of_an_older_version.*\[interval (0 hours|30 days)-", "None; interval 2 days"),
    (r"merge/test_changed_repeat\.py::test_a_repeat_by_the_same_rules", "a repeat that would have a column: it is changed back there"),
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
