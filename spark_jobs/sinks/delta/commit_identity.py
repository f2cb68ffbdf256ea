"""The name of a write of a batch in the log of a Delta table: one for every writer, so that each skips what another has done."""

from __future__ import annotations

from typing import Final

from deltalake import CommitProperties, Transaction

ROWS: Final = "merge"
"""The step that puts rows. `append` and `merge` share it: a batch that made the table finds its commit when it is repeated."""

FLOOR: Final = "floor"
"""The step that deletes below a floor."""

FILL: Final = "fill"
"""The step that fills columns in the rows of one of several source tables."""

LOAD: Final = "load"
"""The step of a load that adds rows, and of its second one, which replaces older rows, with the name of its lane."""

LOAD_OVER: Final = "load-over"


def transaction_name(query_id: str, table: str, step: str, redrive: str = "") -> str:
    """Return the application id of the transaction of a step; its version is the batch.

    `step` keeps the writes of one batch apart: a table skips what has a version that it has seen of the same name.
    """
    return "/".join(("tidemark", query_id, table, step, *([redrive] if redrive else [])))


def commit_properties(metadata: str, *transactions: tuple[str, int]) -> CommitProperties:
    """Return what a commit of delta-rs has of us: a stamp as text, and the names of its transactions with their batches."""
    named = [Transaction(app_id, batch_id) for app_id, batch_id in transactions]
    return CommitProperties(custom_metadata={"userMetadata": metadata}, app_transactions=named or None)
