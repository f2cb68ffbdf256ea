"""The settings of a replication task: the defaults, and each bad input with its key and a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import ConfigError
from schemas.settings import task_from_mapping

MINIMAL: dict[str, Any] = {
    "task": "copy-shop",
    "sources": [{"name": "shop"}],
    "format": {"registry": "http://registry:8081"},
    "target": {"type": "mysql", "host": "replica"},
}


def without(section: str, key: str) -> dict[str, Any]:
    return {**MINIMAL, section: {name: value for name, value in MINIMAL[section].items() if name != key}}


def target(**more: object) -> dict[str, Any]:
    return {**MINIMAL, "target": {**MINIMAL["target"], **more}}


def problems_of(document: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as raised:
        task_from_mapping(document)
    return raised.value.problems


def test_a_task_needs_a_name_a_source_a_registry_and_a_target() -> None:
    settings = task_from_mapping(MINIMAL)
    assert (settings.mode, settings.order, settings.group, settings.format.type) == ("all", "source", None, "avro")
    assert (settings.sources[0].tables, settings.sources[0].exclude_tables) == ((), ())
    assert (settings.target.port, settings.target.user) == (3306, "tidemark")
    assert (settings.apply.driver_rows, settings.apply.max_delay_ms) == (2000, 200)
    assert [one.partition(":")[0] for one in problems_of({})] == ["task", "sources", "format", "target"]


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({**MINIMAL, "tagret": {}}, "tagret: unknown key 'tagret'; did you mean 'target'?"),
        (target(hots="a"), "target.hots: unknown key 'hots' in target; did you mean 'host'?"),
        (target(port=65_536), "target.port: 65536 is above the largest value, 65535"),
        (target(port="3306"), "target.port: expected an integer"),
        (target(type="postgresql"), "target.type: expected one of mysql, mariadb, tidb, file, got str 'postgresql'"),
        (target(type="mysq"), "did you mean 'mysql'?"),
        ({**MINIMAL, "apply": {"executor_rows": 9}}, "apply.executor_rows: needs target.consistency: eventual"),
        (target(consistency="eventual") | {"apply": {"executor_rows": 9, "workers": 1}}, "apply.executor_rows: needs apply.workers: 2 or more"),
        (target(consistency="eventual") | {"apply": {"executor_rows": 200_000}}, "apply.executor_rows: no batch has more rows: set it below"),
        (target(host="mysql://replica"), "target.host: 'mysql://replica' is an address of another kind"),
        (target(password="secret", password_file="file"), "target.password_file: password and password_file are both given"),
        (without("target", "host"), "target.host: is missing: host name or address of the server"),
        ({**MINIMAL, "target": {"type": "file"}}, "target.path: is missing: folder of the files"),
        ({**MINIMAL, "target": {"type": "file", "path": "/a", "port": 1}},
         "target.port: a target of type file has no such setting, only mysql, mariadb, tidb"),
        (target(path="/a"), "target.path: a target of type mysql has no such setting, only file"),
        (target(segment_bytes=4096), "target.segment_bytes: a target of type mysql has no such setting, only file"),
        (target(type="file", path="/a"), "target.host: a target of type file has no such setting, only mysql, mariadb, tidb"),
        (without("target", "type"), "target.type: is missing"),
        ({**MINIMAL, "task": "a/b"}, "task: 'a/b' cannot begin a topic's name"),
        ({**MINIMAL, "mode": "full"}, "mode: 'full' is unavailable: a task that ends after the load is not built yet. There are all, incremental"),
        ({**MINIMAL, "order": "global"}, "group: is missing: order: global needs the order.group of the sources"),
        ({**MINIMAL, "sources": []}, "sources: no source is named"),
        ({**MINIMAL, "sources": {"name": "shop"}}, "sources: expected a list"),
        ({**MINIMAL, "sources": [{"name": "shop"}, {"name": "shop"}]}, "sources.1.name: 'shop' is given twice"),
        (
            {**MINIMAL, "sources": [{"name": "a"}, {"name": "b"}], "target": {"type": "file", "path": "x"}},
            "target.type: files keep one source, with order: source; give each source a task and a folder",
        ),
        ({**MINIMAL, "sources": [{"name": "shop", "tables": ["("]}]}, "sources.0.tables: '(' is not a regular expression"),
        ({**MINIMAL, "sources": [{"name": "shop", "exclude_tables": ["("]}]}, "sources.0.exclude_tables: '(' is not"),
        ({**MINIMAL, "format": {"type": "json"}}, "format.type: a task reads Avro only; set format.registry"),
        ({**MINIMAL, "format": {}}, "format.registry: is missing: the URL of the schema registry"),
        ({**MINIMAL, "format": {"registry": "http://a:b@c"}}, "format.registry: credentials in the URL"),
        ({**MINIMAL, "kafka": {"security_protocol": "SASL_SSL"}}, "kafka.sasl.username: is missing"),
        ({**MINIMAL, "service": {"token": "a", "token_file": "b"}}, "service.token_file: token and token_file"),
        ({**MINIMAL, "apply": {"driver_rows": 0}}, "apply.driver_rows: 0 is below the smallest value, 1"),
        ({**MINIMAL, "apply": {"max_delay_ms": 60_001}}, "apply.max_delay_ms: 60001 is above"),
    ],
    ids=str,
)
def test_bad_input_is_one_problem_with_key_and_reason(document: dict[str, Any], problem: str) -> None:
    (only,) = problems_of(document)
    assert problem in only


def test_all_problems_are_reported_at_once_without_a_secret() -> None:
    document = {**target(port=0, password=12345), "sources": [{"name": "shop"}] * 2, "format": {"type": "json"}}
    problems = problems_of(document)
    assert [one.partition(":")[0] for one in problems] == ["target.port", "target.password", "sources.1.name", "format.type"]
    assert "12345" not in "".join(problems)


def test_a_password_is_in_no_repr() -> None:
    assert "secret" not in repr(task_from_mapping(target(password="secret")))
