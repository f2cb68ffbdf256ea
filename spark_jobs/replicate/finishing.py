"""The end of a task whose sources are lost: all whole transactions that Kafka has are applied, and the states say so."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from schemas.errors import SinkError

if TYPE_CHECKING:
    from spark_jobs.replicate.apply.apply_target import SourceState
    from spark_jobs.replicate.destination import ChangeWriter, Destination
    from spark_jobs.replicate.loading import WholeEnd

log = structlog.get_logger()


def finished(target: Destination, changes: ChangeWriter, ends: Mapping[str, WholeEnd], others: Collection[str]) -> str:
    """Set `consistent` in the states of sources that are applied up to their `ends`; return a line about them, and about `others`.

    `SinkError`: the target is not as a source was at a position of its log.
    """
    now = changes.states
    reasons = [reason for name, end in ends.items() if (reason := _why_inconsistent(name, now[name], end))]
    if reasons:
        raise SinkError(f"all that Kafka has is applied, and the target is not consistent: {'; '.join(reasons)}")
    states = {name: replace(now[name], position=end.position or now[name].position) for name, end in ends.items()}
    with target.transaction():
        for name, state in states.items():
            target.put_state(name, replace(state, consistent=True))
    log.info("task.finished", **{name: state.position for name, state in states.items()})
    lines = [_line(name, states[name], ends[name]) for name in sorted(ends)]
    return "finished: " + "; ".join([*lines, *(f"{name} was never begun" for name in sorted(others))])


def _why_inconsistent(name: str, state: SourceState, end: WholeEnd) -> str:
    if state.loading:
        return f"source {name} was lost while tables were loaded, and they lack rows: {', '.join(state.loading)}"
    is_behind = state.offset > end.offset or (state.offset == end.offset and state.done)
    if end.open is not None and is_behind:
        return f"source {name} was lost within the transaction at {end.open.text}: a part of it is applied, and Kafka lacks its end"
    return ""


def _line(name: str, state: SourceState, end: WholeEnd) -> str:
    left = "" if end.open is None else f", without the transaction at {end.open.text}, of which Kafka lacks the end"
    return f"{name} at {state.position}{left}"
