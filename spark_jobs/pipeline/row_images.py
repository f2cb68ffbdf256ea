"""Transforms: a feed and the columns of its source table enter, an `Image` leaves, which makes a target's rows of the source's.

Expressions are Spark SQL and are bound one by one to the columns of that source table, by Spark's own analyzer. No Spark job runs.
An image is a function of one row: what gives another value when a batch is run again, or needs more than the row, is refused.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Any, Final, NoReturn

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.errors import TransformError
from spark_jobs.decode.record_columns import CHANGE, COMMITTED, DELETED, POSITION, SOURCE
from spark_jobs.decode.spark_types import converted, holds, quoted
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.pipeline.select_items import KEY_PREFIX, STAR, listed_names
from spark_jobs.pipeline.table_routes import Feed
from spark_jobs.spark_errors import expression_error, reason_of

METADATA: Final[Mapping[str, T.DataType]] = {
    "__database__": T.StringType(), "__table__": T.StringType(), "__position__": T.StringType(), "__op__": T.StringType(),
    "__ts__": T.TimestampType(),
}  # fmt: skip
"""What expressions may name besides the columns of the source, with its type. A column of the source with such a name hides it."""
_OF_CHANGE: Final = ("__op__", "__ts__")
_RESERVED: Final = "_tm_"
_OF_NOW: Final = re.compile(r"Current|Now$|LocalTimestamp|InputFile|SparkVersion|Uuid")
_STORED: Final = (
    T.NumericType, T.StringType, T.BinaryType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType, T.ArrayType,
    T.StructType, T.MapType,
)  # fmt: skip
_UNRESOLVED_COLUMN: Final = "UNRESOLVED_COLUMN"
_OF_MORE_ROWS: Final = ("Exists", "ListQuery", "WindowExpression", "UnresolvedWindowExpression")
_VALUE: Final = "value"
_SHOWN: Final = 200
_OF_PATTERNS: Final = re.compile(r"INVALID_PARAMETER_VALUE\.PATTERN|INVALID_DATETIME_PATTERN|PatternSyntaxException")
_OF_ONE_ROW: Final = ("LocalRelation", "LogicalRDD", "Project")


@dataclass(frozen=True, slots=True)
class Item:
    """A column of an image: its name, its type, and the source column it is, or the expression it is computed by.

    With neither it says whether the row is deleted at the source.
    """

    name: str
    kind: T.DataType
    source: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Image:
    """What the rows of one source table are in one target.

    `items` are the columns, those of the identity among them; `keys` the names that the columns of the source's key have there, in
    the order of the key. `where` is the condition, None without one. With `keeps_deleted` a deleted row has the image of its last
    values. `key` are the columns that the target is to have as its key, none for those of the identity. `metadata` are the names of
    `METADATA` that expressions use.
    """

    feed: Feed
    items: tuple[Item, ...]
    keys: tuple[str, ...]
    where: str | None
    keeps_deleted: bool = False
    key: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()

    @property
    def needs_change(self) -> bool:
        """Whether expressions ask for the record of a row: `rows` are to have `CHANGE` and `COMMITTED` then."""
        return any(name in self.metadata for name in _OF_CHANGE)

    @property
    def record_keys(self) -> tuple[str, ...]:
        """The names of the primary key and of the key of records: `key` where it has the identity, else those of the identity."""
        return self.key if set(self.keys) <= set(self.key) else self.keys

    @property
    def required(self) -> frozenset[str]:
        """The columns of the primary key besides the identity: they may not be NULL. The one that marks deleted rows never is."""
        asked = frozenset(self.record_keys) - frozenset(self.keys)
        return frozenset(item.name for item in self.items if item.name in asked and (item.source or item.text))

    @property
    def columns(self) -> tuple[tuple[str, T.DataType], ...]:
        """The columns with their types."""
        return tuple((item.name, item.kind) for item in self.items)

    @property
    def by_source(self) -> dict[str, str]:
        """The name in the target of each column of the source that is there as it is, by lower-case name at the source."""
        found: dict[str, str] = {}
        for item in self.items:
            if item.source is not None:
                found.setdefault(item.source.lower(), item.name)
        return found

    def judged(self, rows: DataFrame, source_names: Sequence[str], flag: str, unless: str | None = None) -> DataFrame:
        """Return the rows with a column `flag`: whether they have no image: they are deleted (and not kept), or do not match.

        `rows` has the columns `source_names` of the source table, `DELETED` and `POSITION`, `CHANGE` and `COMMITTED` with
        `needs_change`, and perhaps others. Rows where the column `unless` is true are not asked, and have the flag.
        """
        is_gone = self._is_gone
        if self.where is None:
            return rows.withColumn(flag, is_gone)
        is_live = ~is_gone if unless is None else ~is_gone & ~F.col(unless)
        extras = self._extras(source_names)
        asked = self._with_metadata(rows)
        if extras:
            asked = asked.withColumns({name: F.when(is_live, F.expr(text)) for name, text in extras.items()})
        matches = F.coalesce(F.expr(self.where), F.lit(False))
        asked = asked.withColumn(flag, F.when(is_live, ~matches).otherwise(F.lit(True)))
        return asked.drop(*self.metadata, *extras)

    def unfit(self, types: Mapping[str, T.DataType]) -> tuple[Item, ...]:
        """Return the columns some of whose values a target may not have; `types` are its columns, with names in small letters."""
        known = ((item, types.get(item.name.lower())) for item in self.items)
        return tuple(item for item, kind in known if kind is not None and not holds(kind, item.kind))

    def failing(
        self, rows: DataFrame, source_names: Sequence[str], flag: str, types: Mapping[str, T.DataType] = MappingProxyType({})
    ) -> DataFrame:
        """Return the rows with a column `flag`: whether an expression that makes their image fails. No expression fails here.

        A value that the column of the target does not have, whose type is in `types`, is such a failure. `rows` is as in `judged`.
        """
        extras = self._extras(source_names)
        asked = self._with_metadata(rows)
        fails = [_fails(F.expr(text)) for text in extras.values()]
        if extras:
            asked = asked.withColumns({name: _tried(F.expr(text)) for name, text in extras.items()})
        matches = F.lit(True)
        if self.where is not None:
            fails.append(_fails(F.expr(self.where)))
            matches = F.coalesce(_tried(F.expr(self.where)), F.lit(False))
        others = [item.text for item in self.items if item.text is not None and item.name not in extras]
        fails += [matches & _fails(F.expr(text)) for text in others]
        fails += [matches & _misfits(item, types[item.name.lower()]) for item in self.unfit(types)]
        fails += [matches & _value_of(item).isNull() for item in self.items if item.name in self.required]
        found = reduce(operator.or_, fails, F.lit(False))
        return asked.withColumn(flag, ~self._is_gone & found).drop(*self.metadata, *extras)

    def misfits(self, row: DataFrame, types: Mapping[str, T.DataType]) -> list[str]:
        """Return the names of the columns of whose values in a row a target with columns of these types has none."""
        items = self.unfit(types)
        if not items:
            return []
        asked = [_misfits(item, types[item.name.lower()]).alias(item.name) for item in items]
        found = self._with_metadata(row).select(*asked).collect()
        return [item.name for item in items if any(one[item.name] for one in found)]

    def of(self, rows: DataFrame, flag: str) -> DataFrame:
        """Return the rows of the target: the columns, `DELETED` and `POSITION`; `rows` is what `judged` returned.

        A row without an image is one that is deleted. Expressions are asked of the others only.
        """
        return self._with_metadata(rows).select(*self._columns(flag), F.col(flag).alias(DELETED), F.col(POSITION))

    def packed(self, rows: DataFrame, flag: str, name: str, kept: Sequence[str]) -> DataFrame:
        """Return the columns `kept` of what `judged` returned, and the image as a struct `name`: NULL where there is none."""
        image = F.when(~F.col(flag), F.struct(*self._columns(flag)))
        return self._with_metadata(rows).select(*kept, image.alias(name))

    def keys_alone(self, keys: Column, names: Sequence[str]) -> Column:
        """Return an image of which only the identity is known. `keys` is a struct of the source's key, with columns `names`."""
        own = dict(zip(self.keys, names, strict=True))

        def column(item: Item) -> Column:
            value = keys.getField(own[item.name]) if item.name in own else F.lit(None).cast(item.kind)
            return value.alias(item.name)

        return F.struct(*[column(item) for item in self.items])

    def _columns(self, flag: str) -> list[Column]:
        has_image = ~F.col(flag)

        def column(item: Item) -> Column:
            if item.name in self.required:
                return F.when(has_image, self._not_null(item)).alias(item.name)
            if item.source is not None:
                return F.col(quoted(item.source)).alias(item.name)
            if item.text is None:
                return F.col(DELETED).alias(item.name)
            return F.when(has_image, F.expr(item.text)).alias(item.name)

        return [column(item) for item in self.items]

    def _not_null(self, item: Item) -> Column:
        value = F.col(quoted(item.source)) if item.source is not None else F.expr(item.text or "")
        message = f"{item.name} is of the key ({', '.join(self.key)}) and NULL: leave it out of key, or compute it with coalesce"
        return F.when(value.isNull(), F.raise_error(F.lit(message))).otherwise(value)

    @property
    def _is_gone(self) -> Column:
        """Whether a row has no image for being deleted."""
        return F.lit(False) if self.keeps_deleted else F.col(DELETED)

    def _with_metadata(self, rows: DataFrame) -> DataFrame:
        if not self.metadata:
            return rows
        table = self.feed.table.name
        values = {
            "__database__": F.lit(table.database),
            "__table__": F.lit(table.table),
            "__position__": F.col(POSITION),
            "__op__": F.col(CHANGE),
            "__ts__": F.timestamp_millis(F.col(COMMITTED)),
        }
        return rows.withColumns({name: values[name] for name in self.metadata})

    def _extras(self, source_names: Sequence[str]) -> dict[str, str]:
        """Return the computed columns that the condition may name: those whose names the source table does not have."""
        taken = {name.lower() for name in (*source_names, *METADATA)}
        return {item.name: item.text for item in self.items if item.text is not None and item.name.lower() not in taken}


