"""Snapshot rows and log events are the same bytes, in every mode and for every writer; see `byte_identity`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import structlog

from tests.codec.byte_identity import run, some_modes
from tests.support.servers import database

log = structlog.get_logger(__name__)
MODES = some_modes(20269, 3 if os.environ.get("NUMBA_DISABLE_JIT", "0") == "0" else 0)


@pytest.mark.parametrize("name", ["mysql57", "mysql80", "mariadb114"])
def test_snapshot_and_log_give_the_same_bytes(name: str, fresh_database: Callable[[Any], str]) -> None:
    server = database(name)
    count = run(server, fresh_database(server), MODES)
    log.info("byte_identity.done", server=name, values=count)
    assert count > 2_000 * len(MODES)
