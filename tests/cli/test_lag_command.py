"""`tidemark lag`: what a person and a program read of the same lags."""

from __future__ import annotations

import json

from tidemark.commands.lag import as_json, as_text
from tidemark.status.lags import NOTHING_LEFT, Lag, Lags, Verdict, Word

LATE = Lag(seconds=41.7, left=12_041)
TABLES = {"shop.items": Lag(seconds=0.8, left=1), "shop.orders": LATE, "shop.quiet": NOTHING_LEFT, "shop.new": Lag(unknown="it has no topics in Kafka")}
LAGS = Lags(NOTHING_LEFT, LATE, TABLES, Verdict(Word.BEHIND, ("Kafka to sink: 41.7 s",)))
WELL = Lags(NOTHING_LEFT, NOTHING_LEFT, {"shop.quiet": NOTHING_LEFT}, Verdict(Word.RUNNING, ()))


def test_the_tables_that_are_behind_are_listed_those_that_are_not_known_first() -> None:
    assert as_text({"lake": LAGS}).splitlines() == [
        "lake: behind",
        "  Kafka to sink: 41.7 s",
        "  source to Kafka  0.0 s",
        "  Kafka to sink    41.7 s, 12,041 records left",
        "    shop.new     unknown: it has no topics in Kafka",
        "    shop.orders  41.7 s, 12,041 records left",
        "    shop.items   0.8 s, 1 record left",
    ]
    assert as_text({"lake": LAGS}, shows_all=True).splitlines()[-1] == "    shop.quiet   0.0 s"


def test_many_tables_are_cut_off_and_counted() -> None:
    tables = {f"shop.t{number:02}": Lag(seconds=float(number + 1), left=1) for number in range(13)}
    text = as_text({"lake": Lags(NOTHING_LEFT, LATE, tables, WELL.verdict)})
    assert text.count("record left") == 10
    assert text.endswith("    and 3 more tables: --all")


def test_a_sink_that_is_well_has_no_reasons_and_one_that_is_not_known_has_no_seconds() -> None:
    unknown = Lags(Lag(unknown="why"), NOTHING_LEFT, {}, Verdict(Word.UNKNOWN, ("source to Kafka: unknown: why",)))
    assert as_text({"": WELL, "warehouse": unknown}).splitlines() == [
        "sink: running",
        "  source to Kafka  0.0 s",
        "  Kafka to sink    0.0 s",
        "",
        "warehouse: unknown",
        "  source to Kafka: unknown: why",
        "  source to Kafka  unknown: why",
        "  Kafka to sink    0.0 s",
    ]


def test_the_document_has_null_for_what_is_not_known() -> None:
    found = json.loads(as_json({"lake": LAGS}))["sinks"]["lake"]
    assert (found["word"], found["reasons"]) == ("behind", ["Kafka to sink: 41.7 s"])
    assert found["to_kafka"] == {"lag_s": 0.0, "bytes": 0, "unknown": None}
    assert found["to_sink"] == {"lag_s": 41.7, "records": 12_041, "unknown": None}
    assert found["tables"]["shop.new"] == {"lag_s": None, "records": None, "unknown": "it has no topics in Kafka"}


def test_a_pipeline_into_kafka_alone_has_no_second_lag_and_a_table_that_is_left_out_is_listed_where_all_are_asked_for() -> None:
    assert as_text({"": Lags(NOTHING_LEFT, None, TABLES, WELL.verdict)}).splitlines() == ["sink: running", "  source to Kafka  0.0 s"]
    assert json.loads(as_json({"": Lags(NOTHING_LEFT, None, {}, WELL.verdict)}))["sinks"][""]["to_sink"] is None
    left_out = Lags(NOTHING_LEFT, LATE, TABLES, WELL.verdict, frozenset({"shop.new"}))
    assert "shop.new" not in as_text({"lake": left_out})
    assert "shop.new" in as_text({"lake": left_out}, shows_all=True)
