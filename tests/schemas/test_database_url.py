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


PREFERRED = {"mode": "preferred"}


@pytest.mark.parametrize(
    ("url", "kind", "address", "options"),
    [
        ("postgresql://db:6000/shop", "postgresql", ("db", 6000, "shop"), {}),
        ("jdbc:postgresql://db/shop?sslmode=require", "postgresql", ("db", 5432, "shop"), {"sslmode": "require"}),
        ("postgresql://db/shop?ssl=true&sslrootcert=/ca%20.pem", "postgresql", ("db", 5432, "shop"),
         {"sslmode": "verify-full", "sslrootcert": "/ca .pem"}),
        ("postgresql://db/shop?sslmode=verify-ca&ssl&connectTimeout=3", "postgresql", ("db", 5432, "shop"),
         {"sslmode": "verify-ca", "connect_timeout": "3"}),
        ("jdbc:postgresql://db/shop?ssl=false&reWriteBatchedInserts=true&ApplicationName=a", "postgresql", ("db", 5432, "shop"),
         {"application_name": "a"}),
        ("mysql://[::1]", "mysql", ("::1", 3306, ""), PREFERRED),
        ("mariadb://10.0.0.1:3307/x?sslMode=VERIFY_IDENTITY", "mysql", ("10.0.0.1", 3307, "x"), {"mode": "verify_identity"}),
        ("mysql://db", "mariadb", ("db", 3306, ""), PREFERRED),
        ("jdbc:mysql://db/x?useSSL=false&allowPublicKeyRetrieval=true&serverTimezone=UTC", "mysql", ("db", 3306, "x"), {"mode": "disabled"}),
        ("jdbc:mysql://db?useSSL=true&requireSSL=true&verifyServerCertificate=true", "mysql", ("db", 3306, ""), {"mode": "verify_ca"}),
        ("jdbc:mysql://db?useSSL=yes&requireSSL=YES&verifyServerCertificate=Yes", "mysql", ("db", 3306, ""), {"mode": "verify_ca"}),
        ("jdbc:mysql://db?useSSL=no&requireSSL=true", "mysql", ("db", 3306, ""), {"mode": "disabled"}),
        ("jdbc:mysql://db?requireSSL=no&verifyServerCertificate=FALSE", "mysql", ("db", 3306, ""), PREFERRED),
        ("jdbc:mysql://db?autoReconnect=true&zeroDateTimeBehavior=CONVERT_TO_NULL&tinyInt1isBit=false", "mysql", ("db", 3306, ""), PREFERRED),
        ("jdbc:postgresql://db/shop?prepareThreshold=0", "postgresql", ("db", 5432, "shop"), {}),
        ("jdbc:postgresql://db/shop?defaultRowFetchSize=1000&preferQueryMode=simple&loggerLevel=OFF&tcpNoDelay=true", "postgresql",
         ("db", 5432, "shop"), {}),
        ("jdbc:mysql://db?useCursorFetch=true&defaultFetchSize=1000&useLocalSessionState=true&prepStmtCacheSize=250", "mysql",
         ("db", 3306, ""), PREFERRED),
        ("postgresql://db/shop?sslrootcert=system", "postgresql", ("db", 5432, "shop"), {"sslrootcert": "system", "sslmode": "verify-full"}),
        ("postgresql://db/my%20own+db", "postgresql", ("db", 5432, "my own db"), {}),
        ("mysql://db?connectTimeout=0", "mysql", ("db", 3306, ""), PREFERRED),
        ("mysql://db?connectTimeout=99999999999999", "mysql", ("db", 3306, ""), {**PREFERRED, "connect_timeout_s": "31536000"}),
        ("postgresql://db/shop?ssl=false&connectTimeout=99999999999", "postgresql", ("db", 5432, "shop"), {"connect_timeout": "31536000"}),
        ("jdbc:mysql://db?useSSL=true&requireSSL=true", "mysql", ("db", 3306, ""), {"mode": "required"}),
        ("jdbc:mysql://db?useSSL=false&sslMode=REQUIRED", "mysql", ("db", 3306, ""), {"mode": "required"}),
        ("mysql://db?ssl-ca=/a&ssl-cert=/b&ssl-key=/c&connectTimeout=2500", "mysql", ("db", 3306, ""),
         {"mode": "preferred", "ca": "/a", "cert": "/b", "key": "/c", "connect_timeout_s": "2"}),
    ],
)  # fmt: skip
def test_an_address_becomes_options_of_the_client(url: str, kind: str, address: tuple[str, int, str], options: dict[str, str]) -> None:
    parsed = parse_url(url, kind, "sinks.0.url")
    assert (parsed.address, parsed.port, parsed.database) == address
    assert parsed.options == options


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://db/shop?sslfactory=secret", r"sinks\.0\.url: the address has the unknown option sslfactory \(write sslmode=verify-full and"),
        ("postgresql://db/shop?logLevel=1", r"unknown option loglevel \(leave it out; there are: sslmode, sslrootcert"),
        ("postgresql://db/shop?socketTimeout=1", r"sockettimeout \(leave it out: a statement may take as long as it needs"),
        ("postgresql://db/shop?currentSchema=s", r"currentschema \(write options=-c%20search_path%3D<schema>\)"),
        ("postgresql://db/shop?targetServerType=primary", r"targetservertype \(write target_session_attrs=<type>"),
        ("mysql://db?trustCertificateKeyStoreUrl=file:secret", "write sslMode=VERIFY_IDENTITY and ssl-ca=<file.pem>"),
        ("mysql://db?sessionVariables=secret", r"sessionvariables \(leave it out, and set the variables on the server\)"),
        ("mysql://db?sslMode=ALWAYS", "the option sslMode is one of DISABLED, PREFERRED"),
        ("mysql://db?connectTimeout=soon", "connectTimeout is a number of milliseconds"),
        ("postgresql://db/shop?connectTimeout=soon", "connect_timeout is a number of seconds"),
        ("postgresql://db/shop?connect_timeout=-1", "connect_timeout is a number of seconds"),
        ("mysql://db?allowPublicKeyRetrieval=false", "allowPublicKeyRetrieval=false has no effect.*write sslMode=REQUIRED"),
        ("mysql://db?useSSL=secret", "the option useSSL is true or false"),
        ("postgresql://db/shop?ssl=yes", "the option ssl is true or false"),
        ("mysql://db?requireSSL=1", "the option requireSSL is true or false"),
        ("mysql://db?verifyServerCertificate=on", "the option verifyServerCertificate is true or false"),
    ],
)
def test_an_unknown_option_of_an_address_is_refused_with_what_to_write(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        parse_url(url, url.partition(":")[0], "sinks.0.url")
    assert "secret" not in str(caught.value)


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
