"""What a DDL statement does to rows that leave no events: a `Statement` enters, one `DdlChange` per table leaves.

The text is a hint; TABLE_MAP metadata decides what columns a table has. But only the text says that stored
rows changed without row events, so a text that is not understood counts as such a change (effect "snapshot").

Effects, weakest first: `none` · `fill` (a column was added, every stored row got the same constant or NULL) ·
`snapshot` (stored values may have changed: read the table again) · `floor` (all older rows are gone).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from mysqlio.definitions.character_sets import charset_name
from mysqlio.definitions.column_definition import ColumnDefinition
from mysqlio.definitions.column_types import is_exact, to_column
from producer.catalog.statements.clauses import (
    AddColumn,
    AddKey,
    ChangeColumn,
    ChangeRows,
    Clause,
    Convert,
    DropColumn,
    DropKey,
    FromQuery,
    RenameColumn,
    RenameTable,
    SetDefault,
    Statement,
    Unclear,
)
from producer.catalog.statements.parse import parse_statement
from schemas.errors import UnknownEventError
from schemas.types.column_facts import Semantic, semantic_of

DdlKind = Literal["create", "alter", "rename", "drop", "truncate", "drop_database", "other"]
Effect = Literal["none", "fill", "snapshot", "floor"]
EFFECTS: Final[tuple[Effect, ...]] = ("none", "fill", "snapshot", "floor")
_PRIMARY: Final = "PRIMARY"
_NO_SUCH_TABLE: Final = 1051  # of several tables those that exist were dropped


@dataclass(frozen=True, slots=True)
class DdlChange:
    """What a statement does to one table.

    `effect` is the safe answer from the text alone; `Catalog.apply` refines it by the old columns.
    `conditional` marks CREATE TABLE IF NOT EXISTS, which may have done nothing; `may_hold_rows` a CREATE of a table that
    can have rows at once. `decided` is the effect of everything but `changed`, `dropped` and `charset`, which depend
    on the old columns. `clauses` is all that the text says about the table, in its order. `is_suspected` marks a table that a
    text which is not understood may name; without a name it is every table of its database.
    """

    kind: DdlKind
    database: str
    table: str
    new_database: str = ""
    new_table: str = ""
    effect: Effect = "none"
    conditional: bool = False
    may_hold_rows: bool = False
    decided: Effect = "none"
    clauses: tuple[Clause, ...] = ()
    is_suspected: bool = False

    @property
    def name(self) -> tuple[str, str]:
        """The database and the name of the table; no name for all tables of a database."""
        return self.database, self.table

    @property
    def new_name(self) -> tuple[str, str]:
        """The new database and name of a table that is renamed."""
        return self.new_database, self.new_table

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """The table, and its new name if it is renamed; none for all tables of a database."""
        return tuple(dict.fromkeys(name for name in (self.name, self.new_name) if name[1]))

    @property
    def added(self) -> tuple[ColumnDefinition, ...]:
        """The columns that the statement adds."""
        return tuple(clause.definition for clause in self.clauses if isinstance(clause, AddColumn))

    @property
    def changed(self) -> tuple[ChangeColumn, ...]:
        """The columns that MODIFY and CHANGE define again."""
        return tuple(clause for clause in self.clauses if isinstance(clause, ChangeColumn))

    @property
    def dropped(self) -> tuple[str, ...]:
        """The columns that the statement drops."""
        return tuple(clause.name for clause in self.clauses if isinstance(clause, DropColumn))

    @property
    def defaults(self) -> tuple[ColumnDefinition, ...]:
        """The defaults that ALTER COLUMN sets and drops."""
        return tuple(clause.definition for clause in self.clauses if isinstance(clause, SetDefault))

    @property
    def charset(self) -> str | None:
        """The character set that the columns are converted to: "default" is the database's; None for no conversion."""
        conversions = [clause for clause in self.clauses if isinstance(clause, Convert)]
        return charset_name(conversions[-1].charset or "default") if conversions else None

    @property
    def is_unclear(self) -> bool:
        """Whether a part of the text about the table is not understood."""
        return any(isinstance(clause, Unclear) for clause in self.clauses)

    @property
    def touches_columns(self) -> bool:
        """Whether the table may have other columns than before, or columns of another type; not: other defaults."""
        return bool(self.added or self.changed or self.dropped or self.charset)


