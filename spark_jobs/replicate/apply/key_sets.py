"""Key sets: the rows of a batch enter, for each its entries leave. Rows that do not commute at the target share an entry.

An entry is a value of a unique key of the target, without NULL, of the old row or the new one. A row also has the entry of the
parent that its foreign key names, if the batch has a change of that parent. Texts are compared as the target does (`value_forms`).

Rows that may meet otherwise share one entry, and so do all rows of their family, the tables that foreign keys tie to theirs:

* a table without a key, with a key of expressions, or with values that have no forms; with system versioning
* with several keys, if rows may be missing or present against the log: in safe mode, and by changes of a table that is loaded
* in a batch that deletes a parent, or changes its key, if the target then changes or deletes its children

A trigger may change any table: a batch with rows of a family that has one is one component.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Final

from mysqlio.definitions.table_parts import KeyPart
from spark_jobs.replicate.apply.target_keys import TargetKeys
from spark_jobs.replicate.apply.value_forms import ValueForms, comparison
from spark_jobs.replicate.rows.row_texts import TableTexts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from schemas.columns import Column
    from spark_jobs.replicate.apply.apply_target import ApplyTarget
    from spark_jobs.replicate.apply.target_keys import ConflictKeys, Key, Reference, Table
    from spark_jobs.replicate.rows.row_statements import TextedRow
    from spark_jobs.replicate.rows.row_texts import Literals
    from spark_jobs.replicate.rows.row_values import RowDecoder

_NO_VALUES: Final = frozenset({b"NULL", b""})
"""The literals of NULL, and of a row that is missing."""
_EVERYTHING: Final = (0,)

_Compared = tuple["Table", KeyPart]
"""A part of a key of a table."""
_Numbers = defaultdict[tuple["Table", "Key"], defaultdict[bytes, int]]
"""The entry of each value of a key."""
_Forms = dict[bytes, bytes | None] | None
"""The form of each literal; None: literals are their own forms."""


class KeySets:
    """The key sets of a task's rows. Use it in one thread. Errors as `TargetKeys`, and `TableTexts`."""

    def __init__(self, target: ApplyTarget, decoder: RowDecoder) -> None:
        self._target = target
        self._decoder = decoder
        self._keys: TargetKeys | None = None
        self._tables: dict[Table, _KeyTable] = {}

    def forget_tables(self) -> None:
        """Ask the target for its keys again: a statement has run."""
        self._keys = None
        self._tables.clear()

    def entries(self, rows: Sequence[TextedRow]) -> list[Collection[int]]:
        """Return the entries of each row. They are the same for the same rows and the same keys."""
        keys = self._target_keys()
        indices: dict[Table, list[int]] = {}
        for index, row in enumerate(rows):
            indices.setdefault(row.event.table, []).append(index)
        if any(map(keys.has_trigger, indices)):
            return [_EVERYTHING] * len(rows)
        batch = _Batch(keys)
        for table, own in indices.items():
            batch.add(self._table(keys, table), own, [rows[index] for index in own])
        return batch.entries(len(rows))

    def _target_keys(self) -> TargetKeys:
        if self._keys is None:
            self._keys = TargetKeys(self._target)
        return self._keys

    def _table(self, keys: TargetKeys, table: Table) -> _KeyTable:
        if table not in self._tables:
            self._tables[table] = _KeyTable(keys.read(table), self._decoder)
        return self._tables[table]


