"""What an id in a record stands for: the producer's own word, before the registry's and before what the sink remembers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kafkaio.schema_registry import RegisteredSchema
from schemas.errors import SinkError
from spark_jobs.kafka.producer_schemas import ProducerSchemas
from spark_jobs.merge.schema_sources import UsedSchemas, chronological, reused_ids
from spark_jobs.store.files import LocalFiles
from tests.support.area_logs import of_area

OLD, NEW, OTHER = (json.dumps({"type": "record", "name": name, "fields": []}) for name in ("Old", "New", "Other"))
SUBJECT = "shop.shop.t-value"


def schema(ident: int, text: str) -> RegisteredSchema:
    return RegisteredSchema(ident, text)


def test_the_state_topic_is_read_once_a_batch_and_only_where_the_registry_answers_something_new() -> None:
    reads: list[int] = []

    def read() -> dict[str, list[RegisteredSchema]]:
        reads.append(1)
        return {SUBJECT: [schema(1, OLD)]}

    given = ProducerSchemas(read)
    answer = (schema(1, OLD),)
    for _ in range(3):
        given.begin()
        assert given.of(SUBJECT, answer) == (schema(1, OLD),)
        assert given.of("shop.shop.u-value", ()) == ()
    assert len(reads) == 2, "once more, for the answer that came after the first reading"
    given.begin()
    for subject in (SUBJECT, "shop.shop.u-value"):
        given.of(subject, (*answer, schema(2, NEW)))
    assert len(reads) == 3


def test_what_was_not_read_in_time_is_read_by_the_next_batch_and_a_failure_is_no_end() -> None:
    """The registry's answer may be newer than what was read of the state topic earlier in the batch."""
    reads: list[int] = []

    def read() -> dict[str, list[RegisteredSchema]]:
        reads.append(1)
        if len(reads) in (2, 3):
            raise SinkError("not authorised")
        return {SUBJECT: [schema(len(reads), OLD)]}

    given = ProducerSchemas(read)
    given.begin()
    assert given.of("shop.shop.u-value", ()) == ()
    assert given.of(SUBJECT, (schema(1, OLD),)) == (schema(1, OLD),)
    with capture_logs() as logs:
        for _ in range(2):
            given.begin()
            assert given.of(SUBJECT, (schema(1, OLD),)) == (schema(1, OLD),), "what is known holds"
    assert [line["event"] for line in of_area(logs, "merge")] == ["merge.state_topic_not_read"], "once, not with each batch"
    given.begin()
    assert given.of(SUBJECT, (schema(1, OLD),)) == (schema(4, OLD),)
    given.begin()
    given.of(SUBJECT, (schema(1, OLD),))
    assert len(reads) == 4


@pytest.mark.parametrize(
    ("answer", "given", "expected"),
    [
        pytest.param([(1, OLD), (2, NEW)], [(2, NEW)], [(1, OLD), (2, NEW)], id="an upgrade"),
        pytest.param([(1, OLD), (2, NEW)], [(1, OLD)], [(1, OLD), (2, NEW)], id="not published yet"),
        pytest.param([(1, OLD), (2, NEW)], [(2, NEW), (1, OLD)], [(1, OLD), (2, NEW)], id="a chunk reader came first"),
        pytest.param([], [(1, OLD), (2, NEW)], [(1, OLD), (2, NEW)], id="lost"),
        pytest.param(
            [(1, NEW)], [(1, OLD), (2, NEW), (3, OTHER)], [(1, OLD), (2, NEW), (3, OTHER)], id="an id given to another"
        ),
        pytest.param(
            [(2, NEW), (4, OTHER)], [(1, OLD), (2, NEW), (3, OTHER)], [(1, OLD), (2, NEW), (3, OTHER), (4, OTHER)], id="half lost"
        ),
    ],
)
def test_schemas_are_the_producer_s_by_id_and_in_the_order_of_the_registry(
    answer: list[tuple[int, str]], given: list[tuple[int, str]], expected: list[tuple[int, str]]
) -> None:
    found = chronological([schema(*one) for one in answer], [schema(*one) for one in given])
    assert [(one.id, one.text) for one in found] == expected


def test_an_id_that_the_sink_knows_for_another_schema_stays_in_doubt(tmp_path: Path) -> None:
    """The producer may have begun to keep ids after the registry had given this one twice."""
    remembered = UsedSchemas(LocalFiles(tmp_path), "schemas")
    remembered.noted("t", "value", [schema(5, OLD), schema(5, NEW)])
    found = chronological([schema(5, NEW)], [schema(5, NEW)])
    assert reused_ids(remembered.noted("t", "value", found)) == {5}