def parse_ddl(
    sql: str,
    default_database: str,
    flavour: str = "mysql",
    *,
    lower_case_names: bool = False,
    sql_mode: int | None = None,
) -> tuple[DdlChange, ...]:
    """Return the changes of a text (`changes_of`), for those who need nothing else of it. Parameters as in `parse_statement`."""
    statement = parse_statement(
        sql, default_database, flavour, lower_case_names=lower_case_names, sql_mode=sql_mode
    )
    return changes_of(statement, flavour)


def changes_of(statement: Statement, flavour: str) -> tuple[DdlChange, ...]:
    """Return the tables that a statement changes, in the order it changes them; one "other" if it changes none.

    It never raises: a statement on a table that is not understood has the effect "snapshot".
    """
    changes = (*_changes(statement, flavour), *_suspected(statement))
    return changes or (DdlChange("other", statement.database, ""),)


def strongest(*effects: Effect) -> Effect:
    """Return the strongest of some effects."""
    return max(effects, key=EFFECTS.index, default="none")


def _changes(statement: Statement, flavour: str) -> Iterator[DdlChange]:
    kind = statement.kind
    if kind in ("create_database", "alter_database"):
        if statement.conditional:
            return  # the database may have been there
        if statement.replaces:
            yield _database_dropped(statement.database)
        yield DdlChange("other", statement.database, "", clauses=statement.clauses)
    elif kind in ("create_trigger", "create_temporary", "drop_temporary"):
        yield DdlChange("other", statement.database, "", clauses=statement.clauses)
    elif kind == "drop_database":
        yield _database_dropped(statement.database)
    elif kind == "create_table":
        yield _created(statement)
    elif kind == "rename_tables":
        for old, new in zip(statement.tables, statement.new_tables, strict=True):
            yield _renamed(old.name, new.name)
    elif kind in ("drop_tables", "truncate"):
        for table in statement.tables:
            yield DdlChange(
                "drop" if kind == "drop_tables" else "truncate", *table.name, effect="floor", decided="floor"
            )
    else:
        for table in statement.tables:
            yield from _altered(statement, table.name, flavour)


def _suspected(statement: Statement) -> Iterator[DdlChange]:
    """Yield a change for each table that a text which is not understood may name."""
    unclear = tuple(statement.of(Unclear))
    for table in statement.suspects:
        yield DdlChange("alter", *table.name, effect="snapshot", decided="snapshot", clauses=unclear, is_suspected=True)


def _created(statement: Statement) -> DdlChange:
    is_from_query = next(statement.of(FromQuery), None) is not None
    effect: Effect = "none" if statement.conditional else "floor"  # the table is empty here, whatever it was before
    if is_from_query:
        effect = "snapshot"
    clauses = tuple(clause for clause in statement.clauses if not isinstance(clause, FromQuery))
    if is_from_query:
        clauses = (*statement.of(AddColumn), Unclear("columns that come from a query"))
    return DdlChange(
        "create",
        *statement.tables[0].name,
        conditional=statement.conditional,
        may_hold_rows=statement.may_have_rows,
        effect=effect,
        decided=effect,
        clauses=clauses,
    )


