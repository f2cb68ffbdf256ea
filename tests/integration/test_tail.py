"""`tidemark tail`, and its reader in Python: what the source committed, decoded, once each and in order."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from devservers import Database, Kafka, Registry
from schemas.errors import ConfigError
from schemas.settings import from_mapping
from tests.support.producers import Source, running
from tidemark.api.change_reader import Change, ChangeReader
from tidemark.cli import main
from tidemark.commands.tail import as_json, as_text

SIGNAL = "CREATE TABLE tidemark_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"
CHANGE = Change("shop.a", "u", {"id": 7}, {"id": 7, "n": 3, "t": None}, {"id": 7, "n": 4, "t": "é"}, 1_000_123, "p", "topic", 0, 5)


@pytest.fixture
def source(mysql80: Database, kafka: Kafka, fresh_database: Callable[..., str]) -> Iterator[Source]:
    created = Source(mysql80, fresh_database(mysql80), kafka.bootstrap_servers)
    created.execute(SIGNAL)
    yield created
    created.connection.close()


def test_a_line_has_the_key_and_the_columns_with_other_values() -> None:
    assert as_text(CHANGE) == "00:16:40.123  shop.a  update    id: 7  n: 3 → 4, t: NULL → é"
    assert as_text(replace(CHANGE, op="c", before=None)) == "00:16:40.123  shop.a  insert    id: 7  n: 4, t: é"
    assert as_text(replace(CHANGE, op="d", after=None)) == "00:16:40.123  shop.a  delete    id: 7  n: 3, t: NULL"
    assert as_text(replace(CHANGE, after=CHANGE.before)).endswith("no column has another value")
    assert as_text(replace(CHANGE, op="t", key=None, before=None, after=None, committed_ms=None)) == "-  shop.a  truncate"
    assert "\033[33mupdate  \033[0m" in as_text(CHANGE, is_coloured=True)
    assert as_text(replace(CHANGE, op="c", before=None, after={"n": Decimal("4.50")})).endswith("n: 4.50")


def test_a_document_has_everything_and_bytes_as_text() -> None:
    found = json.loads(as_json(replace(CHANGE, after={"id": 7, "b": b"\x01\xff"})))
    assert (found["table"], found["op"], found["offset"], found["after"]) == ("shop.a", "u", 5, {"id": 7, "b": "0x01ff"})


def test_a_wrong_option_is_an_error_before_anything_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tail", "--op", "x", "--config", "/nowhere"]) == 2
    assert "there is no operation x" in capsys.readouterr().err
    assert main(["tail", "--key", "7", "--config", "/nowhere"]) == 2
    assert "'7' is not NAME=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["json", pytest.param("avro", marks=pytest.mark.slow)])
def test_the_reader_has_every_change_once_and_in_order_and_tables_that_come_later(
    source: Source, form: str, registry: Registry
) -> None:
    source.execute("CREATE TABLE a (id INT PRIMARY KEY, n INT)", "CREATE TABLE b (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1, 0)")
    wire = {"type": "json"} if form == "json" else {"type": "avro", "registry": registry.url}
    settings = from_mapping({**source.mapping(), "format": wire})
    with running(settings) as run:
        run.caught_up(source)
        with ChangeReader(settings, [r".*\.(a|later)"], "latest") as reader:
            assert reader.next_change(0.1) is None
            assert len(reader.topics) == 1
            source.execute("INSERT INTO a VALUES (2, 5)", "INSERT INTO b VALUES (1)", "UPDATE a SET n = 6 WHERE id = 2")
            source.execute("DELETE FROM a WHERE id = 2")
            source.execute("CREATE TABLE later (id INT PRIMARY KEY)", "INSERT INTO later VALUES (9)")
            found = [_next(reader) for _ in range(4)]
            assert reader.next_change(0.5) is None
    of_a = [change for change in found if change.table.endswith(".a")]
    assert [(one.op, one.before, one.after) for one in of_a] == [
        ("c", None, {"id": 2, "n": 5}), ("u", {"id": 2, "n": 5}, {"id": 2, "n": 6}), ("d", {"id": 2, "n": 6}, None),
    ]  # fmt: skip
    assert [one.key for one in of_a] == [{"id": 2}] * 3
    assert [one.position for one in of_a] == sorted(one.position for one in of_a)
    assert all(abs((one.committed_ms or 0) / 1000 - time.time()) < 600 for one in found)
    assert [one.after for one in found if one.table.endswith(".later")] == [{"id": 9}]
    with ChangeReader(settings, [r".*\.a"], "earliest") as reader:
        assert [_next(reader).op for _ in range(3)] == ["c", "u", "d"]  # the row of before the start was not read
    with ChangeReader(settings, [r".*\.a"], time.time() + 3_600) as reader:
        assert reader.next_change(1) is None


def _next(reader: ChangeReader) -> Change:
    change = reader.next_change(60)
    assert change is not None
    return change


def test_a_pattern_that_is_none_is_refused(source: Source) -> None:
    with pytest.raises(ConfigError, match="no regular expression"):
        ChangeReader(source.settings(), ["("])


def test_the_command_prints_what_is_asked_for_and_ends(source: Source, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source.execute("CREATE TABLE a (id INT PRIMARY KEY, n INT)")
    with running(source.settings()) as run:
        source.execute("INSERT INTO a VALUES (1, 1), (2, 2), (3, 3)", "UPDATE a SET n = 9 WHERE id = 2")
        run.caught_up(source)
        config = tmp_path / "tidemark.yaml"
        config.write_text(json.dumps(source.mapping()), "utf-8")
        command = ["tail", "--config", str(config), "--from-beginning", "--key", "id=2", "--count", "2", "--output", "json"]
        ended: list[int] = []
        thread = threading.Thread(target=lambda: ended.append(main(command)))
        thread.start()
        thread.join(60)
    assert ended == [0]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [(one["op"], one["after"]) for one in lines] == [("c", {"id": 2, "n": 2}), ("u", {"id": 2, "n": 9})]
