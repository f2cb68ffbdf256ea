"""The barrier that verify writes into the log: no reader of signals answers it, and a user who may not delete can write it."""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import replace

import pytest

from producer.snapshot.watermark import window_of
from schemas.signals import WINDOW_TYPES
from tests.verify.conftest import Scene
from tidemark.verify.report import TableReport, VerifyReport
from tidemark.verify.source import Source


@pytest.mark.parametrize("deletes", [True, False])
def test_a_barrier_is_a_window_of_nobody_and_needs_no_right_to_delete(scene: Scene, deletes: bool) -> None:
    user = f"barrier_{deletes}".lower()
    rights = "SELECT, INSERT, DELETE" if deletes else "SELECT, INSERT"
    scene.sql(
        f"CREATE USER IF NOT EXISTS {user} IDENTIFIED BY 'barrier'",
        f"GRANT {rights} ON {scene.database}.tidemark_signal TO {user}",
        f"GRANT REPLICATION CLIENT ON *.* TO {user}" if scene.server.flavour == "mysql" else f"GRANT BINLOG MONITOR ON *.* TO {user}",
    )
    ident = str(uuid.uuid4())
    settings = replace(scene.settings.source, user=user, password="barrier")
    with closing(Source(settings)) as source:
        before = source.barrier(0, ident)
        source.end_barrier(ident)
        assert source.position(0) > before
    with scene.connection.cursor() as cursor:
        cursor.execute("SELECT id, type FROM tidemark_signal ORDER BY id")
        rows = cursor.fetchall()
    assert len(rows) == (0 if deletes else 2)
    for row_id, kind in rows:
        window = window_of(row_id)
        assert window is not None
        assert (window[0], kind in WINDOW_TYPES) == (ident, True)


def test_what_was_not_compared_is_not_said_to_differ() -> None:
    equal, unread = TableReport(table="a.b", source_rows=1, sink_rows=1), TableReport(table="a.c", not_compared="the source did not answer")
    report = VerifyReport((equal, unread))
    assert not report.ok
    assert "not known whether source equals sink: 1 not compared: 2 tables" in report.to_text()
    assert "does NOT equal" in VerifyReport((replace(equal, differing=1), unread)).to_text()
