"""Names and texts as SQL of MySQL and MariaDB."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Return an identifier in backticks, safe inside a statement."""
    return "`" + name.replace("`", "``") + "`"


def qualified(*names: str) -> str:
    """Return the quoted names with dots between them: a table with its database, for one."""
    return ".".join(map(quoted, names))


def text_literal(text: str) -> str:
    """Return a text as a literal that no setting of the session changes."""
    return f"_utf8mb4 X'{text.encode().hex()}'"


def quoted_bytes(data: bytes) -> bytes:
    """Return bytes in quotes, for a session in UTF-8 whose sql_mode lacks NO_BACKSLASH_ESCAPES: shorter than hex digits."""
    return b"'%b'" % data.replace(b"\\", b"\\\\").replace(b"'", b"''")
