"""What is switched off, how, and which tests must notice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Mutation:
    """`old` occurs once in the module's text and becomes `new`; one of `tests` (pytest's ids) must fail then."""

    name: str
    module: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTATIONS: Final = (
    Mutation(
        "barrier",
        "producer.snapshot.watermark",
        "    low = end_of_binlog(connection, bound.epoch)\n    commit_barrier(connection, table, row)\n",
        "    commit_barrier(connection, table, row)\n    low = end_of_binlog(connection, bound.epoch)\n",
        ("tests/integration/test_watermark_race.py",),
    ),
    Mutation(
        "horizon",
        "producer.snapshot.window_register",
        "min(bounds, default=position)",
        "position",
        ("tests/snapshot/test_ledger.py",),
    ),
    Mutation(
        "windows of a table that is no longer loaded",
        "producer.snapshot.window_register",
        "window.reread = load.answer is None or bool(load.answer.error)",
        "window.reread = False",
        ("tests/snapshot/test_asked_loads.py",),
    ),
    Mutation(
        "answers to windows that were not asked for",
        "producer.snapshot.asked_loads",
        "if window is None or load is None or load.asked_at is None or window.state is not WindowState.RUNNING:",
        "if window is None or load is None:",
        ("tests/snapshot/test_asked_loads.py",),
    ),
    Mutation(
        "version of loaded rows",
        "spark_jobs.loads.chunk_source",
        "position=load.low.text",
        "position=load.position.text",
        ("tests/loads/test_chunk_source.py", "-k", "mysql"),
    ),
    Mutation(
        "schemas of loaded rows",
        "spark_jobs.loads.chunk_source",
        "        marked.check(self._registered)\n",
        "",
        ("tests/snapshot/test_load_windows.py", "-k", "test_another_server_and_a_schema_of_other_columns_are_refused"),
    ),
    Mutation(
        "files of a commit",
        "spark_jobs.sinks.delta.commit_log",
        "if (not file.is_file() or file.stat().st_size != size) and not",
        "if False and not",
        ("tests/sinks/test_arrived_files.py",),
    ),
    Mutation(
        "rows that arrive",
        "spark_jobs.sinks.arrival",
        "if found != written:",
        "if False:",
        ("tests/sinks/test_arrived_files.py",),
    ),
    Mutation(
        "folder that executors share",
        "spark_jobs.jobs.shared_folder",
        "if self._is_local or",
        "if True or",
        ("tests/sinks/test_shared_folder.py",),
    ),
    Mutation(
        "transaction of a load",
        "spark_jobs.sinks.delta.arrow_load",
        "return seen is not None and seen >= self.over.version",
        "return False",
        ("tests/sinks/test_arrow_load.py",),
    ),
    Mutation(
        "keys that are there when a chunk is loaded",
        "spark_jobs.sinks.delta.known_keys",
        "if not self._overlaps(low, high):",
        "if self._keys:",
        ("tests/sinks/test_arrow_load.py",),
    ),
    Mutation(
        "horizon of loads",
        "spark_jobs.merge.load_record",
        "if one.low.text >= guard)",
        "if one.low)",
        ("tests/merge/test_load_record.py",),
    ),
    Mutation(
        "chunks that another sink has loaded",
        "spark_jobs.merge.load_record",
        "return any(window not in self.done or not self.done[window].is_put for window in closed)",
        "return False",
        ("tests/merge/test_load_record.py",),
    ),
    Mutation(
        "tombstones of loads",
        "spark_jobs.merge.load_run",
        "yield rows if self._tombstones is None else not_overtaken(rows, self._tombstones, self._task.keys)",
        "yield rows",
        ("tests/merge/test_load_run.py",),  # workers of Spark import no mutation
    ),
    Mutation(
        "records left out",
        "schemas.merge_rule",
        "return 0 < partitions <= len(self.seen) and first_bound > self.until",
        "return True",
        (
            "tests/merge/test_merge_rule.py::test_a_table_that_is_called_consistent_equals_its_source_whatever_could_not_be_read_before",
        ),
    ),
    Mutation(
        "lost schemas",
        "spark_jobs.merge.layout_plan",
        "lost = [subject for part, subject in self._subjects.items() if not found[part] and self._was_registered(part)]",
        "lost = list[str]()",
        ("tests/merge/test_left_out.py::test_a_registry_that_lost_the_subject_of_a_key_empties_no_table",),
    ),
    Mutation(
        "position guard of the JVM's writer",
        "spark_jobs.sinks.table_rows",
        'newer, deleted = f"s.{POSITION} > t.{POSITION}",',
        'newer, deleted = "true",',
        ("tests/sinks/test_delta_sink.py", "-k", "test_only_a_newer_row_changes_what_is_there"),
    ),
    Mutation(
        "position guard of a worker",
        "spark_jobs.sinks.delta.arrow_put",
        'newer = f"{sources[POSITION]} > t.{quoted_column(POSITION)}"',
        'newer = "true"',
        ("tests/sinks/test_arrow_put.py::test_random_batches_give_what_a_dictionary_gives",),
    ),
    Mutation(
        "tombstones of the JVM's writer",
        "spark_jobs.merge.rule",
        'F.col(f"r.{POSITION}") < F.col(f"t.{POSITION}")',
        "F.lit(False)",
        ("tests/merge/test_spark_model.py::test_late_rows_stay_away_only_with_horizon_and_guard[None-jvm]",),
    ),
    Mutation(
        "tombstones of a worker",
        "spark_jobs.arrow.newest",
        "pc.less(joined[POSITION], joined[_LIMIT])",
        "pc.less(joined[POSITION], pa.scalar(''))",
        ("tests/arrow/test_arrow_decoder.py::test_rows_that_a_tombstone_has_overtaken_go_and_stay_at_a_tie",),
    ),
    Mutation(
        "transaction of the JVM's writer",
        "spark_jobs.sinks.delta.writes",
        "with configured(spark, transaction), stamped",
        "with stamped",
        ("tests/merge/test_tables_by_workers.py::test_killed_after_the_commit_of_the_jvm_a_worker_makes_none",),
    ),
    Mutation(
        "transaction of a worker",
        "spark_jobs.sinks.delta.arrow_put",
        "return commit_properties(self.metadata, (self.app_id, self.version))",
        "return commit_properties(self.metadata)",
        ("tests/sinks/test_arrow_put.py::test_a_batch_is_put_once_also_when_it_changes_nothing",),
    ),
    Mutation(
        "one transaction for the writers of a batch",
        "spark_jobs.sinks.delta.target",
        "        put = self._arrow_put(shape, stamp, ROWS)\n",
        '        put = self._arrow_put(shape, stamp, "worker")\n',
        (
            "tests/merge/test_tables_by_workers.py::test_killed_after_the_commits_of_workers_each_change_is_there_once_whichever_writer_is_next[jvm]",
        ),
    ),
    Mutation(
        "end of a slice",
        "spark_jobs.arrow.kafka_records",
        "until = first + int(np.searchsorted(offsets, part.end))",
        "until = last",
        ("tests/merge/test_kafka_records.py", "-k", "from_its_start_to_its_end"),
    ),
    Mutation(
        "end of a partition before that of the slice",
        "spark_jobs.arrow.kafka_records",
        "reading.is_done = int(offsets[0]) >= part.end",
        "reading.is_done = True",
        ("tests/merge/test_kafka_records.py", "-k", "ends_before_the_slice"),
    ),
    Mutation(
        "records that were rolled back, in workers",
        "spark_jobs.kafka.worker_options",
        '"isolation.level": "read_committed"',
        '"isolation.level": "read_uncommitted"',
        ("tests/merge/test_kafka_records.py", "-k", "rolled_back"),
    ),
    Mutation(
        "records that are gone, in workers",
        "spark_jobs.kafka.worker_options",
        '"auto.offset.reset": "error"',
        '"auto.offset.reset": "earliest"',
        ("tests/merge/test_kafka_records.py", "-k", "gone"),
    ),
    Mutation(
        "transaction boundary",
        "producer.stream.groups",
        "        return self._transaction is None and self.cursor.has_new_boundary",
        "        return self.cursor.has_new_boundary",
        ("tests/stream/test_groups.py::test_between_two_events_of_a_transaction_nothing_can_be_committed",),
    ),
    Mutation(
        "fencing",
        "kafkaio.transactional_writer",
        '{**config, "transactional.id": transactional_id, "error_cb"',
        '{**config, "transactional.id": f"{transactional_id}-{id(self)}", "error_cb"',
        ("tests/stream/test_log_reader.py::test_a_second_instance_fences_the_first",),
    ),
    Mutation(
        "order of commits",
        "producer.kafka.alternating_publisher",
        "        self.settle()\n        publisher = self._current\n",
        "        publisher = self._current\n",
        ("tests/kafka/test_alternating_publisher.py::test_what_follows_a_commit_that_failed_is_never_visible",),
    ),
    Mutation(
        "lineage",
        "producer.source.lineage",
        "    if found is None or found != last:",
        "    if found is None:",
        (
            "tests/integration/test_without_gtids.py::test_another_log_of_the_same_names_is_refused_though_the_position_is_in_it",
        ),
    ),
    Mutation(
        "published elsewhere",
        "producer.stream.cursor",
        "        if self._inherited.contains(gtid):",
        "        if False:",
        ("tests/stream/test_groups.py::test_transactions_of_an_earlier_epoch_are_dropped",),
    ),
    Mutation(
        "children known before their parent is behind",
        "producer.stream.handlers.cascades",
        "        for child, rows in self._cascades.pop_rows():\n",
        "        for child, rows in ():\n",
        ("tests/integration/test_cascades.py::test_what_is_to_be_followed_survives_a_crash",),
    ),
    Mutation(
        "sweep behind the horizon",
        "schemas.merge_rule",
        "(completion.sweep is None or completion.first_bound <= state.safe_horizon)",
        "True",
        (
            "tests/merge/test_merge_rule.py::test_children_that_foreign_keys_change_in_silence_are_swept_or_read_again",
        ),
    ),
    Mutation(
        "turns of children and tables",
        "producer.snapshot.turns",
        "followed_first=not self._followed_last",
        "followed_first=True",
        (
            "tests/snapshot/test_turns.py::test_children_and_requests_share_the_readers_while_both_have_ever_more_to_read",
        ),
    ),
    Mutation(
        "what parents took stays in quarantine",
        "spark_jobs.merge.retried_table",
        " | swept",
        "",
        (
            "tests/merge/test_quarantine.py::test_a_row_that_a_parent_may_have_taken_with_it_stays_in_quarantine",
        ),
    ),
    Mutation(
        "sweep below its bound",
        "spark_jobs.sinks.table_rows",
        'f"{match}{kept} AND t.{POSITION} < s.below"',
        'f"{match}{kept}"',
        (
            "tests/merge/test_spark_model.py::test_a_sweep_takes_rows_by_composite_values_of_any_type_below_its_bound",
        ),
    ),
    Mutation(
        "wait for what is executed",
        "producer.snapshot.windowing",
        "WAIT_FOR_EXECUTED_GTID_SET(%s, %s), 1)",
        "0 * LENGTH(CONCAT(%s, %s)), 1)",
        (
            "tests/integration/test_read_only.py::test_low_is_taken_when_what_the_log_reader_has_read_is_visible_and_not_before",
        ),
    ),
    Mutation(
        "source table in the identity",
        "spark_jobs.pipeline.target_layout",
        "own = [SOURCE] if is_shared else []",
        "own: list[str] = []",
        ("tests/merge/test_routed_merge.py", "-k", "test_shards_go_into_one_table"),
    ),
    Mutation(
        "tombstones of rows that stopped matching",
        "spark_jobs.merge.mirror_batch",
        "return any(image.where is not None for image in member.images.values())",
        "return False",
        ("tests/merge/test_routed_merge.py", "-k", "stopped_matching and auto and True"),
    ),
    Mutation(
        "tombstones of snapshot rows that won over a change",
        "spark_jobs.merge.worker_run",
        "leaves = leaves | _changed(decoder, judged, counts, winners, rows, task.keys)",
        "leaves = leaves | ~judged.snapshot[winners]",
        ("tests/merge/test_member_run.py",),
    ),
    Mutation(
        "floors of one source table",
        "spark_jobs.sinks.delta.writes",
        "        parts.insert(0, is_of(source))\n",
        "        pass\n",
        ("tests/sinks/test_delta_sink.py", "-k", "floors_and_sweeps_concern"),
    ),
    Mutation(
        "plan that changed",
        "spark_jobs.pipeline.table_plan",
        "if now[target] != then[target]:",
        "if not target:",
        ("tests/pipeline/test_table_routes.py",),
    ),
    Mutation(
        "tables that take part in a transaction",
        "spark_jobs.sinks.stamp",
        'f"{target.name}@{digest}"',
        "target.name",
        ("tests/merge/test_routed_merge.py", "-k", "holds_up_no_other"),
    ),
    Mutation(
        "guard of the relational update",
        "spark_jobs.sinks.relational.postgres_dialect",
        'FROM {staging} s WHERE {match} AND s.d = 0 AND s.p > t.{POSITION}"',
        'FROM {staging} s WHERE {match} AND s.d = 0"',
        ("tests/sinks/test_relational_sinks.py", "-k", "TestPostgres and only_a_newer"),
    ),
    Mutation(
        "owner epoch of a relational sink",
        "spark_jobs.sinks.relational.checkpoint_rows",
        "        if found != epoch:\n",
        "        if found is None:\n",
        ("tests/sinks/test_relational_sinks.py", "-k", "TestPostgres and opens_the_sink_later"),
    ),
    Mutation(
        "commit record in the transaction of its messages",
        "spark_jobs.sinks.kafka.kafka_target",
        "                commits.add(transaction, self.name, after)\n",
        "            with commits.client.transaction() as later:\n                commits.add(later, self.name, after)\n",
        ("tests/sinks/test_changelog_sinks.py", "-k", "TestKafka and where_the_commit_is_recorded"),
    ),
    Mutation(
        "commit record of a mirror in the transaction of its messages",
        "spark_jobs.sinks.kafka.mirror_target",
        "                commits.add(transaction, self.name, after)\n",
        "            with commits.client.transaction() as later:\n                commits.add(later, self.name, after)\n",
        ("tests/sinks/test_kafka_mirror.py", "-k", "died_between_its_steps and recorded"),
    ),
    Mutation(
        "changes of a mirror that are never computed again once its rows have them",
        "spark_jobs.sinks.kafka.mirror_target",
        "        self.kept.settle(max(sent, self._stamped()))\n",
        "        self.kept.settle(sent)\n",
        ("tests/sinks/test_kafka_mirror.py", "-k", "died_between_its_steps and recorded"),
    ),
    Mutation(
        "events that were appended before their table was set aside",
        "spark_jobs.merge.changelog_batch",
        "seen = {self._topic_of(name): ends for name, ends in had.ends.items() if name in until}",
        "seen: dict[str, Mapping[int, int]] = {}",
        ("tests/merge/test_changelog_files.py", "-k", "when_it_was_set_aside"),
    ),
    Mutation(
        "fill of one source table",
        "spark_jobs.merge.target_batch",
        "stamp.of_tables(self._target.name, [source])",
        "stamp",
        ("tests/merge/test_routed_merge.py", "-k", "run_again_with_one_more_table"),
    ),
    Mutation(
        "staged rows that came twice",
        "spark_jobs.sinks.relational.relational_target",
        "if not self._target.refuses_second(connection, staged.keys):",
        "if False:",
        ("tests/sinks/test_relational_sinks.py", "-k", "TestPostgres and becomes_another"),
    ),
    Mutation(
        "low watermarks of two requests",
        "producer.snapshot.shared_ledger",
        "if is_old or (moves and self._shared.ledger.windows.has_low(self._window, low)):",
        "if is_old:",
        ("tests/integration/test_cascades.py", "-k", "two_foreign_keys"),
    ),
    Mutation(
        "messages of a mirror are what is compared",
        "tidemark.verify.sink_types",
        "    return MirrorReader(settings)\n",
        "    from tidemark.verify.delta_reader import DeltaReader\n\n    return DeltaReader(sink.path)\n",
        ("tests/verify/test_mirror_verify.py", "-k", "row_too_many and mysql80"),
    ),
    Mutation(
        "retry on an idle source",
        "spark_jobs.jobs.merge_job",
        "if not is_late and not (self._has_retry_due() and self._is_idle(query)):",
        "if not is_late:",
        ("tests/merge/test_set_aside.py", "-k", "gets_no_records"),
    ),
    Mutation(
        "the repeat of a batch has the rules of its first attempt",
        "spark_jobs.merge.batch",
        "            attempt.begun.require_same(now, attempt.touched, read)\n",
        "",
        ("tests/merge/test_changed_repeat.py", "-k", "another_filter"),
    ),
    Mutation(
        "the repeat of a batch has the schemas of its first attempt",
        "spark_jobs.merge.schema_sources",
        "if folder in self.kept:",
        "if False:",
        ("tests/merge/test_changed_repeat.py", "-k", "more_schemas"),
    ),
)
