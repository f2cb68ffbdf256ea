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
)
