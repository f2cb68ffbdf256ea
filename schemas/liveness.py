"""In which state producer and merge job are: from facts to words. The functions are pure, but for `read_sign` and `machine`.

Both jobs write a *liveness record*: a small document with a time and the interval after which the next one is due. What a
person or a tool sees (text, JSON, HTTP, metrics) comes from `producer_state` and `merge_state`; nothing else decides it.
A fact that is not known is None, and no good state follows from it: the state is then unknown, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final

from schemas.errors import StateError
from schemas.json_codec import Form, decode, json_field
from schemas.readable import counted, duration, moment

EVERY_S: Final = 2.0
"""How often a job writes a liveness record."""
SIGN_KEY: Final = "alive"
"""The key of the producer's liveness record in the state topic."""
_MISSED: Final = 4
_LEAST_MS: Final = 15_000
_CLOCKS_MS: Final = 20_000


class JobState(StrEnum):
    """One word for a job; `Standing.reason` says why, or what it waits for."""

    UNKNOWN = "unknown"
    NOT_RUNNING = "not_running"
    SILENT = "silent"
    STARTING = "starting"
    WAITING = "waiting"
    READING = "reading"
    CATCHING_UP = "catching_up"
    CAUGHT_UP = "caught_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A liveness record: written at `at_ms` of the job's clock, the next one is due `every_s` later.

    `state` is what the job says of itself (`starting`, `waiting`, `reading`; of the merge job `running`; `ended` at its end), for
    `reason`, since `since_ms`. `machine` names the running kernel of the job's machine. `batch` are facts of the merge job's
    batches: the `number` of the one that runs and `since_ms`, the seconds `last_s` that the one before took, and the `recent` ones
    (`schemas.batch_stages`). `snapshot_waits` is why the producer reads no chunk at the moment although there are some to read, ""
    where it does. Everything that the source committed up to `in_kafka_ms` is in Kafka, by the producer; None where that is not
    known.
    """

    JSON: ClassVar = Form(head=lambda _: {"v": 1})
    KEY: ClassVar = SIGN_KEY

    at_ms: int
    every_s: float = json_field(EVERY_S, required=True)
    state: str = json_field("running", required=True)
    reason: str = ""
    since_ms: int | None = None
    machine: str = ""
    batch: Mapping[str, Any] = field(default_factory=dict)
    snapshot_waits: str = json_field("", omits_default=True)
    in_kafka_ms: int | None = json_field(None, omits_default=True)

    def silent_ms(self, now_ms: int) -> int:
        """For how long the next sign has been overdue by far; 0 while it is not."""
        age = now_ms - self.at_ms
        return age if age > max(_LEAST_MS, _MISSED * self.every_s * 1000) else 0

    def is_of_another_clock(self, now_ms: int) -> bool:
        """Whether it comes from the future: its age says nothing then."""
        return self.at_ms - now_ms > _CLOCKS_MS


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a job, and why it is in it. `alive` is None where that is not known.

    `needs_sign`: by the clocks alone; a new liveness record would prove otherwise.
    """

    state: JobState
    reason: str = json_field("", empty_as_null=True)
    alive: bool | None = None
    needs_sign: bool = json_field(default=False, absent=True)

    @property
    def text(self) -> str:
        """The state and the reason for a person."""
        word = self.state.value.replace("_", " ")
        return f"{word}: {self.reason}" if self.reason else word

    @property
    def caught_up(self) -> bool | None:
        """Whether a job that is alive has done everything there is; None where that is not known."""
        return None if self.state is JobState.UNKNOWN else self.state is JobState.CAUGHT_UP


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeFacts:
    """What is known of the merge job at `now_ms`.

    `unreadable` says why its progress cannot be read; `merged` is whether there is any progress. `locked` is whether a
    process on this machine has the sink's lock. `behind` counts, per table, the records between what is merged and what
    readers can see in Kafka, zeros left out; it is None where Kafka did not answer, for the reason `behind_unknown`.
    `set_aside` names tables that are not merged at the moment. `is_moving`: a new sign was seen to come a moment
    ago, which proves life whatever the clocks show. `disk` says that the disk of the sink's folder is full: what the job
    writes of itself is then missing or old.
    """

    now_ms: int
    merged: bool
    unreadable: str = ""
    sign: Sign | None = None
    is_moving: bool = False
    locked: bool | None = None
    behind: Mapping[str, int] | None = None
    behind_unknown: str = ""
    set_aside: tuple[str, ...] = ()
    disk: str = ""


def merge_state(facts: MergeFacts) -> Standing:
    """Return the merge job's state: caught up only where it is alive and Kafka has no record that is not merged."""
    if facts.unreadable:
        return Standing(JobState.UNKNOWN, facts.unreadable)
    sign = facts.sign
    if sign is None and not facts.merged and not facts.locked:
        reason = "nothing was merged into it, as far as this machine sees: `tidemark merge` was not started, or runs elsewhere"
        return Standing(JobState.UNKNOWN, _joined(reason, facts.disk))
    alive = _merge_life(sign, facts)
    if alive is not None:
        return alive
    if facts.behind is None:
        return Standing(JobState.UNKNOWN, f"it runs; how much it has to merge is unknown: {facts.behind_unknown}", alive=True)
    aside = f"{counted(len(facts.set_aside), 'table')} set aside: {_some(facts.set_aside)}" if facts.set_aside else ""
    if sum(facts.behind.values()):
        return Standing(JobState.CATCHING_UP, _joined(_amount(facts.behind), _batch(sign, facts.now_ms), aside), alive=True)
    if aside:
        return Standing(JobState.CATCHING_UP, aside, alive=True)
    return Standing(JobState.CAUGHT_UP, alive=True)


