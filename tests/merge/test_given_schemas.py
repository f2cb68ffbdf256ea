"""What an id in a record stands for: the producer's own word, before the registry's and before what the sink remembers."""

from __future__ import annotations

import json
from pathlib import Path

from spark_jobs.given_schemas import GivenSchemas
from spark_jobs.known_schemas import KnownSchemas, chronological, uncontradicted
from spark_jobs.registry import RegisteredSchema

OLD, NEW, OTHER = (json.dumps({"type": "record", "name": name, "fields": []}) for name in ("Old", "New", "Other"))
SUBJECT = "shop.shop.t-value"


def schema(ident: int, text: str) -> RegisteredSchema:
    return RegisteredSchema(0, ident, text)


def test_the_state_topic_is_read_once_a_batch_and_only_where_the_registry_answers_something_new() -> None:
    reads: list[int] = []

    def read() -> dict[str, list[RegisteredSchema]]:
        reads.append(1)
        return {SUBJECT: [schema(1, OLD)]}

    given = GivenSchemas(read)
    answer = (schema(1, OLD),)
    for _ in range(3):
        given.begin()
        assert given.of(SUBJECT, answer) == (schema(1, OLD),)
        assert given.of("shop.shop.u-value", ()) == ()
    assert len(reads) == 1
    given.begin()
    for subject in (SUBJECT, "shop.shop.u-value"):
        given.of(subject, (*answer, schema(2, NEW)))
    assert len(reads) == 2


def test_an_id_stands_for_what_the_producer_says_whatever_the_registry_and_the_sink_say_of_it(tmp_path: Path) -> None:
    """The registry lost everything, and gives the old schema the id that records have for the new one."""
    given = (schema(1, OLD), schema(2, NEW))
    answer = (schema(2, OLD), schema(3, NEW))
    remembered = KnownSchemas(tmp_path)
    remembered.noted("t", "value", [schema(2, OLD)])
    found = chronological(uncontradicted(answer, given), given)
    assert uncontradicted(remembered.noted("t", "value", found), given) == (schema(1, OLD), schema(2, NEW), schema(3, NEW))


def test_the_newest_schema_stays_the_last_also_where_the_producer_keeps_the_newest_alone(tmp_path: Path) -> None:
    """As after an upgrade: what was registered before is known by the registry only."""
    given = (schema(2, NEW),)
    answer = (schema(1, OLD), schema(2, NEW))
    found = chronological(uncontradicted(answer, given), given)
    assert uncontradicted(KnownSchemas(tmp_path / "upgraded").noted("t", "value", found), given) == answer
    lost = (schema(5, OLD), schema(6, NEW), schema(11, OTHER))
    given = (schema(4, OLD), schema(5, NEW), schema(11, OTHER))
    noted = KnownSchemas(tmp_path / "lost").noted("t", "value", chronological(uncontradicted(lost, given), given))
    assert [one.text for one in noted] == [OLD, NEW, NEW, OTHER]
