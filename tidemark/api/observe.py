"""How far everything has come, read from outside: the state topic, Kafka's end offsets, the sink's progress file.

Neither the producer nor the merge job need to run for this. Settings enter; `Status` (`tidemark.status.status_tree`) leaves.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from kafkaio.committed_reader import CommittedReader
from kafkaio.oldest_records import OldestRecords, PartitionOffset
from kafkaio.slices import EARLIEST
from kafkaio.topic_admin import TopicAdmin
from schemas import topics
from schemas.documents import SchemaIdDocument
from schemas.errors import PublishError, StateError
from schemas.identity import SourceId
from schemas.liveness import EVERY_S, Sign
from schemas.merge_progress import MergeProgress
from schemas.state import State, StateRecords
from tidemark.api.sink_folder import read_progress, sink_facts
from tidemark.status.job_standing import Ends, JobState
from tidemark.status.lags import LOST
from tidemark.status.reckoning import is_ahead, status_of, tables_with_topics
from tidemark.status.status_tree import Status, TableStatus

if TYPE_CHECKING:
    from schemas.settings import Settings

_SETTLES_S: Final = 10.0
_LOOK_AGAIN_S: Final = 0.3
_MOVED_S: Final = 15.0


class Observer:
    """Reads the state topic once and keeps up with it from then on.

    `read` and `settled` are of the only sink; of several, `settled_each` has each, and what they say of a sink is unknown.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic = topics.state_topic(settings.name, settings.kafka.topic_delimiter)
        skipped = (SchemaIdDocument.PREFIX,)  # large, and nothing that a status shows
        self._records = StateRecords(self._topic, SourceId(settings.name), skipped)
        self._reader = CommittedReader(settings.kafka, f"{settings.name}-status")
        self._admin = TopicAdmin(settings.kafka)
        self._moved: dict[str, tuple[int, float]] = {}
        self._oldest = OldestRecords(settings.kafka, f"{settings.name}-status", LOST)
        self._of_sinks = {sink.name: settings.of_sink(sink.name) for sink in settings.sinks}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections up."""
        self._reader.close()
        self._oldest.close()

    def read(self) -> Status:
        """Read how far everything is now.

        Raises `PublishError` when Kafka cannot be reached, `StateError` when a document cannot be understood.
        """
        return self._status(*self._ends(), self._settings)

    def state(self) -> State:
        """Return the documents of the state topic as they are now; errors as `read`. There are none before the first start."""
        self._follow()
        return self._records.state

    def read_each(self, *, oldest: bool = False) -> dict[str, Status]:
        """Read the same for each sink; without any, one that has no name. `oldest`: with the times of the oldest records."""
        names, ends = self._ends()
        found = {name: self._status(names, ends, settings) for name, settings in self._settings_of_sinks.items()}
        return self._with_oldest(found) if oldest else found

    def settled_each(self) -> dict[str, Status]:
        """Return what `settled` does for each sink; without any, one that has no name."""
        return self._with_oldest({name: self._settled(settings) for name, settings in self._settings_of_sinks.items()})

    @property
    def _settings_of_sinks(self) -> Mapping[str, Settings]:
        return self._of_sinks or {"": self._settings}

    def settled(self) -> Status:
        """Return the same; a merge job that is behind gets a moment to merge what Kafka had when it was asked.

        While the source changes there is always a record that is some milliseconds old: that alone is not being behind. A job
        that looks silent gets a moment for its next sign: its machine may have another time.
        """
        return self._with_oldest({"": self._settled(self._settings)})[""]

    def _settled(self, settings: Settings) -> Status:
        names, ends = self._ends()
        status = self._status(names, ends, settings)
        signs_by = time.monotonic() + EVERY_S + 1
        while _may_be_of_another_clock(status) and time.monotonic() < signs_by:
            time.sleep(_LOOK_AGAIN_S)
            self._follow()
            status = self._status(names, ends, settings)
        patience_s = 2 * (self._settings.spark.trigger_s + (status.last_batch_s or 0.0)) + 1
        deadline = time.monotonic() + min(_SETTLES_S, patience_s)
        while status.merge.state is JobState.CATCHING_UP and time.monotonic() < deadline:
            time.sleep(_LOOK_AGAIN_S)
            status = self._status(names, ends, settings)
        return status

    def _with_oldest(self, found: Mapping[str, Status]) -> dict[str, Status]:
        """Return the same with the time of each table's oldest record that is not merged, as far as Kafka says."""
        tables = [table for status in found.values() for table in status.tables if not table.released]
        first = dict.fromkeys(one for table in tables for one in table.unmerged)
        written = self._oldest.written(first) if first else {}
        return {
            name: replace(status, tables=tuple(replace(table, oldest_ms=_first_of(table, written)) for table in status.tables))
            for name, status in found.items()
        }

    def _ends(self) -> tuple[dict[str, tuple[str, str]], Ends]:
        """Return the topics of every table, and where they end now: to be asked for before the progress is read."""
        self._follow()
        names = {name: self._topics_of(*table) for name, table in tables_with_topics(self._records.state).items()}
        return names, self._admin.readable_ends(topic for both in names.values() for topic in both)

    def _status(self, names: Mapping[str, tuple[str, str]], ends: Ends, settings: Settings) -> Status:
        facts = replace(sink_facts(settings), topics=names, ends=ends, ends_unknown="")
        try:
            progress = read_progress(settings)
        except StateError as error:
            progress, facts = MergeProgress(), replace(facts, unreadable=str(error))
        if is_ahead(progress, facts):  # the job has merged what came since
            facts = replace(facts, ends=self._admin.readable_ends(topic for both in names.values() for topic in both))
        job = " ".join(["merge", *(sink.name for sink in settings.sinks)])
        facts = replace(facts, is_moving=self._is_moving(job, facts.sign))
        status = status_of(self._records.state, progress, time.time_ns() // 1_000_000, facts)
        return replace(status, sign_is_moving=self._is_moving("producer", status.sign))

    def _is_moving(self, job: str, sign: Sign | None) -> bool:
        """Return whether a new sign of a job came while we looked, a moment ago."""
        if sign is None:
            return False
        now = time.monotonic()
        at_ms, moved_s = self._moved.get(job, (sign.at_ms, float("-inf")))
        if sign.at_ms != at_ms:
            moved_s = now
        self._moved[job] = sign.at_ms, moved_s
        return now - moved_s < _MOVED_S

    def _topics_of(self, database: str, table: str) -> tuple[str, str]:
        name, delimiter = self._settings.name, self._settings.kafka.topic_delimiter
        return topics.change_topic(name, database, table, delimiter), topics.snapshot_topic(name, database, table, delimiter)

    def _follow(self) -> None:
        """Read the state topic up to the present end of its committed records.

        Raises `PublishError` if Kafka does not answer: what was read before would pass for what is true now.
        """
        reader = self._reader
        try:
            if not reader.reached:
                partitions = reader.partitions(self._topic)
                if not partitions:
                    return
                reader.begin(dict.fromkeys(partitions, EARLIEST))
            for record in reader.read_to(reader.ends(reader.reached)):
                self._records.apply(record.key, record.value)
        except PublishError as error:
            servers = self._settings.kafka.bootstrap_servers
            raise PublishError(f"{error}. Does Kafka run at {servers}, or `tidemark up`, if that starts it?") from error


def _may_be_of_another_clock(status: Status) -> bool:
    """Return whether one more sign would prove a job alive that looks silent, or whose sign comes from the future."""
    return any(one.needs_sign for one in (status.merge, status.producer()))


def _first_of(table: TableStatus, written: Mapping[PartitionOffset, int | str]) -> int | str | None:
    """Return when the oldest of a table's records was written, 0 if there is none; why that is not known of one of them."""
    times = [written[one] for one in table.unmerged if one in written]
    unknown = [one for one in times if isinstance(one, str)]
    if unknown or len(times) < len(table.unmerged):
        return unknown[0] if unknown else None
    return min((one for one in times if one and not isinstance(one, str)), default=0)
