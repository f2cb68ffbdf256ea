"""The tables of a MySQL database as SQL statements, one a line, that give every value back exactly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pymysql.converters import escape_string

from devservers import Database

_ROWS_PER_INSERT = 500
_SESSION = (
    "SET SESSION sql_log_bin = 0, foreign_key_checks = 0, unique_checks = 0, sql_mode = 'NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00'"
)


def dump(server: Database, database: str) -> Iterator[str]:
    """Return the statements that make a database with its rows."""
    # Without conversions numbers and times are the server's text.
    with server.connect(conv={}) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION time_zone = '+00:00'")
        cursor.execute(f"USE {database}")
        cursor.execute("SHOW FULL TABLES WHERE Table_type = 'BASE TABLE'")
        tables = [name for name, _ in cursor.fetchall()]
        yield f"CREATE DATABASE {database} CHARACTER SET utf8mb4"
        yield f"USE {database}"
        for table in tables:
            cursor.execute(f"SHOW CREATE TABLE `{table}`")
            yield cursor.fetchone()[1].replace("\n", " ")
            cursor.execute(
                "SELECT column_name, data_type FROM information_schema.columns "
                f"WHERE table_schema = '{database}' AND table_name = '{table}' ORDER BY ordinal_position"
            )
            # The text of a FLOAT has six digits.
            columns = [f"`{name}` + 0e0" if kind == "float" else f"`{name}`" for name, kind in cursor.fetchall()]
            cursor.execute(f"SELECT {', '.join(columns)} FROM `{table}`")
            rows = ["({})".format(", ".join(_literal(value) for value in row)) for row in cursor.fetchall()]
            for begin in range(0, len(rows), _ROWS_PER_INSERT):
                yield f"INSERT INTO `{table}` VALUES {', '.join(rows[begin : begin + _ROWS_PER_INSERT])}"


def load(server: Database, statements: Iterable[str]) -> None:
    """Execute dumped statements without a trace in the server's log."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(_SESSION)
        for statement in statements:
            cursor.execute(statement)


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return f"'{escape_string(str(value))}'"