def _tried(value: Column) -> Column:
    """Return a value, NULL where its expression fails: what `try_add` and its like are made of."""
    spark = SparkSession.active()
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no other way
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(utils.expression(value._jc))  # noqa: SLF001 - as above
    return Column(utils.column(tried))


def _value_of(item: Item) -> Column:
    """Return the value of a column of an image, NULL where its expression fails."""
    return F.col(quoted(item.source)) if item.source is not None else _tried(F.expr(item.text or ""))


def _misfits(item: Item, kind: T.DataType) -> Column:
    """Return whether the value of a column of an image is none of a type; false where its expression fails."""
    value = _value_of(item)
    return ~value.eqNullSafe(converted(converted(value, item.kind, kind), kind, item.kind))


def _fails(value: Column) -> Column:
    return _tried(F.struct(value.alias(_VALUE))).isNull()


def image_of(spark: SparkSession, feed: Feed, layout: TableLayout) -> Image:
    """Return the image of a table whose rows have this layout.

    Raises `TransformError`, with the path of the key, for an expression that cannot be bound to these columns, that is no function
    of one row, or whose type no sink has.
    """
    transform = feed.transform
    if transform is None:
        items = tuple(Item(name, kind, source=name) for name, kind in layout.columns)
        return Image(feed, items, layout.keys, None)
    binding = _Binding(spark, feed, layout)
    chosen = [item for number, text in enumerate(transform.select or ("*",)) for item in binding.items(number, text)]
    _require_distinct(binding, chosen)
    found = {item.source.lower(): item.name for item in reversed(chosen) if item.source is not None}
    keys: list[str] = []
    for name in layout.keys:
        if name.lower() not in found:
            chosen.append(Item(KEY_PREFIX + name, layout.types[name], source=name))
        keys.append(found.get(name.lower(), KEY_PREFIX + name))
    if transform.where is not None:
        binding.require_condition(transform.where, chosen)
    if transform.soft_delete is not None:
        binding.require_free("soft_delete", transform.soft_delete, chosen)
        chosen.append(Item(transform.soft_delete, T.BooleanType()))
    for setting in ("partition_by", "key"):
        for number, name in enumerate(getattr(transform, setting)):
            binding.require_one_of(f"{setting}.{number}", name, chosen)
    binding.require_key(transform.key, keys, chosen)
    texts = [item.text for item in chosen if item.text is not None] + [transform.where or ""]
    metadata = tuple(name for name in binding.metadata if any(name in text.lower() for text in texts))
    return Image(feed, tuple(chosen), tuple(keys), transform.where, transform.soft_delete is not None, transform.key, metadata)


