"""Random DDL: the log's table versions and what DDL text alone makes of a table agree with the server."""

from __future__ import annotations

import pytest

from tests.catalog.random_ddl import fuzz
from tests.support.servers import database, drop_database, new_database

STATEMENTS = (60, pytest.param(100, marks=pytest.mark.slow))
SEEDS = {"mysql80": 20263, "mariadb114": 20262}


@pytest.mark.parametrize("statements", STATEMENTS)
@pytest.mark.parametrize("name", SEEDS)
def test_log_text_and_server_agree_after_every_statement(name: str, statements: int) -> None:
    server = database(name)
    schema = new_database(server)
    try:
        tally = fuzz(server, schema, SEEDS[name], statements)
    finally:
        drop_database(server, schema)
    assert tally.differences == [], tally.line
    assert tally.statements == statements
    assert tally.by_log > statements // 2, tally.line
    assert tally.by_text > statements * 3 // 4, tally.line
