r"""Connectors with random lists of names, and the names of tables and columns to which each list is applied.

`debezium_name_lists.json` has what Debezium 3.6.1 itself chooses for `random_connectors`: `DebeziumNameLists.java` asked
`RelationalTableFilters`, `ColumnNameFilter`, `ColumnMappers` and `KeyMapper` of the connector's own jars.
`python -m tests.importers.record_name_lists` records it again.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Final

RECORDED: Final = Path(__file__).with_name("debezium_name_lists.json")
SEED: Final = 42
COUNT: Final = 300
DATABASES: Final = ("app_1", "app_99", "APP_2", "shop", "shop_1", "crm", "tmp", "äpp", "a,b")
TABLES: Final = ("orders", "items", "Orders", "customers", "_orders_new", "audit", "t,1", "secret_x")
COLUMNS: Final = ("id", "note", "secret", "SSN", "email")

_DATABASES: Final = (
    r"app_[0-9]+", "app_99", r"app_\d+", "(app|shop)_1", "shop", "shop.*", "^shop$", r"\Qshop\E", "(?i)SHOP", "crm|tmp", "tmp", ".*_1",
    "[a-s&&[^b]]hop", "app_(?!99$).*", "(?!app).*", "Äpp", "äpp", r"a\,b", "(?!.*secret).*", r"\p{Alpha}+", "c?rm++", ".*", r"[^a]\w+",
)  # fmt: skip
_TABLES: Final = (
    "orders", "items", "orders|items", "(orders|items)", ".*", r"\w+", r"_.+_(new|old)", r"\Qorders\E", "(?i)ORDERS", "[a-z]+s", r"t\,1",
    r"(.)\w*\1", "secret.*", "audit", "(?!audit)[a-z]+", "[^_].*", "cust(?:omers)?", r"[\w&&[^_]]+", "it{1}ems", "(?s).+", "o(?i:RDERS)",
    r"\p{Upper}rders", "(?<n>o)rder[s]", "order(?=s)s",
)  # fmt: skip
_COLUMNS: Final = ("id", "note", "secret", "ssn|secret", "(ssn|email)", ".*", "[^i].*", r"\Qnote\E", "(?!id$).*", "e\\w+", "(?i)SECRET")
_DOTS: Final = (r"\.", r"\.", r"\.", ".", "[.]")


def names_of_tables() -> list[tuple[str, str]]:
    """Return every table."""
    return [(database, table) for database in DATABASES for table in TABLES]


def random_connectors() -> list[dict[str, str]]:
    """Return the lists of the connectors, each with properties that Debezium accepts together."""
    rng = random.Random(SEED)
    return [_connector(rng) for _ in range(COUNT)]


def recorded() -> list[tuple[dict[str, str], dict[str, Any]]]:
    """Return each connector with what Debezium chose for it, or the error that it had."""
    return [(one["properties"], one) for one in json.loads(RECORDED.read_text("utf-8"))]


def _connector(rng: random.Random) -> dict[str, str]:
    found: dict[str, str] = {}
    if rng.random() < 0.6:
        found[f"database.{rng.choice(('include', 'exclude'))}.list"] = _list(rng, lambda: _alternatives(rng, _DATABASES))
    if rng.random() < 0.7:
        found[f"table.{rng.choice(('include', 'exclude'))}.list"] = _list(rng, lambda: _table(rng))
    if rng.random() < 0.5:
        found[f"column.{rng.choice(('include', 'exclude'))}.list"] = _list(rng, lambda: _column(rng))
    for name in (
        "column.truncate.to.5.chars", "column.mask.with.4.chars", "column.mask.hash.SHA-256.with.salt.a",
        "column.mask.hash.v2.SHA-256.with.salt.b",
    ):  # fmt: skip
        if rng.random() < 0.25:
            found[name] = _list(rng, lambda: _column(rng))
    return found


def _list(rng: random.Random, item: Any) -> str:
    space = rng.choice(("", "", " ", "\t "))
    return f"{space},{space}".join(item() for _ in range(rng.choice((1, 1, 2, 3))))


def _alternatives(rng: random.Random, parts: tuple[str, ...]) -> str:
    return "|".join(rng.choice(parts) for _ in range(rng.choice((1, 1, 1, 2, 3))))


def _table(rng: random.Random) -> str:
    one = "|".join(
        f"{_part(rng, _DATABASES)}{rng.choice(_DOTS)}{_part(rng, _TABLES)}" for _ in range(rng.choice((1, 1, 2, 3)))
    )
    return rng.choice((one, one, f"({one})", f"^{one}$"))


def _column(rng: random.Random) -> str:
    return "|".join(
        f"{_part(rng, _DATABASES)}{rng.choice(_DOTS)}{_part(rng, _TABLES)}{rng.choice(_DOTS)}{_part(rng, _COLUMNS)}"
        for _ in range(rng.choice((1, 1, 2)))
    )


def _part(rng: random.Random, parts: tuple[str, ...]) -> str:
    part = rng.choice(parts)
    return f"(?:{part})" if "|" in part and rng.random() < 0.7 else part
