"""Every block of the documentation is run: on a real shop, with real servers, producer and merge job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from devservers import start_kafka, start_registry
from tests.docs.doc_blocks import PAGES, Page, page_of
from tests.docs.doc_execution import execute
from tests.docs.doc_site import Site, site_of
from tests.support.servers import kafka_server, own_database, registry_server

README, *REST = [page_of(path) for path in PAGES]
QUICK = {"docs/connect.md", "docs/consumers.md", "docs/lake.md", "docs/snapshots.md"}
"""Pages that `make test` runs beside the README; the others are run by `make test-all`."""


@pytest.fixture(scope="module", params=["mysql80", pytest.param("mariadb114", marks=pytest.mark.slow)])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The site after all that the README says was done on it."""
    folder = tmp_path_factory.mktemp("docs")
    database = own_database(request.param, "docs")
    with ExitStack() as stack:
        if request.param == "mysql80":
            kafka, registry = kafka_server(), registry_server()
        else:  # topics have the names of the pages: each site has a broker of its own
            kafka, registry = stack.enter_context(start_kafka(folder)), stack.enter_context(start_registry(folder))
        site = stack.enter_context(site_of(database, kafka, registry, folder / "site"))
        execute(README, site, flavour=database.flavour)
        site.shell("tidemark signal resume-snapshot")  # the README pauses, and names what continues
        yield site


def needs_servers(page: Page) -> bool:
    return "test" not in page.options and any(not block.shown and "test" not in block.options for block in page.blocks)


def test_every_block_of_the_readme_is_executed(shop: Site) -> None:
    assert shop.services.keys() == {"run", "merge"}


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.name, marks=() if page.name in QUICK else pytest.mark.slow) for page in REST if needs_servers(page)],
)
def test_every_block_of_a_page_is_executed(page: Page, shop: Site) -> None:
    execute(page, shop, flavour=shop.database.flavour)
