"""What a writer of schema-change records knows after a part of the log was lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from producer.catalog.statements import parse_statement
from producer.stream.handlers.schema_change_records import DescribingServer, SchemaChanges
from schemas.json_codec import encode
from schemas.position import Position
from schemas.schema_changes import ChangeOrigin, DefaultCharsets, TableModel


class Written:
    """An encoder and a publisher in one: what is written, as it is."""

    topic = "p"

    def __init__(self) -> None:
        self.records: list[Any] = []

    def encode(self, key: Any, value: Any) -> tuple[Any, Any]:
        return key, value

    def produce(self, _topic: str, value: Any, _key: Any, **_: Any) -> None:
        self.records.append(value)


def test_after_a_lost_log_all_is_as_the_server_has_it_now(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {("d", "t"): "CREATE TABLE t (id INT)"}
    monkeypatch.setattr(DescribingServer, "charset", lambda _, database: {"d": "utf8mb4", "e": "big5"}.get(database))
    monkeypatch.setattr(DescribingServer, "create_statement", lambda _, *name: now.get(name))
    monkeypatch.setattr(DescribingServer, "character_set", lambda _: "SET character_set_server=utf8mb4")
    monkeypatch.setattr(DescribingServer, "create_database", lambda _, database: f"CREATE DATABASE {database} CHARSET utf8mb4")
    written: Any = Written()
    handler = SchemaChanges("p", "mysql", written, written, lambda: pytest.fail("the server is not asked here"))
    models = [TableModel("d", name, "latin1", (), ()) for name in ("t", "gone")]
    documents = {model.key: encode(model) for model in models}
    handler.restore({**documents, DefaultCharsets.KEY: encode(DefaultCharsets({"d": "latin1", "e": "latin1"}))})
    position = Position(1, 1, 4, 0)
    origin = ChangeOrigin(position, 0, "binlog.000001", 4, snapshot="true")
    handler.publish_tables([("d", "t")], origin)
    later: Any = SimpleNamespace(parsed=parse_statement("CREATE TABLE u (id INT)", "e"), origin=origin, is_unpublished=False)
    handler.statement(later)
    known = handler.prepare(position, 0.0).documents
    assert {key: None if document is None else document.get("charset") for key, document in known.items()} == {
        "schema/d.t": "utf8mb4",
        "schema/d.gone": None,
        "schema/e.u": "big5",
        DefaultCharsets.KEY: None,
    }
    assert known[DefaultCharsets.KEY]["charsets"] == {"d": "utf8mb4", "e": "big5"}
