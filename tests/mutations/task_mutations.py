"""The mechanisms of tasks that are switched off."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

OF_TASKS: Final = (
    Mutation(
        "rows that an upsert has to find",
        "spark_jobs.replicate.compaction",
        "1 if is_inserted else 2 if needed else None",
        "1 if is_inserted else None",
        ("tests/replicate/test_compaction.py", "-k", "not_as_the_log_says"),
    ),
    Mutation(
        "rows that a delete has to find",
        "spark_jobs.replicate.compaction",
        "None if needed is None else int(needed)",
        "None",
        ("tests/replicate/test_compaction.py", "-k", "not_as_the_log_says"),
    ),
    Mutation(
        "updates of a key among the changes of others",
        "spark_jobs.replicate.compaction",
        'is_moved = op == "u" and texts.old_key != texts.new_key',
        "is_moved = False",
        ("tests/replicate/test_compaction.py", "-k", "safe_mode"),
    ),
    Mutation(
        "keys that the server may call equal",
        "spark_jobs.replicate.compaction",
        "return None not in forms and len(forms) == len(keys)",
        "return True",
        ("tests/replicate/test_compaction.py", "-k", "distinct"),
    ),
    Mutation(
        "rows in order behind a change that does not fit",
        "spark_jobs.replicate.row_writer",
        '            self._target.execute("ROLLBACK TO SAVEPOINT tidemark_rows")\n',
        "",
        ("tests/replicate/test_compaction.py", "-k", "new_values_already"),
    ),
    Mutation(
        "values that Python writes",
        "spark_jobs.replicate.row_texts",
        "if (event.after is None or not event.after.exact) and (event.before is None or not event.before.exact):",
        "if True:",
        ("tests/replicate/test_row_texts.py", "-k", "exact"),
    ),
    Mutation(
        "loop mark",
        "spark_jobs.replicate.apply_target",
        "                self.execute(mark.format(mark_table(self.channel)), self.task)\n",
        "                pass\n",
        ("tests/replicate/test_two_way.py", "-k", "not_back and mysql80-mariadb114"),
    ),
    Mutation(
        "loop mark of DROP TABLE",
        "spark_jobs.replicate.apply_target",
        "            sql = with_drop(sql, self.channel)\n",
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
        "spark_jobs.replicate.key_sets",
        "                if old:\n",
        "                if False:\n",
        ("tests/replicate/test_key_sets.py", "-k", "each_unique_key and mysql80"),
    ),
    Mutation(
        "weights of blanks at the end of a text",
        "spark_jobs.replicate.target_keys",
        "without_blanks(text, blank).encode()",
        "text.encode()",
        ("tests/replicate/test_key_sets.py", "-k", "collation_calls_equal and mysql80"),
    ),
    Mutation(
        "weights of texts beyond ASCII",
        "spark_jobs.replicate.key_sets",
        "        texts = {literal: weighed(literal) for literal in literals}\n",
        "        return {literal: form or literal for literal, form in forms.items()}\n",
        ("tests/replicate/test_key_sets.py", "-k", "collation_calls_equal and mysql80"),
    ),
    Mutation(
        "parents in key sets",
        "spark_jobs.replicate.key_sets",
        "for text in texts if text in space]",
        "for text in texts if False]",
        ("tests/replicate/test_key_sets.py", "-k", "parent_that_the_batch and mysql80"),
    ),
    Mutation(
        "rows that foreign keys change without a record",
        "spark_jobs.replicate.key_sets",
        '(keys.deletes and any(row.event.op == "d" for row in self.rows))',
        "False",
        ("tests/replicate/test_key_sets.py", "-k", "components_in_any_order and mysql80"),
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
        "spark_jobs.replicate.applier",
        "        if event.is_skipped:\n            self._done = done\n            return\n",
        "",
        ("tests/replicate/test_skipped_transactions.py", "-k", "exactly and source and mysql80"),
    ),
)