def _altered(statement: Statement, table: tuple[str, str], flavour: str) -> Iterator[DdlChange]:
    """Yield the change of the table, then those of tables that exchange rows with it, then its new name."""
    decided = strongest(*(_effect(clause, flavour) for clause in statement.clauses))
    change = DdlChange("alter", *table, clauses=statement.clauses)
    added_again = {definition.name.lower() for definition in change.added} & {name.lower() for name in change.dropped}
    if statement.ignores or added_again:
        decided = "snapshot"
    depends = change.changed or change.dropped or change.charset
    effect: Effect = "snapshot" if depends else decided
    yield DdlChange("alter", *table, effect=effect, decided=decided, clauses=statement.clauses)
    for exchange in statement.of(ChangeRows):
        if exchange.other is not None and exchange.is_gone:
            yield DdlChange("drop", *exchange.other.name, effect="floor", decided="floor")
        elif exchange.other is not None:
            yield DdlChange("alter", *exchange.other.name, effect="snapshot", decided="snapshot")
    for rename in list(statement.of(RenameTable))[-1:]:
        yield _renamed(table, rename.table.name)


def _effect(clause: Clause, flavour: str) -> Effect:
    """Return the effect of a clause on stored rows, whatever the old columns were."""
    if isinstance(clause, AddColumn):
        return added_effect(clause.definition, flavour)
    if isinstance(clause, ChangeColumn):
        definition = clause.definition
        renamed = clause.name.lower() != definition.name.lower()
        loses = renamed or definition.primary or definition.generated or not definition.understood
    elif isinstance(clause, AddKey):
        loses = clause.kind == "primary"
    elif isinstance(clause, DropKey):
        loses = clause.name.upper() == _PRIMARY
    else:
        loses = isinstance(clause, ChangeRows | RenameColumn | Unclear)
    return "snapshot" if loses else "none"


def _database_dropped(name: str) -> DdlChange:
    return DdlChange("drop_database", name, "", effect="floor", decided="floor")


def _renamed(old: tuple[str, str], new: tuple[str, str]) -> DdlChange:
    return DdlChange("rename", *old, *new, effect="snapshot", decided="snapshot")


def added_effect(definition: ColumnDefinition, flavour: str) -> Effect:
    """Return the effect of ADD COLUMN on stored rows: "fill" if all get NULL or one constant that is known exactly."""
    if (
        not definition.understood
        or definition.generated
        or definition.auto_increment
        or definition.primary
        or definition.default_is_expression
    ):
        return "snapshot"
    column = to_column(definition, None, flavour)
    if column is None or semantic_of(column) is Semantic.TIMESTAMP:
        nullable_timestamp = column is not None and definition.nullable is True and not definition.has_default
        return "fill" if nullable_timestamp else "snapshot"
    if not definition.has_default:
        return "fill" if column.nullable else "snapshot"
    return "fill" if is_exact(definition, column, flavour) else "snapshot"


# ---- statements that may not have done what their text says: one that failed in part, or whose event is not understood


def doubt_of_error(code: int) -> str:
    """Return the doubt about a statement that failed with this error, "" where what it did is certain."""
    return "" if code in (0, _NO_SUCH_TABLE) else f"it failed with error {code}, and may have done a part of its work"


def doubted(
    changes: Iterable[DdlChange], why: str, matters: Callable[[str, str], bool], exists: Callable[[str, str], bool]
) -> Iterator[DdlChange]:
    """Yield safe changes instead of these. A table that is gone now was dropped, by this statement or a later one.

    Raises `UnknownEventError` for a name that cannot be read, if it may be of a table that `matters`.
    """
    for change in changes:
        if change.kind in ("other", "drop_database"):
            yield change
            continue
        for table in change.names:
            if "\\" in table[0] or ("\\" in table[1] and matters(*table)):
                reason = f"the log has a DDL statement about {'.'.join(table)}, whose name cannot be read: {why}"
                raise UnknownEventError(reason)
            if not matters(*table):
                yield DdlChange("alter", *table, clauses=(Unclear(why),))
            elif change.kind == "drop" and not exists(*table):
                yield change
            else:
                yield DdlChange("alter", *table, effect="snapshot", decided="snapshot", clauses=(Unclear(why),))


def ignored(change: DdlChange) -> DdlChange:
    """Return a change of nothing, in the place of one that is about a temporary table."""
    return replace(change, kind="other", table="", new_database="", new_table="", effect="none", decided="none", clauses=())
