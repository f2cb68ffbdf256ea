"""The whole list of what is meant to differ from Debezium: Tidemark's own, and what only these scenarios show."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from conformance.comparison import Comparison
from conformance.difference import Difference
from conformance.intended_differences import DIFFERENCES as GENERAL
from conformance.pairing import is_read
from conformance.schema_differences import is_in_other_zone

SALT: Final = "abc"  # of the scenario that hashes
DESCRIBED: Final = ("types", "keys", "modes", "ddl")
"""The databases whose statements are compared; others may be there before, and only Debezium reports them."""
ZONE: Final = "+02:00"
"""Of the server of the scenario `random`."""
FOLLOWED: Final = frozenset({*DESCRIBED, "mconf", "", None})


def _hashed(debezium: Any, ours: Any) -> bool:
    return isinstance(debezium, str) and ours == hashlib.sha256((SALT + debezium).encode()).hexdigest()


DIFFERENCES: Final = (
    *GENERAL,
    Difference(
        "TIMESTAMP defaults are in UTC, those of this zone",
        r"schema",
        lambda debezium, ours: is_in_other_zone(debezium, ours, ZONE),
        "the zone of this server is known",
        scenarios="random",
    ),
    Difference(
        "the version of Debezium is 3.6.1.Final",
        r"source\.version",
        lambda debezium, ours: (debezium, ours) == ("3.5.0.Final", "3.6.1.Final"),
        "the contract is one; the newest release of Debezium's connector for MariaDB is 3.5.0",
        ops="rcudtks",
        scenarios="mariadb.*",
    ),
    Difference(
        "a rolled back XA transaction is not published",
        r"record",
        lambda debezium, _ours: debezium == {"id": 21},
        "Debezium publishes rows at XA PREPARE and never takes them back; ours come at XA COMMIT",
        scenarios="tx",
    ),
    Difference(
        "only captured tables are reported at the start",
        r"statement",
        lambda debezium, _ours: is_read(debezium) and debezium["databaseName"] not in FOLLOWED,
        "Debezium reports all tables there are, unless `schema.history.internal.store.only.captured.tables.ddl` is set",
        ops="s",
        scenarios="statements.*",
    ),
    Difference(
        "masks are applied to keys",
        r"masked",
        _hashed,
        "Debezium masks the columns of rows only: the key of the record shows what the row hides",
        ops="kr",
        scenarios="masks.*",
    ),
)


def unneeded(comparisons: Iterable[Comparison]) -> list[str]:
    """The intended differences that no record of any comparison showed: they have to go from the list."""
    seen: Counter[Difference] = Counter()
    for comparison in comparisons:
        seen.update(comparison.intended)
    return [difference.name for difference in DIFFERENCES if not seen[difference]]