class _Binding:
    """The columns of one source table, and the key of the settings that is bound to them."""

    def __init__(self, spark: SparkSession, feed: Feed, layout: TableLayout) -> None:
        self._spark = spark
        self._table = feed.table.name.plain
        self._path = f"{feed.target.sink}: transforms.{feed.transform_number}"
        self._layout = layout
        self._has_records = feed.has_records
        self._names = {name.lower(): name for name in layout.names}
        self.metadata = tuple(name for name in METADATA if name not in self._names)
        own = [(name, METADATA[name]) for name in self.metadata]
        fields = [T.StructField(name, kind) for name, kind in (*layout.columns, *own)]
        self._frame = spark.createDataFrame([], T.StructType(fields))

    def items(self, number: int, text: str) -> Iterator[Item]:
        """Yield the columns of an item of `select`."""
        path = f"select.{number}"
        star = STAR.fullmatch(text.strip())
        if star is not None:
            listed = listed_names(star["names"] or "")
            if listed is None:
                self.refuse(path, f"{star['names']!r} is no list of column names")
            left_out = {self._known(path, name) for name in listed}
            yield from (
                Item(name, kind, source=name) for name, kind in self._layout.columns if name.lower() not in left_out
            )
            return
        parsed = self._parsed(path, text)
        name = self._name_of(path, text, parsed)
        inner = parsed.child() if _kind(parsed) == "Alias" else parsed
        if _kind(inner) == "UnresolvedAttribute" and inner.nameParts().length() == 1:
            source = self._names.get(str(inner.nameParts().apply(0)).lower())
            if source is not None:
                yield Item(name, self._layout.types[source], source=source)
                return
        kind = self._type_of(path, text, self._frame)
        if not isinstance(kind, _STORED):
            self.refuse(path, f"{text!r} is of type {kind.simpleString()}, which a column cannot have: CAST it")
        yield Item(name, kind, text=text)

    def require_condition(self, text: str, chosen: Sequence[Item]) -> None:
        """Raise `TransformError` unless the text is a condition over the columns of the source and computed ones of other names."""
        self._parsed("where", text)
        computed = {
            item.name: F.lit(None).cast(item.kind)
            for item in chosen
            if item.text is not None and item.name.lower() not in self._names
        }
        kind = self._type_of("where", text, self._frame.withColumns(computed) if computed else self._frame)
        if not isinstance(kind, T.BooleanType):
            self.refuse("where", f"{text!r} is of type {kind.simpleString()}, and a condition is true or false")

    def require_free(self, path: str, name: str, chosen: Sequence[Item]) -> None:
        """Raise `TransformError` if a column has the name, or it is the sink's own."""
        if name.lower().startswith(_RESERVED):
            self.refuse(path, f"{name!r}: names that begin with {_RESERVED} are the sink's own")
        if name.lower() in {item.name.lower() for item in chosen}:
            self.refuse(path, f"the target has a column {name!r} already: give another name")

    def require_one_of(self, path: str, name: str, chosen: Sequence[Item]) -> None:
        """Raise `TransformError` unless a column of the target has this name, as it is spelled there."""
        if name == SOURCE:
            self.refuse(path, f"{SOURCE} comes by itself, where several tables go into the target: leave it out")
        names = [item.name for item in chosen]
        if name not in names:
            self.refuse(path, f"the target has no column {name!r}{_hint(name, names)}")

    def require_key(self, key: Sequence[str], identity: Sequence[str], chosen: Sequence[Item]) -> None:
        """Raise `TransformError` for a key of nested values, and for one without the identity where targets have records."""
        kinds = {item.name: item.kind for item in chosen}
        for number, name in enumerate(key):
            if isinstance(kinds[name], (T.StructType, T.ArrayType, T.MapType)):
                self.refuse(f"key.{number}", f"{name!r} is of type {kinds[name].simpleString()}, which no key has")
        missing = [name for name in identity if name not in key]
        if missing and key and self._has_records:
            reason = f"{', '.join(missing)} of the identity is not in it, and the key of a record has it"
            self.refuse("key", f"{reason}: add it, or leave key out")

    def refuse(self, path: str, reason: str) -> NoReturn:
        """Raise `TransformError` for a key of the transform."""
        raise TransformError(f"{self._path}.{path}: {reason}")

    def _parsed(self, path: str, text: str) -> Any:
        """Return Spark's tree of an expression, which has none of what an image cannot be made of."""
        parser = self._spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001 - PySpark has no other way
        try:
            parsed = parser.parseExpression(text)
        except (PySparkException, Py4JJavaError) as error:
            self.refuse(path, f"{shown(text)} is no expression of Spark SQL: {reason_of(error)}")
        for node in _walk(parsed):
            if "Star" in _kind(node):
                self.refuse(path, f"{text!r}: a * must be an item of its own, `*` or `* EXCEPT (…)`; name the columns")
            if "Subquery" in _kind(node) or _kind(node) in _OF_MORE_ROWS:
                self.refuse(path, f"{text!r} needs more than the row: compute it downstream")
        return parsed

    def _type_of(self, path: str, text: str, frame: DataFrame) -> T.DataType:
        try:
            found = frame.select(F.expr(text))
            fields = found.schema.fields
        except AnalysisException as error:
            self.refuse(path, self._words_of(text, error))
        except (PySparkException, Py4JJavaError) as error:
            self.refuse(path, f"Spark cannot bind {shown(text)}: {reason_of(error)}")
        plan = found._jdf.queryExecution().analyzed()  # noqa: SLF001 - as above
        if _kind(plan) != "Project" or _kind(plan.child()) not in _OF_ONE_ROW or len(fields) != 1:
            self.refuse(path, f"{text!r} is no function of one row: compute it downstream")
        changing = [
            node for node in _walk(plan.projectList().apply(0)) if not node.deterministic() or _OF_NOW.search(_kind(node))
        ]
        if changing:
            name = changing[-1].prettyName()
            self.refuse(path, f"{name}() gives another value when a batch is run again; compute it from the row")
        self._require_evaluable(path, text, found, frame)
        return fields[0].dataType

    def _require_evaluable(self, path: str, text: str, found: DataFrame, frame: DataFrame) -> None:
        """Raise `TransformError` for an expression that fails on every row: by a constant part, or by a wrong pattern.

        Spark evaluates constant parts when it optimises a plan, and a pattern only with a row. No job runs for either.
        """
        try:
            _optimised(found)
        except (PySparkException, Py4JJavaError) as error:
            self.refuse(path, f"{shown(text)} fails on every row: {expression_error(error)}")
        if not any(mark in text for mark in "'\""):
            return
        try:
            sample = [_sample(field.dataType).alias(field.name) for field in frame.schema.fields]
            _optimised(self._spark.range(1).select(*sample).select(F.expr(text)))
        except (PySparkException, Py4JJavaError) as error:
            if _OF_PATTERNS.search(str(error)):
                self.refuse(path, f"{shown(text)}: {expression_error(error)}")

    def _words_of(self, text: str, error: AnalysisException) -> str:
        """Return what to say of an error of the analyzer."""
        condition = error.getCondition() or ""
        if not condition.startswith(_UNRESOLVED_COLUMN):
            return f"{shown(text)}: {reason_of(error)}"
        name = str((error.getMessageParameters() or {}).get("objectName", "")).replace("`", "")
        close = difflib.get_close_matches(name.lower(), self._names, n=1, cutoff=0.5)
        hint = f"; did you mean {self._names[close[0]]!r}?" if close else f"; it has {', '.join(self._layout.names)}"
        return f"{self._table} has no column {name!r}{hint}"

    def _name_of(self, path: str, text: str, parsed: Any) -> str:
        if _kind(parsed) == "Alias":
            name = str(parsed.name())
        elif _kind(parsed) == "UnresolvedAttribute":
            name = str(parsed.nameParts().last())
            name = self._names.get(name.lower(), name)
        else:
            self.refuse(path, f"{text!r} has no name: write {text} AS name")
        if name.lower().startswith(_RESERVED):
            self.refuse(path, f"{text!r}: names that begin with {_RESERVED} are the sink's own")
        return name

    def _known(self, path: str, name: str) -> str:
        if name.lower() not in self._names:
            self.refuse(path, f"{self._table} has no column {name!r}{_hint(name.lower(), self._names)}")
        return name.lower()


