"""What is remembered of the loads of a table from batch to batch (pure): markers enter, what is to be done and answered leaves.

A load marker is in every partition, and the copies may come in several batches: a window is carried out once. It is remembered
until no copy, and no close marker, of it can come: every partition has promised a horizon above its `low` then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from schemas.json_codec import Form, encode, json_field
from schemas.loads import LoadAnswer
from schemas.markers import CloseMarker, LoadMarker, Marker
from schemas.merge_rule import NOTHING, TableState


@dataclass(frozen=True, slots=True)
class DoneLoad:
    """A window that was answered: its `low`, and whether its rows were put."""

    JSON: ClassVar = Form(as_list=True)

    low: str
    is_put: bool


@dataclass(frozen=True, slots=True)
class EarlierAttempt:
    """What an attempt at the batch before this one has left of a table: whether it has written, and the answers that it saved."""

    has_written: bool = False
    put: Mapping[str, LoadAnswer] = field(default_factory=dict)


def _of_older_loads(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the loads of a table with answers as objects: older versions wrote them as rows of the signal table."""
    if all(isinstance(one, Mapping) for one in document["answers"]):
        return document
    servers = document.get("servers", {})
    answers = [LoadAnswer.parse(row_id, data) for row_id, _, data in document["answers"]]
    return {**document, "answers": [encode(replace(one, server=servers.get(one.window, ""))) for one in answers]}


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """The loads of one table: `pending` are to be carried out, `answers` to be written, `done` are those that were answered."""

    JSON: ClassVar = Form(of_older=_of_older_loads)

    pending: tuple[LoadMarker, ...] = json_field((), required=True)
    answers: tuple[LoadAnswer, ...] = json_field((), required=True)
    done: Mapping[str, DoneLoad] = json_field(factory=dict, required=True)

    @property
    def put(self) -> dict[str, LoadAnswer]:
        """The answers to be written of the windows whose rows were put."""
        return {one.window: one for one in self.answers if not one.error}

    def noted(self, markers: Iterable[Marker], state: TableState) -> LoadRecord:
        """Return the record after the markers of a batch; `state` is that of the table after them.

        A load below the horizon that some partition has promised is of a window that was given up: nobody waits for it.
        """
        found = {one.window: one for one in self.pending}
        for marker in markers:
            if isinstance(marker, LoadMarker) and marker.window not in self.done:
                found.setdefault(marker.window, replace(marker, change_offsets={}))
        guard = max(state.guard.values(), default=NOTHING)
        lowest = state.lowest_promise
        gone = NOTHING if lowest is None else lowest.horizon
        pending = sorted((one for one in found.values() if one.low.text >= guard), key=lambda one: (one.position, one.window))
        done = {window: one for window, one in self.done.items() if one.low >= gone}
        answers = tuple(one for one in self.answers if one.window in done)  # nobody waits for the others
        return LoadRecord(tuple(pending), answers, done)

    def lacks(self, markers: Iterable[Marker]) -> bool:
        """Return whether a window was closed as loaded whose rows are not in this sink: nobody will bring them."""
        closed = [one.window for one in markers if isinstance(one, CloseMarker) and one.loaded]
        return any(window not in self.done or not self.done[window].is_put for window in closed)

    def answered(self, load: LoadMarker, answer: LoadAnswer) -> LoadRecord:
        """Return the record after a load was carried out, or refused."""
        pending = tuple(one for one in self.pending if one.window != load.window)
        done = {**self.done, load.window: DoneLoad(load.low.text, not answer.error)}
        return LoadRecord(pending, (*self.answers, replace(answer, server=load.server)), done)

    def without_answers(self, windows: Iterable[str]) -> LoadRecord:
        """Return the record without the answers to these windows: they were written."""
        written = set(windows)
        return replace(self, answers=tuple(one for one in self.answers if one.window not in written))
