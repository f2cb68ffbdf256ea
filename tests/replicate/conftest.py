"""Sources for tests of tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.producers import Source
from tests.support.servers import database


@pytest.fixture(params=["mysql80"])
def source(request, kafka, fresh_database) -> Iterator[Source]:
    server = database(request.param)
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    yield created
    created.connection.close()