def _require_distinct(binding: _Binding, items: Sequence[Item]) -> None:
    seen: set[str] = set()
    for item in items:
        if item.name.lower() in seen:
            binding.refuse("select", f"two columns have the name {item.name!r}: leave one out, or give it another with AS")
        seen.add(item.name.lower())


def _walk(node: Any) -> Iterator[Any]:
    """Yield a node of a Catalyst tree and all below it, each before those below it. A tree may be deeper than Python's stack."""
    left = [node]
    while left:
        one = left.pop()
        yield one
        children = one.children()
        left += [children.apply(number) for number in reversed(range(children.length()))]


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _optimised(frame: DataFrame) -> None:
    """Have Spark optimise a plan, which evaluates what is constant in it."""
    frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - PySpark has no other way


def _sample(kind: T.DataType) -> Column:
    """Return a value of a type: a text and a number that are patterns of nothing in particular."""
    if isinstance(kind, (T.DateType, T.TimestampType, T.TimestampNTZType)):
        return F.lit("2000-01-01").cast(kind)
    if isinstance(kind, (T.NumericType, T.StringType, T.BinaryType, T.BooleanType)):
        return F.lit("1").cast(kind)
    return F.lit(None).cast(kind)


def _hint(name: str, names: Iterable[str]) -> str:
    """Return the name that is most like another one, as the end of a message; "" if none is."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def shown(text: str) -> str:
    """Return an expression for a message: in quotes, and its beginning alone if it is long."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r} ..."