def _merge_life(sign: Sign | None, facts: MergeFacts) -> Standing | None:
    """Return the state of a merge job that is not known to be alive; None for one that is."""
    waiting = "" if not facts.behind else _amount(facts.behind)
    is_fresh = sign is not None and not sign.silent_ms(facts.now_ms) and not sign.is_of_another_clock(facts.now_ms)
    if sign is not None and sign.state == "waiting" and (facts.is_moving or is_fresh):
        return Standing(JobState.WAITING, _joined(sign.reason, _since(sign, facts.now_ms), waiting), alive=True)
    has_ended = sign is not None and sign.state == "ended"
    if facts.locked is False or has_ended:
        reason = _joined("start `tidemark merge`", waiting, _end_of(sign), "" if has_ended else facts.disk)
        return Standing(JobState.NOT_RUNNING, reason, alive=False)
    if sign is None:
        return Standing(JobState.UNKNOWN, "it writes no liveness record: is it of an earlier version?")
    if facts.is_moving:
        return None
    if sign.is_of_another_clock(facts.now_ms):
        return Standing(JobState.UNKNOWN, _of_the_future(sign, facts.now_ms), needs_sign=True)
    silent_ms = sign.silent_ms(facts.now_ms)
    if silent_ms:
        who = "a process has the sink's lock" if facts.locked else "is `tidemark merge` running?"
        last = f"the last one is of {moment(sign.at_ms)}"
        reason = _joined(f"no liveness record for {_seconds(silent_ms)}", who, last, facts.disk, waiting)
        return Standing(JobState.SILENT, reason, alive=False, needs_sign=True)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerFacts:
    """What is known of the producer at `now_ms`.

    `started` is whether Kafka has an offset of it. `behind_bytes` is how much of the source's log is not in Kafka, by
    the source's own end, None where the source did not answer. `is_moving` is as in `MergeFacts`.
    """

    now_ms: int
    started: bool
    sign: Sign | None = None
    is_moving: bool = False
    behind_bytes: int | None = None


def producer_state(facts: ProducerFacts) -> Standing:
    """Return the producer's state: reading only where it has said so lately."""
    sign = facts.sign
    if sign is None:
        if facts.started:
            return Standing(JobState.UNKNOWN, "it writes no liveness record: is it of an earlier version?")
        return Standing(JobState.UNKNOWN, "`tidemark run` was not started, or has not reached the source and Kafka yet")
    if sign.state == "ended":
        return Standing(JobState.NOT_RUNNING, _joined("start `tidemark run`", _end_of(sign)), alive=False)
    if sign.is_of_another_clock(facts.now_ms) and not facts.is_moving:
        return Standing(JobState.UNKNOWN, _of_the_future(sign, facts.now_ms), needs_sign=True)
    silent_ms = 0 if facts.is_moving else sign.silent_ms(facts.now_ms)
    if silent_ms:
        last = f"the last one is of {moment(sign.at_ms)}"
        reason = f"no liveness record for {_seconds(silent_ms)}: it was killed, is stopped, or does not reach Kafka; {last}"
        before = sign.reason and f"before that: {sign.reason}"
        return Standing(JobState.SILENT, _joined(reason, before), alive=False, needs_sign=True)
    if sign.state in {"starting", "waiting"}:
        return Standing(JobState(sign.state), _joined(sign.reason, _since(sign, facts.now_ms)), alive=True)
    behind = "how far it is behind is unknown" if facts.behind_bytes is None else f"{facts.behind_bytes:,} bytes behind"
    return Standing(JobState.READING, behind, alive=True)


def _since(sign: Sign, now_ms: int) -> str:
    return "" if sign.since_ms is None else f"for {_seconds(max(0, now_ms - sign.since_ms))}"


def _end_of(sign: Sign | None) -> str:
    """Return the last line of a job that ended, "" if it was stopped; a job that was killed has none."""
    if sign is None:
        return ""
    if sign.state != "ended":
        return f"it ended without a word after {moment(sign.at_ms)}: it was killed, or could not write its last record"
    return sign.reason and f"it ended at {moment(sign.at_ms)}: {sign.reason}"


def _of_the_future(sign: Sign, now_ms: int) -> str:
    return f"its last liveness record is {_seconds(sign.at_ms - now_ms)} in the future: compare the machines' clocks"


def read_sign(path: Path) -> Sign | None:
    """Return the liveness record in a file, None if there is none; raises `StateError` if it cannot be read."""
    try:
        return decode(Sign, json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{path} cannot be read: {error}"
        raise StateError(message) from error


def machine() -> str:
    """Return the running kernel, of this machine and all its containers; "" where it has no name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _amount(behind: Mapping[str, int]) -> str:
    total = sum(behind.values())
    if not total:
        return ""
    return f"{counted(len(behind), 'table')}, {counted(total, 'record')} behind"


def _batch(sign: Sign | None, now_ms: int) -> str:
    """Return what the merge job does at the moment, and how long the last batch took."""
    batch = {} if sign is None else sign.batch
    since, last_s = batch.get("since_ms"), batch.get("last_s")
    now = "" if since is None else f"in batch {batch.get('number')} for {_seconds(max(0, now_ms - int(since)))}"
    return _joined(now, "" if last_s is None else f"last batch took {float(last_s):.0f} s")


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _seconds(milliseconds: int) -> str:
    return duration(milliseconds / 1000, 0)


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
