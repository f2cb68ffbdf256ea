"""The mechanisms of tasks that are switched off."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

_WORKERS: Final = "tests/replicate/test_parallel_apply.py"
_EXECUTORS: Final = "tests/replicate/test_share_executors.py"

OF_TASKS: Final = (
    Mutation(
        "rows that an upsert has to find",
        "spark_jobs.replicate.apply.compaction",
        "1 if is_inserted else 2 if needed else None",
        "1 if is_inserted else None",
        ("tests/replicate/test_compaction.py", "-k", "not_as_the_log_says"),
    ),
    Mutation(
        "rows that a delete has to find",
        "spark_jobs.replicate.apply.compaction",
        "None if needed is None else int(needed)",
        "None",
        ("tests/replicate/test_compaction.py", "-k", "not_as_the_log_says"),
    ),
    Mutation(
        "updates of a key among the changes of others",
        "spark_jobs.replicate.apply.compaction",
        'is_moved = op == "u" and texts.old_key != texts.new_key',
        "is_moved = False",
        ("tests/replicate/test_compaction.py", "-k", "safe_mode"),
    ),
    Mutation(
        "keys that the server may call equal",
        "spark_jobs.replicate.apply.compaction",
        "return None not in forms and len(forms) == len(keys)",
        "return True",
        ("tests/replicate/test_compaction.py", "-k", "distinct"),
    ),
    Mutation(
        "rows in order behind a change that does not fit",
        "spark_jobs.replicate.apply.row_writer",
        '            self._target.execute("ROLLBACK TO SAVEPOINT tidemark_rows")\n',
        "",
        ("tests/replicate/test_compaction.py", "-k", "new_values_already"),
    ),
    Mutation(
        "values that Python writes",
        "spark_jobs.replicate.rows.row_texts",
        "if (event.after is None or not event.after.exact) and (event.before is None or not event.before.exact):",
        "if True:",
        ("tests/replicate/test_row_texts.py", "-k", "exact"),
    ),
    Mutation(
        "epochs that no start has had",
        "spark_jobs.replicate.apply.apply_target",
        "epoch = GREATEST(epoch + 1, {_NOW_US})",
        "epoch = epoch + 1",
        ("tests/replicate/test_apply_target.py", "-k", "before_a_restore"),
    ),
    Mutation(
        "old row of a parent that is loaded",
        "spark_jobs.replicate.apply.moved_children",
        'may_lack = ".".join(table) in small and statements.has_key',
        "may_lack = False",
        ("tests/replicate/test_moved_children.py", "-k", "takes_its_children"),
    ),
    Mutation(
        "foreign keys of an update while tables are loaded",
        "spark_jobs.replicate.rows.row_statements",
        "(row.moves_children or not self._key",
        "(not self._key",
        ("tests/replicate/test_moved_children.py", "-k", "follow_each_key"),
    ),
    Mutation(
        "chunk of children that a foreign key changed",
        "producer.snapshot.log_windows",
        "        self._lose(self.keys.lose(table))\n",
        "        pass\n",
        ("tests/integration/test_chunks_of_children.py", "-k", "DELETE and mysql80 and child"),
    ),
    Mutation(
        "rollback of a process that hangs",
        "spark_jobs.replicate.apply.apply_target",
        'f"SET SESSION wait_timeout = {_HANGS_S}", ',
        "",
        ("tests/replicate/test_apply_target.py", "-k", "hangs and mysql80"),
    ),
    Mutation(
        "another connection behind a lost one",
        "spark_jobs.replicate.apply.apply_target",
        "            self.close()  # it may be lost: the next attempt opens another one\n",
        "",
        ("tests/replicate/test_apply_target.py", "-k", "is_replaced"),
    ),
    Mutation(
        "another name of a request that may have been sent",
        "spark_jobs.replicate.task_source",
        "replace(followed.state, request=new_request(target.task))",
        "followed.state",
        ("tests/replicate/test_one_source.py", "-k", "by_another_name"),
    ),
    Mutation(
        "loop mark",
        "spark_jobs.replicate.apply.apply_target",
        "            begin.append(_MARK.format(mark_table(self.channel)))\n            of_begin.append(self.task)\n",
        "            pass\n",
        ("tests/replicate/test_two_way.py", "-k", "not_back and mysql80-mariadb114"),
    ),
    Mutation(
        "loop mark of DROP TABLE",
        "spark_jobs.replicate.apply.apply_target",
        "            sql = with_drop(sql, self.channel, server_version(self.connection), sql_mode)\n",
        "",
        ("tests/replicate/test_two_way.py", "-k", "not_back and mysql80-mariadb114"),
    ),
    Mutation(
        "loop mark at the beginning",
        "producer.stream.publication",
        "route.is_mark and not self._routes and",
        "route.is_mark and",
        ("tests/stream/test_loop_marks.py", "-k", "leave_nothing"),
    ),
    Mutation(
        "rest of a transaction that begins with a loop mark",
        "producer.stream.publication",
        "and not transaction.in_kafka:  # a part",
        ":  # a part",
        ("tests/stream/test_loop_marks.py", "-k", "rest_of_a_transaction"),
    ),
    Mutation(
        "loop marks in runs",
        "producer.stream.routes",
        "    if route.is_mark:\n        return None\n",
        "",
        ("tests/stream/test_loop_marks.py", "-k", "leave_nothing"),
    ),
    Mutation(
        "chunks beside ignored transactions",
        "producer.stream.publication",
        "tuple(one.rows for one in watchers if one.watches(route))",
        "()",
        ("tests/stream/test_loop_marks.py", "-k", "leave_nothing"),
    ),
    Mutation(
        "values before a change in key sets",
        "spark_jobs.replicate.apply.key_sets",
        "                if old:\n",
        "                if False:\n",
        ("tests/replicate/test_key_sets.py", "-k", "each_unique_key and mysql80"),
    ),
    Mutation(
        "weights of blanks at the end of a text",
        "spark_jobs.replicate.apply.target_keys",
        "without_blanks(text, blank).encode()",
        "text.encode()",
        ("tests/replicate/test_key_sets.py", "-k", "collation_calls_equal and mysql80"),
    ),
    Mutation(
        "weights of texts beyond ASCII",
        "spark_jobs.replicate.apply.key_sets",
        "        texts = {literal: weighed(literal) for literal in literals}\n",
        "        return {literal: form or literal for literal, form in forms.items()}\n",
        ("tests/replicate/test_key_sets.py", "-k", "collation_calls_equal and mysql80"),
    ),
    Mutation(
        "parents in key sets",
        "spark_jobs.replicate.apply.key_sets",
        "for text in texts if text in space]",
        "for text in texts if False]",
        ("tests/replicate/test_key_sets.py", "-k", "parent_that_the_batch and mysql80"),
    ),
    Mutation(
        "rows that foreign keys change without a record",
        "spark_jobs.replicate.apply.key_sets",
        '(keys.deletes and any(row.event.op == "d" for row in self.rows))',
        "False",
        ("tests/replicate/test_key_sets.py", "-k", "components_in_any_order and mysql80"),
    ),
    Mutation(
        "progress in the transaction of a worker",
        "spark_jobs.replicate.apply.share_workers",
        """        with self._target.share_transaction(plan, worker) as done:
            some = rows[done : done + self._most_rows]
            if some:
                self._writer.write_texted(some)
                self._target.put_done(worker, done + len(some))