class _KeyTable:
    """A table of the target with the forms of its keys."""

    def __init__(self, keys: ConflictKeys, decoder: RowDecoder) -> None:
        self.keys = keys
        self.forms = {part: self._forms_of(part) for key in keys.keys for part in key}
        self.is_known = keys.is_known and None not in self.forms.values()
        self._texts = TableTexts(keys.schema, decoder)
        self._are_known = cache(self._have_forms)
        finding = tuple(KeyPart(name.lower(), 0) for name in self._texts.key)
        is_plain = all((forms := self.forms.get(part)) is not None and forms.form is None for part in finding)
        self.finds = () if not is_plain or keys.updates else finding
        """The key whose texts the rows have already, if these are its forms."""

    def literals(self, columns: Collection[str], rows: Sequence[TextedRow]) -> dict[str, Literals] | None:
        """Return the literals of columns, None if forms of some are unknown."""
        names = tuple(self.keys.columns[column].name for column in columns)
        checked = (*names, *(self.keys.columns[part.column].name for part in self.finds))
        if not all(self._are_known(schema_id, checked) for schema_id in {row.event.schema_id for row in rows}):
            return None
        return dict(zip(columns, self._texts.literals(names, [row.event for row in rows]), strict=True)) if names else {}

    def _forms_of(self, part: KeyPart) -> ValueForms | None:
        column = self.keys.columns.get(part.column)
        return None if column is None else ValueForms.of(column, part.prefix)

    def _have_forms(self, schema_id: int, names: tuple[str, ...]) -> bool:
        """Return whether the literals of columns are of the kinds that have forms."""
        for column in self._texts.named(schema_id, names):
            forms = ValueForms.of(self.keys.schema.column(column.name), 0)
            if forms is None or column.form is None or column.form.kind not in forms.kinds:
                return False
        return True


@dataclass(slots=True)
class _Rows:
    """The rows of a table in a batch, and the literals of its columns."""

    table: _KeyTable
    indices: list[int]
    rows: list[TextedRow]
    references: list[Reference] = field(default_factory=list)
    literals: dict[str, Literals] = field(default_factory=dict)

    def read(self, tables: Mapping[Table, _Rows]) -> bool:
        """Read the literals; return whether it follows from them which rows meet. The batch has these `tables`."""
        table, keys = self.table, self.table.keys
        if not table.is_known or (keys.deletes and any(row.event.op == "d" for row in self.rows)):
            return False
        if len(keys.keys) > 1 and any(not row.is_strict and row.event.op != "r" for row in self.rows):
            return False  # the row that it finds may have other values than the log says
        self.references = [one for one in keys.references if one.parent in tables]
        if not all(_are_compared_alike(keys, one, tables[one.parent].table.keys) for one in self.references):
            return False
        columns = [part.column for key in keys.keys if key != table.finds for part in key]
        columns += [column for reference in self.references for column in reference.columns]
        literals = table.literals(list(dict.fromkeys(columns)), self.rows)
        self.literals = literals or {}
        return literals is not None and not (keys.updates and self._may_change_children())

    def _may_change_children(self) -> bool:
        if any(row.event.op != "d" and not row.is_strict for row in self.rows):
            return True  # an upsert may find a row with another key
        changed = (self.literals[column] for column in self.table.keys.updates)
        return any(old and new and old != new for literals in changed for old, new in zip(*literals, strict=True))

    def compared(self) -> Iterator[tuple[_Compared, Literals]]:
        """Yield each part of a key with the literals that are compared there."""
        keys = self.table.keys
        for key in keys.keys:
            if key != self.table.finds:
                for part in key:
                    yield (keys.name, part), self.literals[part.column]
        for reference in self.references:
            for part, column in zip(reference.key, reference.columns, strict=True):
                yield (reference.parent, part), self.literals[column]

    def add_keys(self, entries: list[list[int]], forms: Mapping[_Compared, _Forms], numbers: _Numbers) -> None:
        """Add the entries of the table's own keys."""
        name = self.table.keys.name
        for key in self.table.keys.keys:
            if key == self.table.finds:
                texts = [row.texts.old_key for row in self.rows], [row.texts.new_key for row in self.rows]
            else:
                texts = self._texts([(self.literals[part.column], forms[name, part]) for part in key])
            space = numbers[name, key]
            for index, old, new in zip(self.indices, *texts, strict=True):
                if old:
                    entries[index].append(space[old])
                if new and new != old:
                    entries[index].append(space[new])

    def add_parents(self, entries: list[list[int]], forms: Mapping[_Compared, _Forms], numbers: _Numbers) -> None:
        """Add the entries of parents that the batch changes, too."""
        for parent, columns, key in self.references:
            parts = [(self.literals[column], forms[parent, part]) for part, column in zip(key, columns, strict=True)]
            space = numbers[parent, key]
            for index, *texts in zip(self.indices, *self._texts(parts), strict=True):
                entries[index] += [space[text] for text in texts if text in space]

    def _texts(self, columns: Sequence[tuple[Literals, _Forms]]) -> tuple[list[bytes], list[bytes]]:
        old = _key_texts([(literals.old, forms) for literals, forms in columns])
        return old, _key_texts([(literals.new, forms) for literals, forms in columns])


