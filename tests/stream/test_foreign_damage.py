"""Events of a table that nobody captures may hold anything behind its name: records of captured tables stay what they are."""

from __future__ import annotations

import re
from random import Random

import pytest

from tests.binlog import build
from tests.codec.test_damaged_bytes import damaged
from tests.stream.log_of_runs import Log, Reading

ROWS = (23, 24, 25, 30, 31, 32)
_HEADER = 19
_ROWS_KEPT = 8  # table id and flags
_ORDINAL = re.compile(rb"\.\d{10}(?![\d.])")
_UNKNOWN_TYPES = (7, 11, 12, 20, 99, 142, 200, 241, 243, 244)
"""Times as servers before 5.6 stored them, and type codes without a meaning."""


def with_damaged_others(log: Log, rng: Random) -> tuple[list[bytes], int]:
    """Return the events; those of the table `other`, which is not captured, damaged behind its name; and how many these are."""
    found, others, count = [], set(), 0
    for event in log.events:
        kind, body = event[4], event[_HEADER:-4]
        table_id = body[:6]
        kept = body.find(b"\5other\0") + 7 if kind == 19 else 0
        if kind == 19:
            (others.add if kept > 7 else others.discard)(table_id)
        elif kind in ROWS and table_id in others:
            kept = _ROWS_KEPT
        if kept < _ROWS_KEPT or kept >= len(body) or rng.random() < 0.3:
            found.append(event)
            continue
        rest = body[kept:]
        if kind == 19 and rng.random() < 0.5:  # a column of another type
            at = rng.randrange(1, 4)
            rest = rest[:at] + bytes([rng.choice(_UNKNOWN_TYPES)]) + rest[at + 1 :]
        else:
            rest = (damaged(rest, rng) + rng.randbytes(len(rest)))[: len(rest)]  # of the same size: positions stay
        found.append(build.event(kind, body[:kept] + rest, timestamp=int.from_bytes(event[:4], "little")))
        count += 1
    return found, count


def records(reading: Reading) -> dict[str, list[object]]:
    """Return the records of captured tables, without ordinals: rows that cannot be measured count as one."""
    topics = {topic: found for topic, found in reading.topics.topics.items() if topic not in ("state", "ddl")}
    return {
        topic: [(one[0], None if one[1] is None else _ORDINAL.sub(b".#", one[1]), *one[2:]) for one in found]
        for topic, found in topics.items()
    }


def harm(seed: int) -> str:
    """Return what damage in foreign tables does to captured ones in a log of that seed, "" for nothing."""
    rng = Random(seed)
    log = Log(seed, rng.choice(("mysql", "mariadb"))).write(30)
    by_runs = rng.random() < 0.5
    whole = Reading(log, seed, tick_s=0, by_runs=by_runs).read()
    log.events, count = with_damaged_others(log, rng)
    harmed = Reading(log, seed, tick_s=0, by_runs=by_runs).read()
    if harmed.error != whole.error:
        return f"{count} damaged events: {harmed.error}"
    return "" if records(harmed) == records(whole) else f"{count} damaged events: other records"


@pytest.mark.parametrize("seed", range(40))
def test_damage_in_tables_that_nobody_captures_harms_no_captured_one(seed: int) -> None:
    assert harm(seed) == ""
