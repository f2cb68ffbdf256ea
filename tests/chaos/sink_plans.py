"""The sinks of a round: a seed enters; their types, routes, filters and computed columns leave, and what each target must have.

What a target must have is said a second time here, as SQL for the source, so that a mistake in the plan of the product is seen, too.
Expressions are chosen to mean the same in Spark and in MySQL.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.chaos.load import TABLES

KINDS: Final = ("delta", "iceberg", "postgresql", "mysql", "mariadb", "files", "kafka")
RELATIONAL: Final = frozenset({"postgresql", "mysql", "mariadb"})
CHANGELOGS: Final = frozenset({"files", "kafka"})
SECRETS: Final = "secrets"
"""The table whose column is masked in some rounds."""
SCHEMAS: Final = ("ods", "crm")
"""What the databases of targets begin with."""
SHARES: Final = (3, 2, 2)
"""How many sinks a round has: three rounds have every type."""


@dataclass(frozen=True, slots=True)
class Feed:
    """Source tables on their way into one target. `compared` are columns that all of them have and no DDL changes.

    `into` has `$` where the route takes the name from the source. `computed` are expressions by the name that they give. `matches`
    says of a row of the source what `where` does.
    """

    tables: Sequence[str]
    into: str
    schema: str = "ods"
    star: str = "*"
    computed: Mapping[str, str] = field(default_factory=dict)
    where: str = ""
    matches: Callable[[Mapping[str, Any]], bool] = lambda _row: True
    compared: Sequence[str] = ()
    soft_delete: str = ""
    partition_by: Sequence[str] = ()

    @property
    def has_transform(self) -> bool:
        """Whether the rows become something else, or are kept in another way."""
        return bool(self.computed or self.where or self.soft_delete or self.partition_by or self.star != "*")

    def identity(self, table: str) -> dict[str, str]:
        """Return the column of the target for each key column of the source."""
        left_out = not self.star
        return {f"_tm_key_{name}" if left_out and name not in self.compared else name: name for name in TABLES[table].key}

    def columns(self, table: str) -> dict[str, str]:
        """Return the columns of the target to be compared, and the SQL at the source for each."""
        own = {_in_records(name): _quoted(name) for name in self.compared}
        own |= {"_": "COALESCE(`*`, NULL)"} if "*" in self.compared else {}  # MySQL takes the name alone for all columns
        return own | {name: text.replace("__table__", f"'{table}'") for name, text in self.computed.items()}

    def select(self) -> list[str]:
        """Return the items of `select`."""
        plain = [self.star] if self.star else [_quoted(name) for name in self.compared]
        return [*plain, *(f"{text} AS {name}" for name, text in self.computed.items())]


def _in_records(name: str) -> str:
    """Return the name of a column in records, which allow letters, digits and _."""
    return re.sub(r"\W", "_", name)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


ALIKE: Final = Feed(
    ("cleared", "owners"), "alike", computed={"origin": "__table__"}, where="n % 4 <> 1", matches=lambda row: row["n"] % 4 != 1,
    compared=("id", "n"),
)  # fmt: skip
NUMBERS: Final = Feed(("cleared", "pets", "wide"), "numbers", compared=("id", "n"))
TWICE: Final = (
    Feed(("hot",), "all_$1", compared=("id", "n", "tag")),
    Feed(
        ("hot",), "some", "crm", computed={"twice": "n * 2", "size": "char_length(tag)"}, where="n % 3 <> 0",
        matches=lambda row: row["n"] % 3 != 0, compared=("id", "n", "tag"),
    ),
)  # fmt: skip
"""One table into two targets."""
OTHERS: Final = (
    Feed(
        ("pairs",), "pairs", where="slot >= 0 AND slot % 2 = 0", matches=lambda row: row["slot"] >= 0 and row["slot"] % 2 == 0,
        compared=("id", "slot", "n"),
    ),
    Feed(
        ("words",), "digests", "crm", star="", computed={"digest": "md5(word)"}, where="n % 5 <> 2",
        matches=lambda row: row["n"] % 5 != 2, compared=("n",),
    ),
    Feed(
        ("parts",), "pieces", star="* EXCEPT (pad)", computed={"following": "a + 1", "third": "n % 3"},
        where="b <> 'once' AND a < 1000000", matches=lambda row: row["b"] != "once" and row["a"] < 1_000_000,
        compared=("a", "b", "n"),
    ),
    Feed(("ledger",), "ledger", computed={"day": "CAST(at AS DATE)", "cents": "n * 100"}, compared=("id", "n", "at")),
    Feed(
        ("pets",), "pets", where="owner IS NULL OR owner % 2 = 0",
        matches=lambda row: row["owner"] is None or row["owner"] % 2 == 0, compared=("id", "owner", "sitter", "n"),
    ),
    Feed(("odd *",), "$1", compared=("id", "n", "*", "a b", "c.d", "sel`ect")),
    Feed(("wide",), "wide", compared=("id", "n")),
)  # fmt: skip
_DIVIDED: Final = {"pieces": ("third",), "alike": ("origin",)}
_KEPT: Final = ("pairs", "ledger", "some")


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """One sink of a round. `database` is the one at the source, of which the names of its targets are made."""

    kind: str
    feeds: Sequence[Feed]
    format: str = ""

    @property
    def is_changelog(self) -> bool:
        """Whether it keeps every change instead of the rows."""
        return self.kind in CHANGELOGS

    @property
    def tables(self) -> frozenset[str]:
        """The source tables that go into it."""
        return frozenset(table for feed in self.feeds for table in feed.tables)

    def name(self, database: str) -> str:
        """Return its name: one of its own in databases and brokers that rounds share."""
        return f"{self.kind}_{database}"

    def targets(self, database: str) -> Iterator[tuple[Feed, str, str]]:
        """Yield each feed, and database and table of its target."""
        for feed in self.feeds:
            yield feed, f"{feed.schema}_{database}", feed.into.replace("$1", feed.tables[0])

    def topic(self, database: str, table: str) -> str:
        """Return the topic of a target of this database and table."""
        return re.sub(r"[^A-Za-z0-9._-]", "_", f"{self.name(database)}.{table}")

    def settings(self, database: str, folder: Path, reached: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sink as settings have it; `reached` are the keys that say where its database is."""
        name = self.name(database)
        here = {"work": str(folder / name)} if self.kind in RELATIONAL else {"path": str(folder / name)}
        more = {"mode": "changelog", "format": self.format} if self.is_changelog else {}
        if self.kind == "kafka":
            more["topic"] = f"{name}.$table"
        routes, transforms = self._rules(database)
        return {
            "name": name, "type": self.kind, **here, **reached, **more, "routes": routes, "transforms": transforms, "unrouted": "leave_out",
        }  # fmt: skip

    def _rules(self, database: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        routes, transforms = [], []
        for feed, schema, table in self.targets(database):
            tables = rf"{database}\.({'|'.join(map(re.escape, feed.tables))})"
            routes.append({"tables": tables, "into": f"{schema}.{feed.into}"})
            if feed.has_transform:
                transform: dict[str, Any] = {"tables": tables, "into": re.escape(f"{schema}.{table}"), "select": feed.select()}
                transform |= {"where": feed.where} if feed.where else {}
                transform |= {"soft_delete": feed.soft_delete} if feed.soft_delete else {}
                transform |= {"partition_by": list(feed.partition_by)} if feed.partition_by else {}
                transforms.append(transform)
        return routes, transforms


def kinds_of(seed: int) -> tuple[str, ...]:
    """Return the types of the sinks of a round: of three seeds in a row, the first a multiple of three, each type once."""
    block, number = divmod(seed, len(SHARES))
    kinds = random.Random(f"kinds {block}").sample(KINDS, len(KINDS))
    first = sum(SHARES[:number])
    return tuple(kinds[first : first + SHARES[number]])


def plans_of(seed: int, kinds: Sequence[str] = ()) -> tuple[SinkPlan, ...]:
    """Return the sinks of a round; of the types that its seed draws, unless `kinds` are given."""
    rng = random.Random(f"sinks {seed}")
    return tuple(_plan(kind, rng) for kind in kinds or kinds_of(seed))


def _plan(kind: str, rng: random.Random) -> SinkPlan:
    feeds = [rng.choice((ALIKE, NUMBERS)), *(TWICE if rng.random() < 0.6 else TWICE[1:])]
    feeds += rng.sample(OTHERS, rng.randint(2, 3))
    shape = rng.random()
    if kind not in CHANGELOGS and shape < 0.35:
        feeds = [replace(feed, soft_delete="gone") if feed.into in _KEPT else feed for feed in feeds]
    elif kind in ("delta", "iceberg") and shape < 0.7:
        feeds = [replace(feed, partition_by=_DIVIDED.get(feed.into, ())) for feed in feeds]
    form = {"files": rng.choice(("parquet", "parquet", "changelog-json")), "kafka": "changelog-json"}.get(kind, "")
    return SinkPlan(kind, tuple(feeds), form)
