"""One table of a database as a target of a batch.

The steps of a batch, each of which can be repeated (numbers as in the design):

(r1) executors fill a staging table; (r2) columns are changed, where the catalog differs; (r3) begin, share the owner's row, lock
the target's checkpoint row, refuse another epoch, leave out what the batch has done; (r4) the guarded DELETE, UPDATE and INSERT,
then floors and sweeps; (r5) write the checkpoint row, commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.errors import SinkError
from schemas.identity import SourceTable, TableName, Target
from schemas.merge_rule import DueSweep
from schemas.overriding import override
from spark_jobs.decode.record_columns import POSITION, SOURCE
from spark_jobs.sinks.contract import (
    REMEDY,
    Columns,
    CompactionError,
    Evolution,
    MirrorTarget,
    MirrorWriter,
    Winners,
    of_tables,
)
from spark_jobs.sinks.own_target import OwnTarget
from spark_jobs.sinks.relational.checkpoint_rows import EMPTY, CheckpointRows, TargetCheckpoint
from spark_jobs.sinks.relational.sink_connection import DatabaseError, SinkConnection, SinkDatabase
from spark_jobs.sinks.relational.sql_dialect import SERVICE, Dialect, TableColumn
from spark_jobs.sinks.relational.staged_rows import Staged, StagedRows
from spark_jobs.sinks.relational.table_keys import TableKeys
from spark_jobs.sinks.sql_values import INTEGERS, parsed
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.target_shape import PLAIN_SHAPE, TargetShape

MOST_VALUES: Final = 5_000
_WITNESSES: Final = (*INTEGERS, T.DecimalType, T.StringType, T.BinaryType, T.BooleanType, T.DateType, T.TimestampNTZType)
"""Types of keys whose text gives back the very value."""

_TWICE: Final = "a row came twice from the executors"
PUT, FLOOR, EVOLVE, FILL = "put", "floor", "evolve", "fill"


@dataclass(frozen=True, slots=True)
class Relation:
    """What targets of one sink share: the database, its words, its service tables, and the epoch of this opening."""

    database: SinkDatabase
    dialect: Dialect
    rows: CheckpointRows
    staged: StagedRows
    epoch: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Pending:
    """A step that waits for the transaction of its batch."""

    name: str
    stamp: Stamp
    run: Callable[[SinkConnection], None]


class RelationalTarget(OwnTarget, MirrorTarget):
    """A table of a database, in one batch."""

    def __init__(
        self, relation: Relation, name: Target, tables: Sequence[SourceTable], query_id: str, shape: TargetShape = PLAIN_SHAPE
    ) -> None:
        super().__init__(name, tables, query_id)
        self._relation = relation
        self._shape = shape
        self._table = TableName.parse(name.name)
        self._known: list[TableColumn] | None = None
        if self._table.database == SERVICE:
            message = f"{name.name}: {SERVICE} has the sink's own tables in this database: route the table into another one"
            raise SinkError(message)

    @property
    def sql_name(self) -> str:
        """The table in SQL."""
        return self._relation.dialect.table(self._table)

    @override
    def location(self) -> str:
        return f"{self._relation.database.server}/{self._table.plain}"

    @override
    def exists(self) -> bool:
        with self._relation.database.connection() as connection:
            return self._relation.dialect.exists(connection, self._table)

    @override
    def columns(self) -> Columns | None:
        if self._known is None:
            with self._relation.database.connection() as connection:
                if not self._relation.dialect.exists(connection, self._table):
                    return None
                self._known = self._relation.dialect.columns(connection, self._table)
        return [(column.name, column.kind) for column in self._known]

    @override
    def fitting(self, columns: Columns) -> Columns:
        have, dialect, found = dict(self.columns() or ()), self._relation.dialect, []
        with self._relation.database.connection() as connection:
            for name, kind in columns:
                quoted = dialect.quoted(name)
                condition = dialect.lossless(quoted, have[name], kind)
                sql = f"SELECT 1 FROM {self.sql_name} WHERE {quoted} IS NOT NULL"  # noqa: S608
                if not connection.query(f"{sql} {f'AND NOT ({condition})' if condition else ''} LIMIT 1"):
                    found.append((name, kind))
        return found

    # ── trust ────────────────────

    @override
    def trust_again(self, batch_id: int) -> None:
        with self._relation.database.connection() as connection:
            self.require_unchanged(connection, self._relation.rows.read(connection, self._name), batch_id)

    def require_unchanged(self, connection: SinkConnection, found: TargetCheckpoint | None, batch_id: int) -> TargetCheckpoint:
        """Return what the target has; `SinkError` unless it is as this query left it."""
        if found is None:
            message = f"there is a table at {self.location()} that this merge job has not written: {REMEDY}"
            raise SinkError(message)
        self.require_own(found.query_id, found.batch_id, batch_id)
        if not self._is_witnessed(connection, found.witness):
            message = f"somebody replaced the table {self.location()}, or put it back to an earlier state: {REMEDY}"
            raise SinkError(message)
        return found

    def _is_witnessed(self, connection: SinkConnection, witness: Mapping[str, Any]) -> bool:
        """Return whether the row that the last write left is there, with its position."""
        if not witness:
            return True
        if witness == EMPTY:
            return not connection.query(f"SELECT 1 FROM {self.sql_name} LIMIT 1")  # noqa: S608
        dialect, have = self._relation.dialect, dict(self.columns() or ())
        conditions = [f"{dialect.quoted(POSITION)} = '{witness['position']}'"]
        for name, text in witness["key"].items():
            literal = dialect.literal(parsed(text, have[name]), have[name]) if name in have else None
            if literal is not None:
                conditions.append(f"{dialect.quoted(name)} = {literal}")
        try:
            return bool(connection.query(f"SELECT 1 FROM {self.sql_name} WHERE {' AND '.join(conditions)}"))  # noqa: S608
        except DatabaseError as error:
            if error.passes is not None:
                raise
            return False  # the table has other columns, or is none

    @override
    def has_commit(self, batch_id: int) -> bool:
        with self._relation.database.connection() as connection:
            found = self._relation.rows.read(connection, self._name)
            if found is None or not found.has_batch(self.query_id, batch_id):
                return False
            return self._relation.dialect.exists(connection, self._table) and self._is_witnessed(connection, found.witness)

    # ── columns ────────────────────

    @override
    def evolve(self, change: Evolution, stamp: Stamp) -> None:
        """As `MirrorTarget.evolve` says. Where definitions are no part of a transaction, one changes and fills all columns."""
        dialect, missing = self._relation.dialect, change.missing_in(self.columns() or ())
        dialect.require_names(self.location(), [name for name, _, _ in missing.added])
        with self.transaction(stamp) as (connection, found):
            if found.has(stamp, FILL):
                missing = replace(missing, filled=())
            if not missing:
                return
            existing, indexes = dialect.columns(connection, self._table), dialect.indexes(connection, self._table)
            index = next(iter(sorted(indexes, key=lambda one: not one.is_primary)), None)
            statements = dialect.alter_table(self._table, missing, existing, index, dialect.plain_index(connection, self._table))
            if dialect.ddl_is_transactional:
                self._define(connection, statements)
                self._fill(connection, missing, found, stamp)
        self._known = None
        if not dialect.ddl_is_transactional:
            with self._relation.database.connection() as connection:
                self._define(connection, statements)
            with self.transaction(stamp) as (connection, found):
                self._fill(connection, missing, found, stamp)

    def _fill(self, connection: SinkConnection, change: Evolution, found: TargetCheckpoint, stamp: Stamp) -> None:
        """Give the rows of single source tables their values, and note the step."""
        dialect = self._relation.dialect
        kinds = {column.name: column.kind for column in dialect.columns(connection, self._table)}
        for name, source, value in change.filled:
            given, of_source = dialect.literal(value, kinds[name]) or "NULL", dialect.literal(source, T.StringType())
            condition = f"{dialect.quoted(SOURCE)} = {of_source}"
            connection.execute(f"UPDATE {self.sql_name} SET {dialect.quoted(name)} = {given} WHERE {condition}")  # noqa: S608
        step = FILL if change.filled else EVOLVE
        self._relation.rows.write(connection, self._name, found.with_step(stamp, step))

    @staticmethod
    def _define(connection: SinkConnection, statements: Sequence[str]) -> None:
        for statement in statements:
            connection.execute(statement)

    def require_shape(self, winners: Winners, stamp: Stamp) -> None:
        """Make the table if it does not exist; give one with another key an index on the key of these rows."""
        if not self.exists():
            self._make(winners.columns, winners.keys)
            return
        dialect = self._relation.dialect
        with self._relation.database.connection() as connection:
            indexes = dialect.indexes(connection, self._table)
            if any(set(one.columns) == set(winners.keys) for one in indexes if one.is_primary or len(indexes) == 1):
                return
            chosen = self._keys_of(winners.keys).primary
            if any(set(one.columns) == set(chosen) for one in indexes if one.is_primary):
                return
        with self.transaction(stamp):
            pass  # refuses a target that is not ours
        self._apart(dialect.change_key(self._table, self.columns() or (), winners.keys, indexes))

    def refuses_second(self, connection: SinkConnection, identity: Sequence[str]) -> bool:
        """Return whether the database refuses a second row of an identity, whatever else is in the row."""
        indexes = self._relation.dialect.indexes(connection, self._table)
        return any(one.is_primary and set(one.columns) <= set(identity) for one in indexes)

    def _keys_of(self, identity: Sequence[str]) -> TableKeys:
        """Return the keys of the table, of whose rows this is the identity."""
        return TableKeys.of(identity, self._shape.key)

    def _apart(self, statements: Sequence[str]) -> None:
        """Run definitions: all or none, where the database can."""
        with self._relation.database.connection() as connection:
            if self._relation.dialect.ddl_is_transactional:
                with connection.transaction():
                    self._define(connection, statements)
            else:
                self._define(connection, statements)
        self._known = None

    def _make(self, columns: Columns, keys: Sequence[str]) -> None:
        """Make the table without rows. The checkpoint row comes first: a crash between the two leaves a table that is ours."""
        relation, dialect, epoch = self._relation, self._relation.dialect, self._relation.epoch()
        dialect.require_names(self.location(), [self._table.database, self._table.table, *(name for name, _ in columns)])
        with relation.database.connection() as connection:
            with connection.transaction():
                relation.rows.require_epoch(connection, epoch)
                relation.rows.write(connection, self._name, TargetCheckpoint(self.query_id))
            schema = dialect.schema_statement(connection, self._table.database)
        made = dialect.create_table(self._table, columns, self._keys_of(keys))
        self._apart([schema, *made] if schema is not None else made)

    # ── rows ────────────────────

    @contextmanager
    def transaction(self, stamp: Stamp, own: SinkConnection | None = None) -> Iterator[tuple[SinkConnection, TargetCheckpoint]]:
        """Begin (r3), on a connection of the caller's own or on any, and commit at the end: gives it, and what the target has."""
        relation, epoch = self._relation, self._relation.epoch()
        given = relation.database.connection() if own is None else nullcontext(own)
        try:
            with given as connection, connection.transaction():
                relation.rows.require_epoch(connection, epoch)
                found = relation.rows.read(connection, self._name, lock="FOR UPDATE")
                yield connection, self.require_unchanged(connection, found, stamp.batch_id)
        except DatabaseError as error:
            raise error.at(self.location()) from error

    def is_done(self, stamp: Stamp, step: str) -> bool:
        """Return whether a step of this batch took effect."""
        with self._relation.database.connection() as connection:
            found = self._relation.rows.read(connection, self._name)
        return found is not None and found.has(stamp, step)

    @override
    @contextmanager
    def commit(self, stamp: Stamp) -> Iterator[MirrorWriter]:
        """As `MirrorTarget.commit` says. Rows are staged as the steps are called, and all steps take effect at the end, at once."""
        with ExitStack() as session:  # an error closes its connection, and the staging table goes with it
            writer = RelationalWriter(self, self._relation, stamp, self._shape.soft_delete, session)
            yield writer
            writer.apply()

    @override
    def compact(self, stamp: Stamp) -> None:
        try:
            with self._relation.database.connection() as connection:
                connection.execute(self._relation.dialect.analyze(self.sql_name))
        except DatabaseError as error:
            if error.passes is not None:
                raise
            raise CompactionError(str(error)) from error

    def all_columns(self, connection: SinkConnection) -> list[TableColumn]:
        """Return the columns as the catalog has them now."""
        return self._relation.dialect.columns(connection, self._table)

    def witness(self, connection: SinkConnection, known: Mapping[str, Any], staged: Staged | None) -> Mapping[str, Any]:
        """Return a row that is there after these steps, best one of this batch; {} where the key's text is not exact."""
        dialect, quoted = self._relation.dialect, self._relation.dialect.quoted
        indexes = dialect.indexes(connection, self._table)
        keys = staged.keys if staged is not None else next((one.columns for one in indexes), ())
        kinds = {column.name: column.kind for column in self.all_columns(connection)}
        if not keys or not all(isinstance(kinds[key], _WITNESSES) for key in keys):
            return {}
        texts = ", ".join(dialect.text_of(f"t.{quoted(key)}", kinds[key]) for key in keys)
        any_row = f"SELECT {texts}, t.{quoted(POSITION)} FROM {self.sql_name} t"  # noqa: S608
        rows: list[tuple[Any, ...]] = []
        if staged is not None:
            joined = f"JOIN {staged.table} s ON {dialect.match(keys, staged.names)} AND t.{quoted(POSITION)} = s.p AND s.d = 0"
            rows = connection.query(f"{any_row} {joined} LIMIT 1")
        if not rows and known != EMPTY and known and self._is_witnessed(connection, known):
            return known
        rows = rows or connection.query(f"{any_row} LIMIT 1")
        if not rows:
            return EMPTY
        *values, position = rows[0]
        if any(value is None for value in values):
            return {}
        return {"key": dict(zip(keys, map(str, values), strict=True)), "position": str(position)}


