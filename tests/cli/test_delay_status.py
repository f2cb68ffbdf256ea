"""What `tidemark status`, `/api/v1/status` and the metrics say of how long changes take, and what they do not say."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from schemas.delay_histogram import DelayCounter, DelayHistogram, RecentDelays
from schemas.identity import SourceId
from schemas.json_codec import decode, encode
from schemas.liveness import Sign
from schemas.merge_progress import MergeProgress
from schemas.sink_figures import BatchCounts, SinkFigures
from schemas.state import State
from tidemark.api.health import HealthServer
from tidemark.api.merge_metrics import handler_of, metrics_text
from tidemark.commands.status import as_json, as_text
from tidemark.status import reckoning
from tidemark.status.job_standing import SinkFacts
from tidemark.status.status_tree import Status

NOW_MS = 1_764_000_000_000


def recent(*delays_s: float, at_ms: int = NOW_MS - 1000, in_seconds: bool = False) -> RecentDelays:
    counter = DelayCounter()
    counter.add(DelayHistogram.of(delays_s), at_ms / 1000, in_seconds=in_seconds)
    return counter.recent


def status_of(
    kafka: RecentDelays | None = None,
    lake: RecentDelays | None = None,
    *,
    producer: Sign | None = None,
    merge: Sign | None = None,
    locked: bool | None = True,
) -> Status:
    documents: dict[str, Any] = {
        "topics/shop.orders": {"database": "shop", "table": "orders", "partitions": 4},
        "alive": encode(producer or Sign(at_ms=NOW_MS - 500, state="reading")),
    }
    if kafka is not None:
        documents["delays/shop.orders"] = encode(kafka)
    table = {"rows": 7} | ({} if lake is None else {"recent_delays": encode(lake)})
    progress = decode(MergeProgress, {"updated_ms": NOW_MS - 900, "tables": {"shop.orders": table}})
    facts = SinkFacts(sign=merge or Sign(at_ms=NOW_MS - 500), locked=locked)
    return reckoning.status_of(State(documents, SourceId("shop")), progress, NOW_MS, facts)


def shown(status: Status) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """What the JSON has of the table: to Kafka, to the lake."""
    table = json.loads(as_json(status, status))["tables"]["shop.orders"]
    return table["commit_to_kafka"], table["commit_to_lake"]


def test_both_ways_are_shown_with_their_window() -> None:
    status = status_of(recent(*[0.02] * 98, 0.3, 0.3), recent(*[1.7] * 99, 6.0))
    kafka, lake = shown(status)
    assert kafka == {
        "p50_s": 0.025, "p99_s": 0.5, "samples": 100, "window_s": 300.0, "newest_ms": NOW_MS - 1000, "age_s": 0.5,
        "in_seconds": False, "unknown": None,
    }  # fmt: skip
    assert lake is not None
    assert (lake["p50_s"], lake["p99_s"]) == (2.0, 2.0)
    text = as_text(status, status)
    assert "25 ms / 500 ms  2 s / 2 s " in text
    assert "half and 99 % of the changes of the last 300 s took at most so long from their commit" in text
    assert "whole seconds" not in text


def test_what_was_never_counted_is_unknown_and_not_none() -> None:
    status = status_of()
    assert shown(status) == (None, None)
    assert "to Kafka, to lake:" not in as_text(status, status)


def test_a_merge_job_that_ended_does_not_show_its_last_delays_as_if_they_were_of_now() -> None:
    last = recent(1.7, at_ms=NOW_MS - 740_000)
    status = status_of(recent(0.02), last, merge=Sign(at_ms=NOW_MS - 735_000, state="ended"), locked=False)
    kafka, lake = shown(status)
    assert kafka is not None
    assert kafka["p50_s"] == 0.025, "the producer still runs"
    assert lake is not None
    assert (lake["p50_s"], lake["p99_s"], lake["age_s"]) == (None, None, 740.0)
    assert lake["unknown"] == "the merge job does not run"
    assert "unknown (740 s ago: 2 s / 2 s)" in as_text(status, status)


def test_a_merge_job_that_was_killed_is_silent_and_so_are_its_delays() -> None:
    status = status_of(None, recent(1.7, at_ms=NOW_MS - 31_000), merge=Sign(at_ms=NOW_MS - 30_000))
    _, lake = shown(status)
    assert lake is not None
    assert (lake["p50_s"], lake["unknown"]) == (None, "the merge job does not run")


def test_a_producer_that_ended_does_not_show_its_last_delays_as_if_they_were_of_now() -> None:
    status = status_of(recent(0.02), recent(1.7), producer=Sign(at_ms=NOW_MS - 200, state="ended"))
    kafka, lake = shown(status)
    assert kafka is not None
    assert (kafka["p50_s"], kafka["unknown"]) == (None, "the producer does not run")
    assert lake is not None
    assert lake["p50_s"] == 2.0


def test_without_a_liveness_record_nothing_is_said_of_now() -> None:
    facts = SinkFacts(sign=None, locked=True)
    progress = decode(MergeProgress, {"updated_ms": 1, "tables": {"shop.orders": {"recent_delays": encode(recent(1.0))}}})
    status = reckoning.status_of(State({}, SourceId("shop")), progress, NOW_MS, facts)
    (table,) = status.tables
    delay = status.to_lake(table)
    assert delay is not None
    assert delay.unknown == "whether the merge job runs is unknown"


def test_a_table_at_rest_shows_the_age_and_after_the_window_nothing_of_now() -> None:
    resting = status_of(recent(0.02, at_ms=NOW_MS - 95_500), None)
    assert "25 ms / 25 ms (95 s ago)" in as_text(resting, resting)
    still = status_of(recent(0.02, at_ms=NOW_MS - 400_500), None)
    kafka, _ = shown(still)
    assert kafka is not None
    assert (kafka["p50_s"], kafka["unknown"]) == (None, "no change was counted for 400 s")
    assert "unknown (400 s ago: 25 ms / 25 ms)" in as_text(still, still)


def test_the_age_is_by_the_clock_of_the_job() -> None:
    """A job whose clock is ten seconds ahead is alive, and its delays are half a second old."""
    status = status_of(
        recent(0.02, at_ms=NOW_MS + 9_500), recent(1.7, at_ms=NOW_MS + 9_500),
        producer=Sign(at_ms=NOW_MS + 10_000, state="reading"), merge=Sign(at_ms=NOW_MS + 10_000),
    )  # fmt: skip
    assert [one and one["age_s"] for one in shown(status)] == [0.5, 0.5]
    future = status_of(recent(0.02, at_ms=NOW_MS + 60_000), None)
    kafka, _ = shown(future)
    assert kafka is not None
    assert kafka["p50_s"] is None
    assert "compare the machines' clocks" in kafka["unknown"]


def test_what_took_longer_than_can_be_counted_is_no_number() -> None:
    status = status_of(recent(0.02, 0.02, 7_200.0), recent(9_000.0))
    kafka, lake = shown(status)
    assert kafka is not None
    assert (kafka["p50_s"], kafka["p99_s"], kafka["unknown"]) == (0.025, None, "p99_s: longer than can be counted")
    assert lake is not None
    assert (lake["p50_s"], lake["unknown"]) == (None, "longer than can be counted")
    assert "25 ms / longer" in as_text(status, status)


def test_a_log_with_whole_seconds_is_named_for_both_ways() -> None:
    status = status_of(recent(0.9, in_seconds=True), recent(1.7))
    assert [one and one["in_seconds"] for one in shown(status)] == [True, True]
    assert "the source's log has whole seconds, so each may be up to 1 s too long" in as_text(status, status)


def test_a_progress_file_of_an_older_version_has_no_recent_delays() -> None:
    old = {"rows": 7, "delays": {"counts": [1, 2], "sum_s": 3.0, "at_most_s": [0.25]}}
    progress = decode(MergeProgress, {"updated_ms": 1, "tables": {"shop.orders": old}})
    assert progress.tables["shop.orders"].recent_delays is None
    assert progress.tables["shop.orders"].delays == DelayHistogram((1, 2), 3.0, (0.25,))


def test_the_merge_job_s_metrics_are_those_that_prometheus_reads() -> None:
    delays = {'shop."a"\\b': DelayHistogram.of([1.7, 6.0, 9_000.0]), "shop.orders": DelayHistogram.of([0.02])}
    families = {one.name: one for one in text_string_to_metric_families(metrics_text({"lake": SinkFigures(delays=delays)}))}
    assert [one.value for one in families["tidemark_merge_ready"].samples] == [1.0]
    found = families["tidemark_commit_to_lake_seconds"]
    assert found.type == "histogram"
    assert {one.labels["sink"] for one in found.samples} == {"lake"}
    odd = [one for one in found.samples if one.labels["table"] == 'shop."a"\\b']
    buckets = {one.labels["le"]: one.value for one in odd if one.name.endswith("_bucket")}
    assert (buckets["1.0"], buckets["2.0"], buckets["8.0"], buckets["+Inf"]) == (0, 1, 2, 3)
    assert {one.name: one.value for one in odd if "le" not in one.labels} == {
        "tidemark_commit_to_lake_seconds_count": 3, "tidemark_commit_to_lake_seconds_sum": 9_007.7,
    }  # fmt: skip


def test_a_merge_job_that_has_counted_nothing_has_no_histogram() -> None:
    text = metrics_text({"lake": SinkFigures(not_ready="it waits")})
    assert "commit_to_lake" not in text
    assert "tidemark_merge_ready 0.0\n" in text


def test_one_of_two_sinks_that_is_not_ready_makes_the_job_not_ready_and_is_named() -> None:
    text = metrics_text({"lake": SinkFigures(), "mart": SinkFigures(not_ready="it ended")})
    families = {one.name: one for one in text_string_to_metric_families(text)}
    assert [one.value for one in families["tidemark_merge_ready"].samples] == [0.0]
    ready = {one.labels["sink"]: one.value for one in families["tidemark_merge_sink_ready"].samples}
    assert ready == {"lake": 1.0, "mart": 0.0}


def test_a_merge_job_that_has_not_begun_is_not_ready() -> None:
    assert "tidemark_merge_ready 0.0\n" in metrics_text({})


def test_the_counts_of_a_sink_are_there_and_what_is_not_known_before_the_first_batch_is_not() -> None:
    def values(figures: SinkFigures) -> dict[str, float]:
        families = text_string_to_metric_families(metrics_text({"lake": figures}))
        return {one.name: one.value for family in families for one in family.samples if one.labels == {"sink": "lake"}}

    before = values(SinkFigures(not_ready="it starts", failures=2))
    assert before == {
        "tidemark_merge_sink_ready": 0, "tidemark_merge_batches_total": 0, "tidemark_merge_read_records_total": 0,
        "tidemark_merge_merged_records_total": 0, "tidemark_merge_batch_seconds_total": 0, "tidemark_merge_failures_total": 2,
    }  # fmt: skip
    counts = BatchCounts().with_batch(10, 4, 1.5, 7_000).with_batch(1, 0, 0.5, 9_500)
    after = values(SinkFigures(counts=counts, quarantined=3, set_aside=0))
    assert after == {
        "tidemark_merge_sink_ready": 1, "tidemark_merge_batches_total": 2, "tidemark_merge_read_records_total": 11,
        "tidemark_merge_merged_records_total": 4, "tidemark_merge_batch_seconds_total": 2.0, "tidemark_merge_failures_total": 0,
        "tidemark_merge_batch_timestamp_seconds": 9.5, "tidemark_quarantined_records": 3, "tidemark_set_aside_tables": 0,
    }  # fmt: skip


def test_the_merge_job_s_endpoint_serves_its_metrics() -> None:
    text = metrics_text({"lake": SinkFigures(delays={"shop.orders": DelayHistogram.of([0.02])})})
    with HealthServer("service.merge_port", "127.0.0.1", 0, lambda: None, handler_of(lambda: text)) as server:
        with urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
            assert answer.status == HTTPStatus.OK
            assert answer.read().decode() == text
        with urlopen(f"http://127.0.0.1:{server.port}/livez") as answer:
            assert answer.status == HTTPStatus.OK
