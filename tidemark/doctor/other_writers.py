"""Who else writes: another producer of this name, by liveness records in the state topic; another job on a sink, by its lock."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from schemas.findings import Finding, Remedy, Severity
from schemas.json_codec import decode
from schemas.liveness import SIGN_KEY, Sign, machine

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from schemas.settings import Settings
    from schemas.settings.sink_section import SinkSettings

_LAST_RECORDS: Final = 2_000
"""How much of the state topic's end is read. A producer writes a liveness record every two seconds."""
_FRESH_MS: Final = 15_000


def recent_signs(consumer: Consumer, topic: str, partition: int, answer_s: float) -> list[Sign]:
    """Return the liveness records of the last seconds, the newest last; what cannot be understood is left out."""
    from confluent_kafka import TopicPartition

    where = TopicPartition(topic, partition)
    low, high = consumer.get_watermark_offsets(where, timeout=answer_s)
    consumer.assign([TopicPartition(topic, partition, max(low, high - _LAST_RECORDS))])
    found: list[Sign] = []
    deadline = time.monotonic() + answer_s
    while time.monotonic() < deadline:
        message = consumer.poll(max(0.0, deadline - time.monotonic()))
        if message is None or message.error() is not None:  # the end of the partition
            break
        key, value = message.key(), message.value()
        if key == SIGN_KEY.encode() and value is not None:
            found += _signs(value)
    now_ms = time.time_ns() // 1_000_000
    return [sign for sign in found if sign.state != "ended" and abs(now_ms - sign.at_ms) < _FRESH_MS]


def _signs(value: Any) -> Iterator[Sign]:
    try:
        yield decode(Sign, json.loads(value))
    except (ValueError, KeyError, TypeError):
        return


def producer_findings(settings: Settings, signs: list[Sign]) -> Iterator[Finding]:
    """Yield a producer of this name on another machine, and several that write at the same time."""
    code, machines = "kafka.other_producer", {sign.machine for sign in signs}
    if len(machines) > 1:
        evidence = f"producers named {settings.name} run on {len(machines)} machines, by the liveness records of the last seconds"
        what = "each start takes over from the other one, and ends it"
        advice = "Stop one of them, or start all with --standby"
        yield Finding(code, Severity.ERROR, evidence, what, advice=advice)
    elif signs and machines != {machine()}:
        age_s = max(0.0, time.time() - signs[-1].at_ms / 1000)
        evidence = f"a producer named {settings.name} runs on another machine: its last liveness record is {age_s:.0f} s old"
        what = "a producer that is started here takes over, and that one ends"
        advice = "Stop it first, or start both with --standby; if it is the one that should run, nothing is wrong"
        yield Finding(code, Severity.WARNING, evidence, what, advice=advice)


def sink_writer_findings(sink: SinkSettings, *, is_start: bool) -> Iterator[Finding]:
    """Yield who has the sink's lock, where that is not the merge job that runs; before a start, also where it is.

    Before a start all of it is a warning: the merge job waits for the lock, and another job may end meanwhile.
    """
    from tidemark.api.locks import lock_holder

    service = Path(sink.service_path)
    holder, sign = lock_holder(service / "lock"), _sign_of(service)
    is_elsewhere = sign is not None and sign.machine not in ("", machine())
    code, name = "sink.other_writer", f"sink {sink.name}"
    if holder is None:
        if sign is not None and is_elsewhere and is_start:
            what = "locks of another machine are not seen here by every file system: both would write to the sink"
            yield Finding(code, Severity.WARNING, f"{name}: a merge job runs on another machine", what, advice="Stop it first")
        return
    who, fix, remedy = f"process {holder}", f"kill {holder}", Remedy.SHELL
    if holder <= 0:  # it has no number here, so its liveness record may be that of another machine
        who, fix, remedy = "a process in another container or on another machine", "", Remedy.NONE
    ends, advice = "this one waits for a minute, and then ends", "" if fix else "Stop it where it runs"
    if is_elsewhere and fix:
        evidence = f"{name}: {who} has its lock, and a merge job on another machine writes liveness records"
        severity, what = (Severity.WARNING, ends) if is_start else (Severity.ERROR, "two jobs write to the sink")
        yield Finding(code, severity, evidence, what, fix, remedy, "or end the other one")
    elif sign is None:
        evidence = f"{name}: {who} has its lock, and writes no liveness record"
        yield Finding(code, Severity.WARNING, evidence, "no merge job can begin as long as it has it", fix, remedy, advice)
    elif is_start:
        evidence = f"{name}: {who} has its lock, and a merge job writes liveness records"
        yield Finding(code, Severity.WARNING, evidence, ends, fix, remedy, advice)


def _sign_of(service: Path) -> Sign | None:
    """Return the liveness record of a merge job that runs; None if there is none, or it is old."""
    try:
        sign = decode(Sign, json.loads((service / "alive.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    now_ms = time.time_ns() // 1_000_000
    return None if sign.state == "ended" or sign.silent_ms(now_ms) else sign
