"""Debezium's golden types in its other value modes, replayed on a real MySQL; as `test_golden`, which has the rest.

========== =============================================================================================
types_alt1 decimal string, time connect, bigint unsigned precise, binary base64; source types and comments reported
           (`column.propagate.source.type`, `include.schema.comments`)
types_alt2 decimal double, time isostring, bigint unsigned long, binary hex
types_alt3 time microseconds, bigint unsigned long, binary base64-url-safe; `enable.time.adjuster=false`
types_alt4 time nanoseconds, bigint unsigned long; `event.converting.failure.handling.mode=skip`
========== =============================================================================================
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest

from schemas import topics
from tests.catalog.server_log import end_of_log
from tests.integration.test_golden import (
    DIFFERENCES,
    Comparison,
    Difference,
    Replay,
    RunningProducer,
    compare_all,
    execute,
    is_null,
    log_is_at,
    one_of,
    settings_for,
    snapshot_is_done,
    tables_of,
    unsigned,
    unsigned_or_null,
)
from tests.support.golden import load
from tests.support.servers import own_database
from tests.support.topics import read_topics

MODES = {
    "types_alt1": {"decimal": "string", "time": "connect", "binary": "base64"},
    "types_alt2": {"decimal": "double", "time": "isostring", "bigint_unsigned": "long", "binary": "hex"},
    "types_alt3": {"time": "microseconds", "bigint_unsigned": "long", "binary": "base64-url-safe"},
    "types_alt4": {"time": "nanoseconds", "bigint_unsigned": "long"},
}

RECORDS = {"types_alt1": {"include_schema_comments": True, "column_propagate_source_type": [r"types\..*"]}}

# ── intended differences ────────────────────────────────

_YEAR_1 = "the year 1 is not the year 2001"
_COMMON = tuple(
    difference
    for difference in DIFFERENCES
    if difference.accepts not in (unsigned, unsigned_or_null)
    and difference.reason != _YEAR_1
    and difference.columns not in (r"t_enum\.ec", r"t_json\.j")
)
_NO_DEFAULT = Difference(r"t_def\.(u|dd|t|dt)", is_null, "NULL stays NULL, as in `test_golden`")
DIFFERENCES_OF: dict[str, tuple[Difference, ...]] = {
    "types_alt1": (
        *_COMMON,
        _NO_DEFAULT,
        Difference(r"t_time\.d", one_of({11323: -719162}), _YEAR_1),
        Difference(r"t_time\.dt6", one_of({978307200000: -62135596800000}), _YEAR_1),
    ),
    "types_alt2": (
        *_COMMON,
        _NO_DEFAULT,
        Difference(r"t_time\.d", one_of({"2001-01-01Z": "0001-01-01Z"}), _YEAR_1),
        Difference(
            r"t_time\.dt6", one_of({"2001-01-01T00:00:00.000001Z": "0001-01-01T00:00:00.000001Z"}), _YEAR_1
        ),
        Difference(
            r"t_time\.t", one_of({"00:00:00Z": None}), "24:00:00 is not 00:00:00: no time of a day is it"
        ),
    ),
    "types_alt3": (*_COMMON, _NO_DEFAULT),
    "types_alt4": (
        *_COMMON,
        _NO_DEFAULT,
        Difference(r"t_time\.d", one_of({11323: -719162}), _YEAR_1),
        Difference(
            r"t_time\.dt6", one_of({978307200000001000: None}), "the year 1 lies before 1677, it is not 2001"
        ),
    ),
}
# Of fields in schema blocks: (column of t_def, what is ours), why. See `test_golden_schemas`.
_TEXTS = {"base64": ("YWIAAA==", "AP8="), "base64-url-safe": ("YWIAAA==", "AP8="), "hex": ("61620000", "00ff")}


def our_fields(prefix: str) -> dict[str, Any]:
    """The defaults of t_def that Debezium gets wrong: doubled quotes, escaped bytes, 2^64-1."""
    padded, plain = _TEXTS.get(MODES[prefix].get("binary", ""), ("YWIAAA==", "AP8="))
    fields: dict[str, Any] = {"vc": "it's", "bn": padded, "vb": plain}
    return fields if prefix == "types_alt1" else fields | {"u": -1}


class InMode(Comparison):
    """Compares with the records of a connector that has other modes."""

    def __init__(self, replay: Replay, prefix: str) -> None:
        super().__init__(replay, "types", prefix)
        self.differences = DIFFERENCES_OF[prefix]

    def _schema(self, schema: dict[str, Any] | None, table: str) -> dict[str, Any] | None:
        if schema is None:
            return None
        block = copy.deepcopy(schema)
        images = [field for field in block["fields"] if field["field"] in ("before", "after")] or [block]
        for field in (field for image in images for field in image["fields"]):
            if (table, field["field"]) == ("t_char", "c0") and "parameters" in field:
                field["parameters"]["__debezium.source.column.length"] = "0"  # CHAR(0); Debezium: 10
            if table == "t_def" and field["field"] in our_fields(self.prefix):
                field["default"] = our_fields(self.prefix)[field["field"]]
        return block


# ── replay ────────────────────────────────


@pytest.fixture(scope="module")
def replayed(kafka: Any) -> Callable[[str], Replay]:
    """What the producer of a prefix wrote; each set of modes is played once, one producer at a time."""
    server = own_database("mysql97", "modes")

    @cache
    def replay(prefix: str) -> Replay:
        scenario = load("types", prefix)
        tables = rf"types\.({'|'.join(tables_of(scenario))})"
        wire = {"type": "json", "schemas": True, **MODES[prefix]}
        settings = settings_for(server, kafka, prefix, tables, format=wire, records=RECORDS.get(prefix, {}))
        with server.connect() as user, user.cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS golden_signals")
            execute(cursor, scenario, scenario.before)
            with RunningProducer(settings) as producer:
                producer.wait_until("the snapshot is done", snapshot_is_done)
                cursor.execute("USE types")
                execute(cursor, scenario, scenario.after)
                producer.wait_until("the log is read", partial(log_is_at, place=end_of_log(user)))
        makers = (topics.change_topic, topics.snapshot_topic)
        wanted = [make(prefix, "types", table) for make in makers for table in tables_of(scenario)]
        return Replay({"types": scenario}, read_topics(kafka.bootstrap_servers, wanted))

    return replay


@pytest.mark.parametrize("prefix", MODES)
def test_records_in_every_mode_are_those_of_debezium(
    prefix: str, replayed: Callable[[str], Replay]
) -> None:
    comparison = InMode(replayed(prefix), prefix)
    assert compare_all(comparison) == 62
    unused = [difference for difference in comparison.differences if difference not in comparison.needed]
    assert [difference for difference in unused if difference not in _COMMON] == []
