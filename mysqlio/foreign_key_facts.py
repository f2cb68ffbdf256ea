"""Foreign keys as the server's information_schema has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mysqlio.server_facts import ask
from schemas.identity import TableId

if TYPE_CHECKING:
    from mysqlio.connection import Connection

SILENT_RULES: Final = frozenset({"CASCADE", "SET NULL", "SET DEFAULT"})
"""The rules by which a change of a parent changes its children."""
_RULES: Final = """
    SELECT r.CONSTRAINT_SCHEMA, r.TABLE_NAME, r.CONSTRAINT_NAME, r.DELETE_RULE, r.UPDATE_RULE,
        k.COLUMN_NAME, k.REFERENCED_TABLE_SCHEMA, k.REFERENCED_TABLE_NAME, k.REFERENCED_COLUMN_NAME
    FROM information_schema.REFERENTIAL_CONSTRAINTS AS r
    JOIN information_schema.KEY_COLUMN_USAGE AS k
        ON k.CONSTRAINT_SCHEMA = r.CONSTRAINT_SCHEMA AND k.CONSTRAINT_NAME = r.CONSTRAINT_NAME
        AND k.TABLE_SCHEMA = r.CONSTRAINT_SCHEMA AND k.TABLE_NAME = r.TABLE_NAME
    WHERE k.REFERENCED_TABLE_NAME IS NOT NULL
    ORDER BY r.CONSTRAINT_SCHEMA, r.TABLE_NAME, r.CONSTRAINT_NAME, k.ORDINAL_POSITION"""


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """`columns` of `child` have the values of `referenced` of `parent`; rules as SQL has them."""

    name: str
    child: TableId
    columns: tuple[str, ...]
    parent: TableId
    referenced: tuple[str, ...]
    on_delete: str
    on_update: str

    @property
    def is_silent(self) -> bool:
        """Whether a change of a parent may change children."""
        return self.on_delete in SILENT_RULES or self.on_update in SILENT_RULES


def list_foreign_keys(connection: Connection) -> set[ForeignKey]:
    """Return the foreign keys that the user may see."""
    by_name: dict[tuple[str, str, str], list[tuple[str, ...]]] = {}
    for row in ask(connection, _RULES):
        texts = tuple(str(value) for value in row)
        by_name.setdefault((texts[0], texts[1], texts[2]), []).append(texts)
    return set(map(_foreign_key, by_name.values()))


def _foreign_key(parts: list[tuple[str, ...]]) -> ForeignKey:
    database, table, name, on_delete, on_update, _, parent_database, parent, _ = parts[0]
    return ForeignKey(
        name,
        (database, table),
        tuple(part[5] for part in parts),
        (parent_database, parent),
        tuple(part[8] for part in parts),
        on_delete.upper(),
        on_update.upper(),
    )