class RelationalWriter(MirrorWriter):
    """The steps of a batch in a table: they wait for the one transaction at the end."""

    def __init__(
        self, target: RelationalTarget, relation: Relation, stamp: Stamp, mark: str | None, session: ExitStack
    ) -> None:
        self._session = session
        self._own: SinkConnection | None = None  # has the staging table
        self._mark = mark
        self._target = target
        self._relation = relation
        self._stamp = stamp
        self._pending: list[Pending] = []
        self._staged: Staged | None = None

    @override
    def restamp(self, stamp: Stamp) -> None:
        self._stamp = stamp

    @override
    def put(self, winners: Winners) -> None:
        self._target.require_shape(winners, self._stamp)
        if not self._target.is_done(self._stamp, PUT):
            if self._own is None:
                self._own = self._session.enter_context(self._relation.database.connection())
            self._staged = staged = self._relation.staged.fill(self._own, winners, self._target.location())
            self._pending.append(Pending(PUT, self._stamp, lambda connection: self._merge(connection, staged)))

    def _merge(self, connection: SinkConnection, staged: Staged) -> None:
        """Carry out the guarded statements."""
        dialect, name = self._relation.dialect, self._target.sql_name
        match, at = dialect.match(staged.keys, staged.names), {column: f"s.c{n}" for n, column in enumerate(staged.names)}
        position = (dialect.quoted(POSITION), "s.p")
        changed = [(dialect.quoted(column), value) for column, value in at.items() if column not in staged.keys]
        ours = [column.name for column in self._target.all_columns(connection) if column.is_ours or column.name in at]
        inserted = [(dialect.quoted(column), at.get(column, "NULL")) for column in ours]
        if not self._target.refuses_second(connection, staged.keys):
            self._require_once(connection, staged)
        connection.execute(dialect.delete_staged(name, staged.table, match))
        connection.execute(dialect.update_staged(name, staged.table, match, [*changed, position]))
        try:
            connection.execute(dialect.insert_staged(name, staged.table, match, [*inserted, position]))
        except DatabaseError as error:
            if not error.is_duplicate:
                raise
            reason = f"{_TWICE}, or a unique index of somebody else refuses it"
            raise DatabaseError(f"{reason}: {error}", passes=reason) from error

    @staticmethod
    def _require_once(connection: SinkConnection, staged: Staged) -> None:
        """Refuse rows that came twice where no primary key would: the batch is repeated."""
        keys = ", ".join(f"c{staged.names.index(key)}" for key in staged.keys)
        found = connection.query(f"SELECT 1 FROM {staged.table} GROUP BY {keys} HAVING count(*) > 1 LIMIT 1")  # noqa: S608
        if found:
            raise DatabaseError(_TWICE, passes=_TWICE)

    @override
    def delete_between(self, spans: Mapping[SourceTable, tuple[str, str]]) -> None:
        found: dict[SourceTable, tuple[str, str]] = of_tables(spans, self._target.tables)
        if found:
            self._target.trust_again(self._stamp.batch_id)
            parts = [f"({self._between(first, below, table)})" for table, (first, below) in sorted(found.items())]
            self._pending.append(Pending(FLOOR, self._stamp, partial(self._run, [self._taking(" OR ".join(parts))])))

    @override
    def sweep(self, due: Mapping[SourceTable, Sequence[DueSweep]]) -> None:
        for table, sweeps in sorted(of_tables(due, self._target.tables).items()):
            self._target.trust_again(self._stamp.batch_id)
            statements = [sql for one in sweeps for sql in self._swept(table, one)]
            self._pending.append(Pending(f"sweep {table.text}", self._stamp, partial(self._run, statements)))

    def _swept(self, table: SourceTable, one: DueSweep) -> Iterator[str]:
        """Yield the statements of a sweep. A value that a column's type does not have takes no row."""
        dialect = self._relation.dialect
        named = {name.lower(): (name, kind) for name, kind in self._target.columns() or ()}
        columns = [named[name.lower()] for name in one.sweep.columns]
        tuples = []
        for texts in sorted(one.sweep.values):
            literals = [dialect.literal(parsed(text, kind), kind) for text, (_, kind) in zip(texts, columns, strict=True)]
            known = [literal for literal in literals if literal is not None]
            tuples += [f"({', '.join(known)})"] if len(known) == len(literals) else []
        listed = ", ".join(dialect.quoted(name) for name, _ in columns)
        for start in range(0, len(tuples), MOST_VALUES):
            taken = ", ".join(tuples[start : start + MOST_VALUES])
            yield self._taking(f"{self._between(one.above, one.below, table)} AND ({listed}) IN ({taken})")

    def _taking(self, condition: str) -> str:
        """Return the statement that deletes rows, or marks them in a target with `soft_delete`."""
        if self._mark is None:
            return f"DELETE FROM {self._target.sql_name} WHERE {condition}"  # noqa: S608
        mark = self._relation.dialect.quoted(self._mark)
        return f"UPDATE {self._target.sql_name} SET {mark} = true WHERE NOT {mark} AND ({condition})"  # noqa: S608

    def _between(self, first: str, below: str, table: SourceTable) -> str:
        """Return the condition for the rows of a source table from a position on, and below another."""
        dialect = self._relation.dialect
        older = f"{dialect.quoted(POSITION)} >= '{first}' AND {dialect.quoted(POSITION)} < '{below}'"
        if self._target.source_of(table) is None:
            return older
        return f"{older} AND {dialect.quoted(SOURCE)} = {dialect.literal(table.text, T.StringType())}"

    @staticmethod
    def _run(statements: Sequence[str], connection: SinkConnection) -> None:
        for sql in statements:
            connection.execute(sql)

    def apply(self) -> None:
        """Carry out the steps in one transaction, but for those that an attempt before has carried out."""
        if not self._pending:
            return
        with self._target.transaction(self._stamp, self._own) as (connection, before):
            found, put = before, False
            for step in self._pending:
                if not found.has(step.stamp, step.name):
                    step.run(connection)
                    put = put or step.name == PUT
                    found = found.with_step(step.stamp, step.name)
            witness = self._target.witness(connection, found.witness, self._staged if put else None)
            self._relation.rows.write(connection, self._target.name, replace(found, witness=witness))
        if self._staged is not None:
            self._relation.staged.drop(self._staged)