class _Batch:
    """The rows of a batch, table by table."""

    def __init__(self, keys: TargetKeys) -> None:
        self._keys = keys
        self._rows: list[_Rows] = []
        self._joined: dict[Table, int] = {}
        self._numbers = count(1)

    def add(self, table: _KeyTable, indices: list[int], rows: list[TextedRow]) -> None:
        """Add the rows of a table with their indices."""
        self._rows.append(_Rows(table, indices, rows))

    def entries(self, size: int) -> list[Collection[int]]:
        """Return the entries of the rows at each index."""
        tables = {one.table.keys.name: one for one in self._rows}
        for one in self._rows:
            if tables[one.table.keys.name] is not one or not one.read(tables):
                self._join(one.table.keys)
        forms = self._forms(tables)
        entries: list[list[int]] = [[] for _ in range(size)]
        numbers: _Numbers = defaultdict(lambda: defaultdict(self._numbers.__next__))
        apart = [one for one in self._rows if one.table.keys.family not in self._joined]
        for one in apart:
            one.add_keys(entries, forms, numbers)
        for one in apart:
            one.add_parents(entries, forms, numbers)
        for one in self._rows:
            number = self._joined.get(one.table.keys.family)
            if number is not None:
                for index in one.indices:
                    entries[index].append(number)
        return list(entries)

    def _join(self, keys: ConflictKeys) -> None:
        """Let all rows of a family share an entry."""
        if keys.family not in self._joined:
            self._joined[keys.family] = next(self._numbers)

    def _forms(self, tables: Mapping[Table, _Rows]) -> dict[_Compared, _Forms]:
        """Return the forms of the literals of all keys; families with unknown ones are joined."""
        literals: dict[_Compared, set[bytes]] = {}
        for one in self._rows:
            if one.table.keys.family not in self._joined:
                for at, own in one.compared():
                    literals.setdefault(at, set()).update(own.old, own.new)
        forms: dict[_Compared, _Forms] = {}
        for (name, part), compared in literals.items():
            table = tables[name].table
            made = table.forms[part]
            assert made is not None
            if made.form is not None:
                forms[name, part] = of_literals = self._forms_at(made, table.keys.columns[part.column], compared - _NO_VALUES)
                if None in of_literals.values():
                    self._join(table.keys)
            else:
                forms[name, part] = None
        return forms

    def _forms_at(self, made: ValueForms, column: Column, literals: Collection[bytes]) -> dict[bytes, bytes | None]:
        form, weighed = made.form, made.weighed
        forms = {literal: form(literal) for literal in literals} if form is not None else {}
        if weighed is None or None not in forms.values():
            return forms
        texts = {literal: weighed(literal) for literal in literals}
        distinct = list(set(texts.values()))
        weights = dict(zip(distinct, self._keys.weights(column, distinct), strict=True))
        return {literal: weights[text] for literal, text in texts.items()}


def _are_compared_alike(keys: ConflictKeys, reference: Reference, parent: ConflictKeys) -> bool:
    """Return whether the server compares the columns of a foreign key as it compares the parent's."""
    for name, part in zip(reference.columns, reference.key, strict=True):
        column, other = keys.columns.get(name), parent.columns.get(part.column)
        if column is None or other is None or comparison(column) != comparison(other):
            return False
    return True


def _key_texts(columns: Sequence[tuple[Sequence[bytes], _Forms]]) -> list[bytes]:
    """Return the texts of a key from the literals of its columns."""
    parts = [
        [b"" if one in _NO_VALUES else one for one in own]
        if forms is None
        else [b"" if one in _NO_VALUES else forms[one] or b"" for one in own]
        for own, forms in columns
    ]
    if len(parts) == 1:
        return [one and b"(%b)" % one for one in parts[0]]
    return [b"(%b)" % b",".join(row) if all(row) else b"" for row in zip(*parts, strict=True)]
