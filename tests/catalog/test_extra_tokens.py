"""One more token in a DDL statement: understood as the server does, or unclear; the long form is in `make fuzz`."""

from __future__ import annotations

import pytest

from producer.catalog.effects import parse_ddl
from producer.catalog.statements import parse_statement
from producer.catalog.statements.clauses import SystemVersioning
from tests.catalog.extra_tokens import STATEMENTS, ClauseFuzzer
from tests.support.servers import database

ATTEMPTS = (20, pytest.param(40, marks=pytest.mark.slow))
ELSE = {"VIEW", "SEQUENCE", "TRIGGER", "OR", "ANALYZE", "OPTIMIZE"}
OPAQUE = {"AS", "CHECK", "HASH", "KEY", "RANGE", "THAN", "INTO", "u", "PARTITION"}


@pytest.mark.parametrize("attempts", ATTEMPTS)
@pytest.mark.parametrize("name", ["mysql57", pytest.param("mysql80", marks=pytest.mark.slow), "mariadb114"])
def test_no_token_of_an_accepted_statement_is_passed_over(name: str, attempts: int) -> None:
    fuzzer = ClauseFuzzer(database(name), 3)
    try:
        misreadings = [words for words in (fuzzer.attempt() for _ in range(attempts)) if words]
    finally:
        fuzzer.close()
    assert misreadings == [], fuzzer.counts
    assert fuzzer.counts["states"] > attempts // 2, fuzzer.counts


@pytest.mark.parametrize("statement", [one for one in STATEMENTS if not ELSE & set(one.split(" ")[:2])], ids=str)
def test_a_word_without_a_meaning_is_in_the_tree_or_makes_the_statement_unclear(statement: str) -> None:
    """Behind any word but those of expressions, queries and definitions of partitions: as a name, it has to be in the tree."""
    words = statement.split(" ")
    plain = parse_statement(statement, "db", "mariadb")
    for at in range(1, len(words) + 1):
        if is_opaque(words[:at]):
            continue
        sql = " ".join([*words[:at], "frobnicate", *words[at:]])
        parsed = parse_statement(sql, "db", "mariadb")
        is_unclear = any(change.is_unclear for change in parse_ddl(sql, "db", "mariadb"))
        assert is_unclear or parsed != plain or any(parsed.of(SystemVersioning)), sql


def is_opaque(words: list[str]) -> bool:
    """Whether what follows says nothing of columns: it is in such parentheses, in a query, or the name of an index that has another."""
    opened = [words[at - 1] for at, word in enumerate(words) if word == "(" and words[at:].count("(") > words[at:].count(")")]
    is_named = " ".join(words).endswith(("PRIMARY KEY", "FOREIGN KEY"))
    return bool(set(opened) & OPAQUE) or bool({"SELECT", "AS"} & set(words) and "RENAME" not in words) or is_named