""",
        """        with self._target.share_transaction(plan, worker) as done:
            some = rows[done : done + self._most_rows]
            self._writer.write_texted(some)
        with self._target.share_transaction(plan, worker):
            self._target.put_done(worker, done + len(some))
""",
        (_WORKERS, "-k", "dies_at_each_kind"),
    ),
    Mutation(
        "rows that an attempt of a share before has applied",
        "spark_jobs.replicate.apply.share_workers",
        "            some = rows[done : done + self._most_rows]\n",
        "            self._at = getattr(self, '_at', {})\n            done = self._at.setdefault((plan, worker), 0)\n"
        "            some = rows[done : done + self._most_rows]\n            self._at[plan, worker] += len(some)\n",
        (_EXECUTORS, "-k", "killed_or_cut_off and killed_behind"),
    ),
    Mutation(
        "workers that still run when a plan is applied again as a whole",
        "spark_jobs.replicate.apply.parallel_apply",
        "            self.store.complete_workers()\n",
        "",
        (_WORKERS, "-k", "still_runs"),
    ),
    Mutation(
        "errors of executors",
        "spark_jobs.replicate.apply.share_executors",
        "        if errors:\n",
        "        if False:\n",
        (_EXECUTORS, "-k", "refused_row or taken_over"),
    ),
    Mutation(
        "fence of a worker",
        "spark_jobs.replicate.apply.apply_target",
        "if not rows or rows[0][:2] != (self.epoch, plan):",
        "if not rows:",
        (_WORKERS, "-k", "takes_over"),
    ),
    Mutation(
        "epoch of the workers of a process that is taken over",
        "spark_jobs.replicate.apply.apply_target",
        '            self.execute("UPDATE tidemark_meta.worker SET epoch = %s WHERE task = %s", self.epoch, self.task)\n',
        "",
        (_WORKERS, "-k", "takes_over"),
    ),
    Mutation(
        "rows of a batch before a statement",
        "spark_jobs.replicate.apply.applier",
        """            self._flush(keeps_open=True)
            self._done = done
            self._mark()
""",
        """            self._done = done
            self._mark()
""",
        (_WORKERS, "-k", "eight_workers"),
    ),
    Mutation(
        "the open plan before all else",
        "spark_jobs.replicate.task",
        "return self._finish_plan(target)",
        "return True",
        (_WORKERS, "-k", "as_many_workers"),
    ),
    Mutation(
        "keys by which the rows of a plan were divided",
        "spark_jobs.replicate.apply.parallel_apply",
        "is_same = (plan.tables, plan.links, plan.rules) == digests",
        "is_same = True",
        (_WORKERS, "-k", "cannot_be_repeated"),
    ),
    Mutation(
        "end of a transaction that Kafka has a part of",
        "spark_jobs.replicate.loading",
        "opened = commit.open_behind(opened)",
        "opened = None",
        ("tests/replicate/test_finish.py", "-k", "left_out_or"),
    ),
    Mutation(
        "transactions that are skipped",
        "spark_jobs.replicate.apply.applier",
        "        if not source.state.reaches(event):\n            self._done = done\n            return\n",
        "",
        ("tests/replicate/test_skipped_transactions.py", "-k", "exactly and source and mysql80"),
    ),
    Mutation(
        "events before the start of a task",
        "spark_jobs.replicate.apply.apply_target",
        "return not event.is_skipped and event.position >= self.begin",
        "return not event.is_skipped",
        ("tests/replicate/test_start_search.py", "-k", "exactly and position and mysql80"),
    ),
)
