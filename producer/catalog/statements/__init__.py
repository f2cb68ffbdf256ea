"""SQL text of the log enters, statements of typed clauses leave: no effects, no judgement, no I/O.

elements, alter_table → parse, by the tokens and column definitions of the client; `classify` needs the first words alone.
"""

from producer.catalog.statements.classify import QueryKind, classify_query, savepoint_name
from producer.catalog.statements.clauses import Statement, TableRef
from producer.catalog.statements.parse import parse_statement

__all__ = [
    "QueryKind",
    "Statement",
    "TableRef",
    "classify_query",
    "parse_statement",
    "savepoint_name",
]
