"""The head-room before the server purges log that is not read yet."""

from __future__ import annotations

import time

import pytest
import structlog
from structlog.testing import capture_logs

from mysqlio.connection import connect
from mysqlio.server_access import ServerAccess
from mysqlio.server_facts import current_position
from producer.source import retention
from producer.source.retention import ResumePosition, RetentionWatch, kept_s, reckon
from schemas.settings import SourceSettings
from tests.support.area_logs import of_area
from tests.support.servers import own_database

HOUR = 3600
SIZES = {"b.000003": 1000, "b.000004": 1000, "b.000005": 500}


def room(file: str, age_s: float | None = None, pos: int = 100, **variables: object):
    position = ResumePosition(file, pos, None if age_s is None else 1_000_000 - age_s)
    return reckon(SIZES, {name: str(value) for name, value in variables.items()}, position, 1_000_000)


def test_what_the_server_keeps_is_shown_by_either_variable() -> None:
    assert kept_s({"binlog_expire_logs_seconds": "7200", "expire_logs_days": "0"}) == 7200
    assert kept_s({"binlog_expire_logs_seconds": "0", "expire_logs_days": "10"}) == 10 * 24 * HOUR
    assert kept_s({"expire_logs_days": "0.500000"}) == 12 * HOUR
    assert kept_s({"binlog_expire_logs_seconds": "0"}) is None
    assert kept_s({}) is None
    assert kept_s({"binlog_expire_logs_seconds": "7200", "binlog_expire_logs_auto_purge": "OFF"}) is None
    assert kept_s({"binlog_expire_logs_seconds": "7200", "binlog_expire_logs_auto_purge": "ON"}) == 7200


def test_the_room_is_what_is_kept_less_the_age_of_what_was_read_last() -> None:
    behind = room("b.000003", 20 * HOUR, binlog_expire_logs_seconds=24 * HOUR)
    assert behind.left_s == 4 * HOUR
    assert behind.behind_bytes == 2400
    assert "b.000003, which the server may purge in 4.0 h: it keeps its log for 24.0 h" in behind.warning(12 * HOUR)
    assert behind.warning(3 * HOUR) == ""


def test_a_log_that_is_kept_shortly_is_no_reason_to_warn_while_it_is_followed() -> None:
    assert room("b.000003", 60, binlog_expire_logs_seconds=HOUR).warning(12 * HOUR) == ""
    assert room("b.000003", 31 * 60, binlog_expire_logs_seconds=HOUR).warning(12 * HOUR) != ""


def test_the_file_that_is_written_to_is_never_purged() -> None:
    assert room("b.000005", 30 * HOUR, binlog_expire_logs_seconds=24 * HOUR).left_s == 24 * HOUR


@pytest.mark.parametrize(("here", "there"), [({"server_uuid": "a", "server_id": "1"}, "b"), ({"server_id": "1"}, "server_id=2")])
def test_the_files_of_another_server_are_no_reason_to_warn(here: dict[str, str], there: str) -> None:
    known = here | {"binlog_expire_logs_seconds": "3600", "max_binlog_total_size": "1000"}
    ours = here.get("server_uuid", "server_id=1")
    for file in ("b.000002", "b.000003"):
        assert reckon(SIZES, known, ResumePosition(file, 4, 0, there), 1_000_000).warning(12 * HOUR) == ""
        assert reckon(SIZES, known, ResumePosition(file, 4, 0, ours), 1_000_000).warning(12 * HOUR) != ""


def test_a_server_that_purges_nothing_leaves_all_the_time() -> None:
    assert room("b.000003", 1000 * HOUR, binlog_expire_logs_seconds=0).warning(12 * HOUR) == ""


def test_a_server_that_keeps_a_size_is_warned_of_by_size() -> None:
    assert "2400 bytes before the log's end" in room("b.000003", max_binlog_total_size=4000).warning(HOUR)
    assert room("b.000003", binlog_space_limit=5000).warning(HOUR) == ""


def test_a_purged_file_is_reported_with_what_mends_it() -> None:
    words = room("b.000002").warning(HOUR)
    assert words == (
        "b.000002, where reading continues, is purged: the server has b.000003 to b.000005. `tidemark repair` starts over"
    )


@pytest.mark.parametrize("name", ["mysql80", "mariadb114"])
def test_a_warning_begins_and_ends_with_the_server_s_own_figures(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "log", structlog.get_logger())  # not one that another test's settings have bound
    server = own_database(name, "retention")  # its log is purged here
    settings = SourceSettings(
        host=server.host, port=server.port, user=server.user, password=server.password, tables=(".*",)
    )
    with server.connect() as connection, connection.cursor() as cursor:
        here = current_position(connection)
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SET GLOBAL binlog_expire_logs_seconds = 86400")
        positions = [ResumePosition(here.file, here.pos, time.time() - 80_000)]
        watch = RetentionWatch(lambda: connect(ServerAccess.of(settings)), lambda: positions[-1], least_s=43_200)
        with capture_logs() as said:
            assert 6_000 < watch.look().left_s <= 6_400
            watch.look()
            positions.append(ResumePosition(here.file, here.pos, time.time()))
            watch.look()
            purge, deadline = f"PURGE BINARY LOGS TO '{current_position(connection).file}'", time.monotonic() + 60
            cursor.execute(purge)
            while not watch.look().is_purged and time.monotonic() < deadline:
                cursor.execute(purge)  # MariaDB keeps a file until a thread of it has found that it needs it no more
            assert watch.look().is_purged
        reported = [(entry["event"], entry.get("reason", "")) for entry in of_area(said, "log")]
        assert [event for event, _ in reported] == ["log.retention_short", "log.retention_enough", "log.retention_short"]
        assert "may purge in 1." in reported[0][1]
        assert "is purged" in reported[2][1]
        cursor.execute("SET GLOBAL binlog_expire_logs_seconds = 0")


def test_a_file_that_is_shorter_than_what_was_read_is_no_log_that_was_read_to_its_end() -> None:
    """RESET MASTER, a server that was restored, or one that lost the end of its log in a crash."""
    newest = list(SIZES)[-1]
    there = reckon(SIZES, {}, ResumePosition(newest, SIZES[newest], 0), 1_000_000)
    assert (there.behind_bytes, there.bytes_after(newest, SIZES[newest])) == (0, 0)
    assert there.warning(12 * HOUR) == ""
    lost = reckon(SIZES, {}, ResumePosition(newest, SIZES[newest] + 1, 0), 1_000_000)
    assert (lost.behind_bytes, lost.bytes_after(newest, SIZES[newest] + 1)) == (None, None)
    assert "shorter than what was read of it" in lost.warning(12 * HOUR)
    assert lost.bytes_after("binlog.999999", 4) is None
