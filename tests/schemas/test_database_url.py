"""Addresses of databases that are merged into, and the settings around them."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import ConfigError
from schemas.settings import from_mapping
from schemas.settings.database_url import parse_url


def settings_of(sink: dict[str, Any], **source: Any) -> dict[str, Any]:
    return {
        "name": "shop",
        "source": {"tables": [r"shop\..*", r"ods\.orders"], **source},
        "sinks": [{"name": "w", "user": "u", "work": "/work", **sink}],
    }


@pytest.mark.parametrize(
    ("url", "kind", "jdbc"),
    [
        ("postgresql://db:6000/shop", "postgresql", "jdbc:postgresql://db:6000/shop"),
        ("jdbc:postgresql://db/shop?sslmode=require", "postgresql", "jdbc:postgresql://db:5432/shop?sslmode=require"),
        ("mysql://[::1]", "mysql", "jdbc:mysql://[::1]:3306/"),
        ("mariadb://10.0.0.1:3307/x?a=b", "mysql", "jdbc:mysql://10.0.0.1:3307/x?a=b"),
        ("mysql://db", "mariadb", "jdbc:mysql://db:3306/"),
    ],
)
def test_an_address_becomes_that_of_the_driver(url: str, kind: str, jdbc: str) -> None:
    assert parse_url(url, kind, "sinks.0.url").jdbc == jdbc


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": "postgresql"}, r"sinks\.0\.url: is missing"),
        ({"type": "postgresql", "url": "db:5432/shop"}, r"sinks\.0\.url: 'db:5432/shop' is not of the form postgresql://"),
        ({"type": "postgresql", "url": "postgresql://me:secret@db/shop"}, r"sinks\.0\.url: 'db/shop' is not of the form"),
        ({"type": "postgresql", "url": "postgresql://a,b/shop"}, "with one host"),
        ({"type": "postgresql", "url": "postgresql://db"}, r"sinks\.0\.url: names no database"),
        ({"type": "postgresql", "url": "mysql://db"}, "a sink of type postgresql has no address mysql://"),
        ({"type": "mysql", "url": "mysql://db?password=secret"}, "password is given in the address: give `user`"),
        ({"type": "mysql", "url": "mysql://db", "path": "/lake"}, r"sinks\.0\.path: a sink of type mysql has no such setting"),
        ({"type": "mysql", "url": "mysql://db", "work": ""}, r"sinks\.0\.work: is empty"),
        ({"type": "mysql", "url": "mysql://db", "user": ""}, r"sinks\.0\.user: is missing"),
        ({"type": "mysql", "url": "mysql://db", "password": "a", "password_file": "b"}, "both given"),
        ({"type": "mysql", "url": "mysql://db", "writer": "jvm"}, r"sinks\.0\.writer: a sink of type mysql has no such setting"),
        ({"type": "delta", "path": "/lake", "work": "/w", "user": ""}, r"sinks\.0\.work: a sink of type delta has no such setting"),
    ],
)
def test_what_is_missing_or_wrong_is_named_and_no_secret_is(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        from_mapping(settings_of(change))
    assert "secret" not in str(caught.value)


def test_a_sink_that_is_the_server_that_is_read_is_refused_where_rows_would_come_round() -> None:
    here = {"type": "mysql", "url": "mysql://localhost"}
    with pytest.raises(ConfigError, match=r"sinks\.0\.url: this is the server that is read, and the tables keep their names"):
        from_mapping(settings_of(here))
    route = {"tables": r"shop\.(.+)", "into": "ods.orders"}
    with pytest.raises(ConfigError, match=r"this is the server that is read, and ods\.orders is captured there: rows would come round"):
        from_mapping(settings_of(here | {"routes": [route]}))
    elsewhere = from_mapping(settings_of(here | {"routes": [route | {"into": "copy.$1"}]}))
    assert elsewhere.comes_round(elsewhere.sink, "ods", "orders")
    assert not elsewhere.comes_round(elsewhere.sink, "copy", "orders")
    assert from_mapping(settings_of(here, port=3307)).sink.folder == "/work"
    postgres = {"type": "postgresql", "url": "postgresql://localhost:3306/shop"}
    assert from_mapping(settings_of(postgres)).sink.service_path == "/work/_tidemark"
