"""The keys `routes` and `transforms` of a sink: which table of the source goes into which target, and as what (DESIGN §9.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.settings.declaration import check_patterns, checking, compiled, found_by, problem, setting

PLACEHOLDER: Final = re.compile(r"\$(?:(\d+)|([A-Za-z_]\w*)|\{(\w+)\})")
NAMES: Final = ("database", "table")
_TARGET_PARTS: Final = 2
_MOST_KEY_COLUMNS: Final = 15  # MySQL allows 16, and `_tm_source` may be added
_UDF_NAME: Final = re.compile(r"[A-Za-z]\w*", re.ASCII)
_UDF_PATH: Final = re.compile(r"[\w.]+:\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSettings:
    """One route: the tables of the source that it takes, and the target they go into."""

    tables: str = setting(help="regular expression on `database.table`, which it matches whole; upper and lower case are alike")
    into: str = setting(
        help="the target, `database.table`: `$1` is the first group of `tables` (`${1}` where a digit or letter follows), "
        "`$database` and `$table` are the names at the source. Several tables may go into one target, and one into several"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformSettings:
    """What the rows of some tables become in some targets. Of a sink's transforms the first that matches a table counts."""

    tables: str = setting(help="regular expression on `database.table`, which it matches whole")
    into: str | None = setting(None, help="regular expression on the target; without it, every target of the tables")
    select: tuple[str, ...] = setting(
        (),
        help="columns of the target, each an expression of Spark SQL over one row: `id`, `amount * 100 AS cents`, `*`, "
        "`* EXCEPT (note)`. `__database__` and `__table__` are the names at the source; `__op__` (`c`, `u`, `d`, or `r` for a row "
        "that a snapshot has read), `__ts__` (when the source committed it; NULL for `r`) and `__position__` are of the newest "
        "record of the row. Empty: all columns",
    )
    where: str | None = setting(
        None,
        help="condition of Spark SQL over the columns of the source, and computed ones with other names: a row that does not match "
        "(also where the condition is NULL) is not in the target, and leaves it when it stops matching",
    )
    key: tuple[str, ...] = setting(
        (),
        help="columns of the target: its primary key, and the key of records in a topic, where the identity is among them; else "
        "a plain index of a database. Rows are merged by their identity, whatever the key. The same for all tables of a target",
    )
    soft_delete: str | None = setting(
        None,
        help="name of a column: a row that is deleted at the source stays in the target with its last values, and this column is "
        "true. The same for all tables of a target",
    )
    partition_by: tuple[str, ...] = setting(
        (), help="columns of the target that its files are divided by, from its first batch on. The same for all tables of a target"
    )
    options: Mapping[str, str] = setting(
        {}, help="properties that the target gets when it is made, as the sink names them. The same for all tables of a target"
    )

    @property
    def makes_target(self) -> bool:
        """Whether it says how the target is made and kept."""
        return bool(self.soft_delete is not None or self.partition_by or self.options or self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class UdfSettings:
    """A Python function for expressions of transforms."""

    name: str = setting(help="name in expressions")
    function: str = setting(
        help="`module:function`. The module is imported where `tidemark merge` runs, also from its working directory. The function "
        "gets the values of its arguments, None for NULL, and always returns the same for the same values"
    )
    returns: str = setting(help="type of what it returns, as Spark SQL names it: `string`, `bigint`, `decimal(10,2)`")


@checking
def check_udfs(udfs: Sequence[UdfSettings]) -> Iterator[str]:
    """Raise `ConfigError` for a name that is none, or given twice, and for a function without its module."""
    names = [udf.name.lower() for udf in udfs]
    for number, udf in enumerate(udfs):
        if _UDF_NAME.fullmatch(udf.name) is None:
            yield problem(f"udfs.{number}.name", f"{udf.name!r} is no name of a function: letters, digits and _, a letter first")
        if names.index(udf.name.lower()) < number:
            yield problem(f"udfs.{number}.name", f"two functions are named {udf.name!r}")
        if _UDF_PATH.fullmatch(udf.function) is None:
            yield problem(f"udfs.{number}.function", f"{udf.function!r} is not of the form module:function")


@checking
def check_routes(path: str, routes: Sequence[RouteSettings], transforms: Sequence[TransformSettings]) -> Iterator[str]:
    """Raise `ConfigError` for a pattern that is none, a target that is no name, and a transform that changes nothing."""
    for number, route in enumerate(routes):
        where = f"{path}.routes.{number}"
        wrong = tuple(found_by(check_patterns, f"{where}.tables", [route.tables]))
        yield from wrong or found_by(_check_target, f"{where}.into", route)
    for number, transform in enumerate(transforms):
        where = f"{path}.transforms.{number}"
        yield from found_by(check_patterns, f"{where}.tables", [transform.tables])
        if transform.into is not None:
            yield from found_by(check_patterns, f"{where}.into", [transform.into])
        if not (transform.select or transform.where is not None or transform.makes_target):
            yield problem(where, "changes nothing: give it select, where, key, soft_delete, partition_by or options")
        if transform.soft_delete is not None and not transform.soft_delete.strip():
            yield problem(f"{where}.soft_delete", "is empty: give the name of a column")
        yield from found_by(_check_key, f"{where}.key", transform.key)


@checking
def _check_key(path: str, key: Sequence[str]) -> Iterator[str]:
    twice = next((name for number, name in enumerate(key) if name in key[:number]), None)
    if twice is not None:
        yield problem(path, f"names {twice!r} twice")
    if len(key) > _MOST_KEY_COLUMNS:
        yield problem(path, f"names {len(key)} columns, and an index has {_MOST_KEY_COLUMNS} at most")


@checking
def _check_target(path: str, route: RouteSettings) -> Iterator[str]:
    parts = route.into.split(".")
    if len(parts) != _TARGET_PARTS or not all(parts):
        yield problem(path, f"{route.into!r} is no target: it has the form database.table, with one dot")
        return
    groups = compiled(route.tables).groups
    for found in PLACEHOLDER.finditer(route.into):
        name = found[1] or found[2] or found[3]
        if name.isdigit():
            if not 0 < int(name) <= groups:
                yield problem(path, f"{route.into!r} names group {name}, {route.tables!r} has {groups}")
        elif name not in NAMES:
            named = " and ".join(f"${one}" for one in NAMES)
            yield problem(path, f"{route.into!r} names ${name}: there are $1 to $9 for groups, {named}")
    if "$" in PLACEHOLDER.sub("", route.into):
        yield problem(path, f"{route.into!r} has a $ without a name: write $1, $database or $table")
