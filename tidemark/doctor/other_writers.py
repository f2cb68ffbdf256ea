"""Who writes, by liveness records: another producer of this name, another job on a sink; and how the last ones ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from schemas.errors import StateError
from schemas.findings import Finding, Remedy, Severity
from schemas.json_codec import decode
from schemas.liveness import SIGN_KEY, Sign, machine, read_sign
from tidemark.doctor.committed_log import last_values
from tidemark.status.job_standing import JobState, Standing, merge_state, producer_state

if TYPE_CHECKING:
    from kafkaio.committed_reader import CommittedReader
    from schemas.settings import Settings
    from schemas.settings.sink_section import SinkSettings

_FRESH_MS: Final = 15_000


def last_signs(reader: CommittedReader, topic: str, partition: int) -> list[Sign]:
    """Return the last liveness records, the newest last; what cannot be understood is left out."""
    return [sign for value in last_values(reader, topic, partition, SIGN_KEY) for sign in _signs(value)]


def recent(signs: list[Sign]) -> list[Sign]:
    """Return the liveness records of the last seconds."""
    now_ms = time.time_ns() // 1_000_000
    return [sign for sign in signs if sign.state != "ended" and abs(now_ms - sign.at_ms) < _FRESH_MS]


def end_of_producer(signs: list[Sign]) -> Iterator[Finding]:
    """Yield why the producer does not run, or waits; nothing if it runs, or was stopped."""
    if signs:
        now_ms = time.time_ns() // 1_000_000
        sign = max(signs, key=lambda one: one.at_ms)
        standing = producer_state(now_ms, sign, started=True)
        yield from _end("kafka.producer_ended", "producer", standing, sign, "nothing is published")


def end_of_merge_job(sink: SinkSettings) -> Iterator[Finding]:
    """Yield why the merge job of a sink does not run, or waits; nothing if it runs, or was stopped."""
    from tidemark.api.sink_folder import facts_of_folder

    facts = facts_of_folder(sink)
    if facts.sign is None:
        return
    now_ms = time.time_ns() // 1_000_000
    standing = merge_state(now_ms, facts, merged=True, behind={})
    yield from _end("sink.merge_ended", f"sink {sink.name}: merge job", standing, facts.sign, "nothing is merged")


def _end(code: str, job: str, standing: Standing, sign: Sign, what: str) -> Iterator[Finding]:
    """Yield an error for a job that ended with one, a warning for a job that waits, is silent or was killed."""
    was_stopped = sign.state == "ended" and not sign.reason
    if was_stopped or standing.state not in (JobState.NOT_RUNNING, JobState.SILENT, JobState.WAITING):
        return
    severity = Severity.ERROR if sign.state == "ended" else Severity.WARNING
    yield Finding(code, severity, f"{job}: {standing.text}", what, advice="Remove the cause; a job that ended is started again")


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
    from tidemark.api.sink_folder import lock_holder

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
        sign = read_sign(service / "alive.json")
    except StateError:
        return None
    now_ms = time.time_ns() // 1_000_000
    return None if sign is None or sign.state == "ended" or sign.silent_ms(now_ms) else sign
