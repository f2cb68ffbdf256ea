"""The keys of a target's tables, as the target has them: by them two rows meet there.

Names of databases, tables and columns are in small letters, as servers without case in names may have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from mysqlio.definitions.table_parts import KeyPart
from mysqlio.foreign_key_facts import SILENT_RULES, list_foreign_keys
from mysqlio.information_schema import read_table_facts
from mysqlio.server_facts import is_mariadb
from schemas.errors import SinkError
from spark_jobs.replicate.apply.compaction import VERSIONED
from spark_jobs.replicate.apply.value_forms import without_blanks

if TYPE_CHECKING:
    from mysqlio.foreign_key_facts import ForeignKey
    from mysqlio.information_schema import TableFacts
    from schemas.columns import Column, TableSchema
    from spark_jobs.replicate.apply.apply_target import ApplyTarget

Table = tuple[str, str]
"""Database and name."""

_TRIGGERS: Final = "SELECT DISTINCT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE FROM information_schema.TRIGGERS"
_MOST_WEIGHED: Final = 500
_MOST_BYTES: Final = 1 << 16
_UNKNOWN: Final = "?"


Key = tuple[KeyPart, ...]


class Reference(NamedTuple):
    """A foreign key: the columns of the child, and the key of the parent."""

    parent: Table
    columns: tuple[str, ...]
    key: Key


@dataclass(frozen=True, slots=True)
class ConflictKeys:
    """A table: the keys by which its rows meet others.

    Tables of one `family` are tied by foreign keys. `keys` are the unique ones, and those that children refer to. Unless
    `is_known`, rows may meet otherwise. `deletes`, `updates`: a delete of a row, or another value in one of these columns, may
    change children.
    """

    name: Table
    schema: TableSchema
    family: Table
    keys: tuple[Key, ...]
    references: tuple[Reference, ...]
    is_known: bool
    deletes: bool
    updates: frozenset[str]
    columns: Mapping[str, Column]


class TargetKeys:
    """Asks the target for the keys of tables. Errors as `ApplyTarget.rows`."""

    def __init__(self, target: ApplyTarget) -> None:
        self._target = target
        keys = list_foreign_keys(target.connection)
        self._children: dict[Table, list[ForeignKey]] = {}
        self._parents: dict[Table, list[ForeignKey]] = {}
        for key in sorted(keys, key=lambda one: (one.child, one.name)):
            self._children.setdefault(_lower(key.child), []).append(key)
            self._parents.setdefault(_lower(key.parent), []).append(key)
        self._families = _families(keys)
        self._triggered = {self._family(_lower((str(schema), str(table)))) for schema, table in target.rows(_TRIGGERS)}

    def has_trigger(self, table: Table) -> bool:
        """Return whether a change of the table, or of those tied to it, may change any other."""
        return self._family(_lower(table)) in self._triggered

    def read(self, table: Table) -> ConflictKeys:
        """Return the keys of a table. `SinkError`: it does not exist."""
        facts = read_table_facts(self._target.connection, *table)
        if facts is None:
            raise SinkError(f"the target has no table {'.'.join(table)} any more: create it there, as it was")
        name = _lower(table)
        referring = self._parents.get(name, [])
        keys = [_parts(facts, key.name) for key in facts.keys if key.unique]
        keys += [_whole(key.referenced) for key in referring]
        schema = facts.schema
        has_key = bool(schema.primary_key or schema.unique_key)
        return ConflictKeys(
            name,
            schema,
            self._family(name),
            tuple(dict.fromkeys(keys)),
            tuple(map(_reference, self._children.get(name, []))),
            has_key and not VERSIONED.search(self._target.definition(*table)),
            any(key.on_delete in SILENT_RULES for key in referring),
            frozenset(name for key in referring if key.on_update in SILENT_RULES for name in _small(key.referenced)),
            {column.name.lower(): column for column in schema.columns},
        )

    def _family(self, name: Table) -> Table:
        return self._families.get(name, name)

    def weights(self, column: Column, literals: Sequence[bytes]) -> list[bytes | None]:
        """Return for each text the weights by which the column's collation compares it, None if the server does not say."""
        level = " LEVEL 1" if is_mariadb(self._target.connection) else ""
        text = f"CONVERT({{}} USING {column.charset}) COLLATE {column.collation}"
        weight = f"COALESCE(HEX(WEIGHT_STRING({text}{level})), '{_UNKNOWN}')"
        (blank,) = self._weigh(weight, [b"' '"])
        made = list[bytes | None]()
        for some in _portions(literals):
            for text in self._weigh(weight, some):
                made.append(None if text == _UNKNOWN else b"'%b'" % without_blanks(text, blank).encode())
        return made

    def _weigh(self, weight: str, literals: Sequence[bytes]) -> list[str]:
        asked = ",".join(weight.format(literal.decode()) for literal in literals)
        ((texts,),) = self._target.rows(f"SELECT CONCAT_WS(',', {asked})")
        answers = [] if texts is None else str(texts).split(",")
        return answers if len(answers) == len(literals) else [_UNKNOWN] * len(literals)


def _lower(table: Table) -> Table:
    return table[0].lower(), table[1].lower()


def _small(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)


def _whole(columns: Iterable[str]) -> Key:
    return tuple(KeyPart(name, 0) for name in _small(columns))


def _reference(key: ForeignKey) -> Reference:
    return Reference(_lower(key.parent), _small(key.columns), _whole(key.referenced))


def _parts(facts: TableFacts, index: str) -> Key:
    key = next(one for one in facts.keys if one.name == index)
    return tuple(KeyPart(part.column.lower(), part.prefix) for part in key.parts)


def _families(keys: Iterable[ForeignKey]) -> dict[Table, Table]:
    """Return for each table with a foreign key, to it or from it, one table of those that it is tied to, always the same."""
    tied: dict[Table, set[Table]] = {}
    for key in keys:
        child, parent = _lower(key.child), _lower(key.parent)
        tied.setdefault(child, set()).add(parent)
        tied.setdefault(parent, set()).add(child)
    families: dict[Table, Table] = {}
    for first in sorted(tied):
        waiting = [] if first in families else [first]
        while waiting:
            table = waiting.pop()
            if table not in families:
                families[table] = first
                waiting += tied[table]
    return families


def _portions(literals: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Yield the literals in portions that a statement takes."""
    some, size = list[bytes](), 0
    for literal in literals:
        if some and (len(some) >= _MOST_WEIGHED or size + len(literal) > _MOST_BYTES):
            yield some
            some, size = [], 0
        some.append(literal)
        size += len(literal)
    if some:
        yield some
