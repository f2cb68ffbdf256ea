"""What every write of a batch carries: who writes, and of which step a target must not have two."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from schemas.identity import Target


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who writes: the query, the batch, the target, and the progress that is durable with the rows.

    `redrive` names a write between two batches, of records that were in quarantine.
    """

    query_id: str
    batch_id: int
    table: str
    progress: Mapping[str, Any]
    redrive: str = ""

    def of_tables(self, target: Target, texts: Iterable[str]) -> Stamp:
        """Return the stamp of a step in a target that these source tables take part in, by their texts."""
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]
        return replace(self, table=f"{target.name}@{digest}")

    @property
    def metadata(self) -> str:
        """The stamp as text."""
        head: dict[str, Any] = {"tidemark": 1, "query_id": self.query_id, "batch_id": self.batch_id, "table": self.table}
        if self.redrive:
            head["redrive"] = self.redrive
        return json.dumps(head | dict(self.progress), separators=(",", ":"))


def parsed_stamp(text: str | None) -> dict[str, Any] | None:
    """Return the stamp of a text (`Stamp.metadata`); None for a text of somebody else."""
    try:
        document = json.loads(text or "")
    except ValueError:
        return None
    return document if isinstance(document, dict) and "tidemark" in document else None


def is_of_batch(stamp: Mapping[str, Any] | None, query_id: str, batch_id: int) -> bool:
    """Return whether a batch of a query has made a stamp. A write between two batches is of none."""
    return stamp is not None and (stamp["query_id"], stamp["batch_id"]) == (query_id, batch_id) and "redrive" not in stamp
