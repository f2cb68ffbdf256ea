"""The states of producer and merge job: facts enter, a word with its reason leaves (pure).

All that a person or a tool sees (text, JSON, HTTP, metrics) comes from `producer_state` and `merge_state`; nothing else decides it.
A fact that is not known is None, and no good state follows from it: the state is then unknown, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from schemas.json_codec import json_field
from schemas.liveness import Sign
from schemas.readable import counted, duration, moment

Ends = Mapping[str, Mapping[int, int]]
"""Topic → partition → offset, exclusive."""
_NOT_ASKED: Final = "Kafka was not asked"


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
class SinkFacts:
    """The facts about a merge job besides its progress.

    `unreadable` says why its progress cannot be read. `sign` is its last liveness record, and `locked` whether a process on this
    machine has the sink's lock. `is_moving`: a new liveness record was seen to come a moment ago, which proves life whatever the
    clocks show. `ends` are those of the tables' topics, `topics` the change and the snapshot topic of each table. `disk` says that
    the disk of the sink's folder is full, "" if it is not, or is of another machine: the job's own records are then missing or old.
    """

    sign: Sign | None = None
    locked: bool | None = None
    is_moving: bool = False
    unreadable: str = ""
    topics: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    ends: Ends | None = None
    ends_unknown: str = _NOT_ASKED
    has_sink: bool = True
    disk: str = ""


def merge_state(
    now_ms: int,
    facts: SinkFacts,
    *,
    merged: bool,
    behind: Mapping[str, int] | None = None,
    behind_unknown: str = "",
    set_aside: tuple[str, ...] = (),
) -> Standing:
    """Return the merge job's state: caught up only if it is alive and Kafka has no record that is not merged.

    `merged` is whether there is any progress. `behind` counts, per table, the records between those that are merged and those that
    readers can see in Kafka, zeros left out; it is None if Kafka did not answer, for the reason `behind_unknown`. `set_aside` names
    tables that are not merged at the moment.
    """
    if facts.unreadable:
        return Standing(JobState.UNKNOWN, facts.unreadable)
    sign = facts.sign
    if sign is None and not merged and not facts.locked:
        reason = "nothing was merged into it, as far as this machine sees: `tidemark merge` was not started, or runs elsewhere"
        return Standing(JobState.UNKNOWN, _joined(reason, facts.disk))
    alive = _merge_life(now_ms, sign, facts, behind)
    if alive is not None:
        return alive
    if behind is None:
        return Standing(JobState.UNKNOWN, f"it runs; how much it has to merge is unknown: {behind_unknown}", alive=True)
    aside = f"{counted(len(set_aside), 'table')} set aside: {_some(set_aside)}" if set_aside else ""
    if sum(behind.values()):
        return Standing(JobState.CATCHING_UP, _joined(_amount(behind), _batch(sign, now_ms), aside), alive=True)
    if aside:
        return Standing(JobState.CATCHING_UP, aside, alive=True)
    return Standing(JobState.CAUGHT_UP, alive=True)


def _merge_life(now_ms: int, sign: Sign | None, facts: SinkFacts, behind: Mapping[str, int] | None) -> Standing | None:
    """Return the state of a merge job that is not known to be alive; None for one that is."""
    waiting = "" if not behind else _amount(behind)
    is_fresh = sign is not None and not sign.silent_ms(now_ms) and not sign.is_of_another_clock(now_ms)
    if sign is not None and sign.state == "waiting" and (facts.is_moving or is_fresh):
        return Standing(JobState.WAITING, _joined(sign.reason, _since(sign, now_ms), waiting), alive=True)
    has_ended = sign is not None and sign.state == "ended"
    if facts.locked is False or has_ended:
        reason = _joined("start `tidemark merge`", waiting, _end_of(sign), "" if has_ended else facts.disk)
        return Standing(JobState.NOT_RUNNING, reason, alive=False)
    if sign is None:
        return Standing(JobState.UNKNOWN, "it writes no liveness record: is it of an earlier version?")
    if facts.is_moving:
        return None
    if sign.is_of_another_clock(now_ms):
        return Standing(JobState.UNKNOWN, _of_the_future(sign, now_ms), needs_sign=True)
    silent_ms = sign.silent_ms(now_ms)
    if silent_ms:
        who = "a process has the sink's lock" if facts.locked else "is `tidemark merge` running?"
        last = f"the last one is of {moment(sign.at_ms)}"
        reason = _joined(f"no liveness record for {_seconds(silent_ms)}", who, last, facts.disk, waiting)
        return Standing(JobState.SILENT, reason, alive=False, needs_sign=True)
    return None


def producer_state(
    now_ms: int, sign: Sign | None, *, started: bool, is_moving: bool = False, behind_bytes: int | None = None
) -> Standing:
    """Return the producer's state: reading only if it has said so lately.

    `started` is whether Kafka has an offset of it. `behind_bytes` is how much of the source's log is not in Kafka, by the source's
    own end, None if the source did not answer. `is_moving` is as in `SinkFacts`.
    """
    if sign is None:
        if started:
            return Standing(JobState.UNKNOWN, "it writes no liveness record: is it of an earlier version?")
        return Standing(JobState.UNKNOWN, "`tidemark run` was not started, or has not reached the source and Kafka yet")
    if sign.state == "ended":
        return Standing(JobState.NOT_RUNNING, _joined("start `tidemark run`", _end_of(sign)), alive=False)
    if sign.is_of_another_clock(now_ms) and not is_moving:
        return Standing(JobState.UNKNOWN, _of_the_future(sign, now_ms), needs_sign=True)
    silent_ms = 0 if is_moving else sign.silent_ms(now_ms)
    if silent_ms:
        last = f"the last one is of {moment(sign.at_ms)}"
        reason = f"no liveness record for {_seconds(silent_ms)}: it was killed, is stopped, or does not reach Kafka; {last}"
        before = sign.reason and f"before that: {sign.reason}"
        return Standing(JobState.SILENT, _joined(reason, before), alive=False, needs_sign=True)
    if sign.state in {"starting", "waiting"}:
        return Standing(JobState(sign.state), _joined(sign.reason, _since(sign, now_ms)), alive=True)
    behind = "how far it is behind is unknown" if behind_bytes is None else f"{behind_bytes:,} bytes behind"
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
