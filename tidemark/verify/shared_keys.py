"""Keys that several source tables have in one target: rows are merged by source table and key, so each has its row there.

That is no difference: a row that moves from one shard to another is in both for a moment. But a reader who asks for a key alone
finds several rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.verify.bulk_comparison import TablePlan
from tidemark.verify.digest import Hashes, hash_rows
from tidemark.verify.sink_reader import SOURCE_COLUMN, TargetRows

_ROWS_AT_ONCE: Final = 1 << 22
_MOST_SHOWN: Final = 3
_LARGEST_KEYS: Final = 100


def shared_keys(rows: TargetRows, plan: TablePlan) -> str | None:
    """Return how many keys several source tables have in a target, and the first of them; None for none.

    `plan` has the rules of the key. Keys are counted by a hash of 64 bits, in passes over some 4 million rows each.
    """
    passes = max(1, -(-rows.total() // _ROWS_AT_ONCE))
    count, examples = 0, np.empty(0, np.uint64)
    for number in range(passes):
        found = _of_several([_pairs(hashes, sources, passes, number) for hashes, _, sources in _blocks(rows, plan)])
        count += len(found)
        examples = np.append(examples, found[: _LARGEST_KEYS - len(examples)])
    if not count:
        return None
    named = sorted(_named(rows, plan, examples).items())[:_MOST_SHOWN]
    shown = "; ".join(f"{key} ({', '.join(sorted(sources))})" for key, sources in named)
    return f"{count} {'keys are' if count > 1 else 'key is'} of several source tables: {shown}"


def _blocks(rows: TargetRows, plan: TablePlan) -> Iterator[tuple[Hashes, list[pa.Array], pa.Array]]:
    """Yield hashes of the keys, the keys, and the source tables."""
    names = [rule.sink_name for rule in plan.key_rules if rule.sink_name is not None]
    for batch in rows.read([*names, SOURCE_COLUMN]):
        columns = [rule.from_sink(batch.column(rule.sink_name)) for rule in plan.key_rules]
        yield plan.hash_keys(columns), columns, batch.column(SOURCE_COLUMN)


def _pairs(hashes: Hashes, sources: pa.Array, passes: int, number: int) -> Hashes:
    """Return the hashes of the keys of a pass, and those of their source tables, as two columns."""
    chosen = (hashes % np.uint64(passes)) == number
    pairs: Hashes = np.stack([hashes[chosen], hash_rows([sources.cast(pa.large_binary())])[chosen]], axis=1)
    return pairs


def _of_several(parts: Sequence[Hashes]) -> Hashes:
    """Return the hashes of keys that come with more than one source table."""
    if not parts:
        return np.empty(0, np.uint64)
    keys = np.unique(np.concatenate(parts), axis=0)[:, 0]
    return np.unique(keys[1:][keys[1:] == keys[:-1]])


def _named(rows: TargetRows, plan: TablePlan, wanted: Hashes) -> dict[str, set[str]]:
    """Return keys, as people read them, with their source tables."""
    found: dict[str, set[str]] = {}
    for hashes, columns, sources in _blocks(rows, plan):
        for at in np.nonzero(np.isin(hashes, wanted))[0].tolist():
            key = ", ".join(
                f"{rule.sink_name}={rule.shown(column[at].as_py())}" for rule, column in zip(plan.key_rules, columns, strict=True)
            )
            found.setdefault(key, set()).add(str(sources[at].as_py()))
    return {key: tables for key, tables in found.items() if len(tables) > 1}
