"""Sources for the log reader's tests: every server, and each one alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.producers import Source
from tests.support.servers import database

SERVERS = ["mysql80", pytest.param("mysql97", marks=pytest.mark.slow), "mariadb114"]  # what only 9.7 has is tested with `mysql97_source`


@pytest.fixture(params=SERVERS)
def source(request, kafka, fresh_database) -> Iterator[Source]:
    server = database(request.param)
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    yield created
    created.connection.close()


@pytest.fixture
def mysql(kafka, mysql80, fresh_database) -> Iterator[Source]:
    created = Source(mysql80, fresh_database(mysql80), kafka.bootstrap_servers)
    yield created
    created.connection.close()


@pytest.fixture
def mysql97_source(kafka, mysql97, fresh_database) -> Iterator[Source]:
    created = Source(mysql97, fresh_database(mysql97), kafka.bootstrap_servers)
    yield created
    created.connection.close()


@pytest.fixture
def mariadb(kafka, mariadb114, fresh_database) -> Iterator[Source]:
    created = Source(mariadb114, fresh_database(mariadb114), kafka.bootstrap_servers)
    yield created
    created.connection.close()
