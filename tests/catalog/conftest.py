"""The fixture of the tests that read the log of a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.catalog.logged_source import Source, catalog_of
from tests.support.servers import database as start
from tests.support.servers import drop_database, new_database


@pytest.fixture(params=["mysql80", "mariadb114"])
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    server = start(request.param)
    name = new_database(server)
    made = Source(server, name, server.connect(), catalog_of(server))
    made.run(f"USE {name}", "SET SESSION time_zone = '+05:30'", "SET SESSION sql_mode = ''")
    yield made
    made.user.close()
    drop_database(server, name)
