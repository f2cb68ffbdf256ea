"""The status variables of a statement in the log: a code each, then a value whose size only the code says.

So nothing behind a variable of an unknown code can be read: the statement is then `unclear`, and no default takes its place.
Source: MySQL 9 `statement_events.h`, MariaDB 11.8 `log_event.h` (codes from 128 on are MariaDB's).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from producer.binlog.byte_reader import Reader

_SQL_MODE: Final = 1
_CATALOG_WITH_ZERO: Final = 2
_CHARSET: Final = 4
_INVOKER: Final = 11
_DATABASES: Final = 12
_GTID_FLAGS: Final = 130
_CHARSET_COLLATIONS: Final = 131
_NO_DATABASES: Final = 254  # too many, or not known: because of a foreign key

_SIZES: Final = {
    0: 4,  # flags
    _SQL_MODE: 8,
    3: 4,  # AUTO_INCREMENT's step and offset
    _CHARSET: 6,
    7: 2,  # names of days and months
    8: 2,  # character set of the database
    9: 8,  # tables of a multi-table UPDATE
    10: 4,  # size of the original event
    13: 3,  # microseconds
    16: 1,  # explicit_defaults_for_timestamp
    17: 8,  # number of the DDL transaction
    18: 2,  # default collation of utf8mb4
    19: 1,  # sql_require_primary_key
    20: 1,  # default_table_encryption
    21: 1,  # how MySQL 9.7 checks foreign keys of a data change
    128: 3,  # microseconds
    129: 8,  # number of the DDL transaction
}
_TEXTS: Final = frozenset({5, 6})  # time zone, catalog: a length byte, then the text


class StatementStatus(NamedTuple):
    """The variables that matter to a reader. `collation` is the client's, 0 where not reported; `databases` as in `QueryEvent`."""

    sql_mode: int | None = None
    collation: int = 0
    databases: tuple[str, ...] | None = None
    unclear: str = ""


def parse_status(reader: Reader) -> StatementStatus:
    """Parse all variables up to the reader's end. Raises `DecodeError` where one ends behind it."""
    sql_mode: int | None = None
    collation = 0
    databases: tuple[str, ...] | None = None
    while reader.left:
        code = reader.uint(1)
        if code == _SQL_MODE:
            sql_mode = reader.uint(8)
        elif code == _CHARSET:
            collation = reader.uint(2)
            reader.skip(4)
        elif code == _DATABASES:
            databases = _databases(reader)
        elif code in _SIZES:
            reader.skip(_SIZES[code])
        elif code in _TEXTS:
            reader.skip(reader.uint(1))
        elif not _skip_structure(reader, code):
            return StatementStatus(sql_mode, collation, databases, f"its status variable {code} is not known")
    return StatementStatus(sql_mode, collation, databases)


def _databases(reader: Reader) -> tuple[str, ...]:
    """Return the databases: a count, then names that end with a zero byte; () where the server does not name them."""
    count = reader.uint(1)
    if count == _NO_DATABASES:
        return ()
    names = tuple(_zero_ended(reader) for _ in range(count))
    return () if "" in names else names


def _zero_ended(reader: Reader) -> str:
    name = bytearray()
    while byte := reader.uint(1):
        name.append(byte)
    return name.decode("utf-8", "backslashreplace")


def _skip_structure(reader: Reader, code: int) -> bool:
    """Pass over a variable of several parts; return whether the code is known."""
    if code == _CATALOG_WITH_ZERO:
        reader.skip(reader.uint(1) + 1)
    elif code == _INVOKER:  # user, host
        reader.skip(reader.uint(1))
        reader.skip(reader.uint(1))
    elif code == _GTID_FLAGS:  # with the number of the START ALTER where it is the COMMIT or the ROLLBACK
        reader.skip(8 if reader.uint(1) & 12 else 0)
    elif code == _CHARSET_COLLATIONS:  # pairs of character set and collation
        reader.skip(4 * reader.uint(1))
    else:
        return False
    return True
