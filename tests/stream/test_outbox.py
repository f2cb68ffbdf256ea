"""Outbox tables: inserted rows become events in topics of their own, on real servers."""

from __future__ import annotations

import pytest

from schemas.errors import ConfigError, DecodeError
from schemas.settings import from_mapping
from tests.support.producers import running
from tests.support.topics import read_topic

OUTBOX = """CREATE TABLE outbox (id CHAR(36) PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL,
    aggregateid VARCHAR(255) NOT NULL, type VARCHAR(255) NOT NULL, payload {payload})"""
JSON_TEXT = '{"total":9.50,"ü":[1,2]}'


def outbox(source, **more):
    topic = f"{source.name}.event.${{routedByValue}}"
    return {"outbox": {"tables": [f"{source.schema}\\.outbox"], "topic": topic, **more}}


def raw(source, kind):
    return read_topic(source.bootstrap_servers, f"{source.name}.event.{kind}", raw=True)


def test_inserted_rows_are_events_by_the_type_of_their_aggregate(source):
    source.execute(OUTBOX.format(payload="JSON"), "CREATE TABLE other (id INT PRIMARY KEY)")
    with running(source.settings(outbox(source))) as run:
        source.execute(
            f"INSERT INTO outbox VALUES ('e1', 'order', 'o 1', 'created', '{JSON_TEXT}')",
            "INSERT INTO outbox VALUES ('e2', 'cus/tomer', 'c1', 'created', NULL)",
            "INSERT INTO other VALUES (1)",
            "UPDATE outbox SET payload = '{}' WHERE id = 'e2'",
            "DELETE FROM outbox WHERE id = 'e1'",
            "INSERT INTO outbox VALUES ('e3', 'order', 'o 1', 'paid', '\"text\"')",
        )
        run.caught_up(source)
    events = sorted(raw(source, "order"), key=lambda event: event.headers["id"])
    assert [(event.key, event.headers) for event in events] == [(b"o 1", {"id": "e1"}), (b"o 1", {"id": "e3"})]
    assert [event.value.replace(b" ", b"") for event in events][1] == b'"text"'
    assert b'"\xc3\xbc"' in events[0].value
    (empty,) = raw(source, "cus_tomer")
    assert (empty.key, empty.value, empty.headers) == (b"c1", None, {"id": "e2"})
    assert [record.value["op"] for record in source.changes("outbox")] == ["c", "c", "u", "d", "c"]


def test_columns_can_have_other_names_and_bytes_are_written_as_they_are(mysql):
    mysql.execute("CREATE TABLE outbox (n BIGINT PRIMARY KEY, kind ENUM('a','b'), k VARBINARY(8), body BLOB)")
    names = {"id": "n", "route_by": "kind", "key": "k", "payload": "body"}
    with running(mysql.settings(outbox(mysql, **names))) as run:
        mysql.execute("INSERT INTO outbox VALUES (7, 'b', X'00FF', X'FE00')")
        run.caught_up(mysql)
    (event,) = raw(mysql, "b")
    assert (event.key, event.value, event.headers) == (b"\x00\xff", b"\xfe\x00", {"id": "7"})


def test_a_table_without_the_columns_is_refused_with_a_clear_error(mysql):
    mysql.execute("CREATE TABLE outbox (id INT PRIMARY KEY)")
    with running(mysql.settings(outbox(mysql))) as run:
        mysql.execute("INSERT INTO outbox VALUES (1)")
        run.until_ended()
        assert isinstance(run.error, ConfigError)
    assert "records.outbox.key" in str(run.error)


def test_an_event_without_a_type_stops_the_producer_with_its_position(mysql):
    mysql.execute(OUTBOX.format(payload="TEXT"))
    with running(mysql.settings(outbox(mysql))) as run:
        mysql.execute("INSERT INTO outbox VALUES ('e1', '', 'o1', 'created', 'x')")
        run.until_ended()
        assert isinstance(run.error, DecodeError)
    assert "has no aggregatetype" in str(run.error)


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ({"outbox": {"tables": ["a"], "topic": "events"}}, "records.outbox.topic: needs"),
        ({"outbox": {"tables": ["a"]}, "skipped_operations": ["c"]}, "leave c out"),
        ({"outbox": {"tables": ["("]}}, "not a regular expression"),
    ],
)
def test_settings_that_lose_events_are_refused(records, reason):
    with pytest.raises(ConfigError, match=reason):
        from_mapping({"name": "n", "source": {"tables": ["a"]}, "records": records})
