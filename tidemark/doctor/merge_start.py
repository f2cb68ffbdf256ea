"""The checks of the merge job before Spark starts: those of `tidemark doctor` for Kafka, registry, Spark and the job's sinks.

They run beside the imports of Spark, so that a start takes no longer for them. What keeps the job from running ends the command,
a line for each; what does not is logged.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from tidemark.doctor.examination import AREA_S, AreaCheck, asked, gathered, has_answers, kafka_of_merge_job
from tidemark.doctor.registry_checks import registry_findings
from tidemark.doctor.sink_checks import sink_findings, spark_findings

if TYPE_CHECKING:
    import threading

    from schemas.findings import Finding
    from schemas.settings import Settings

log = structlog.get_logger()

_OF_THE_SETTINGS: Final = frozenset({"spark.start", "sink.folder_is_file"})
"""What a person has to change in the settings: exit code 2. Anything else has 1."""
_OF_OTHERS: Final = frozenset(
    {
        *("kafka.transaction_timeout", "kafka.state_policy", "kafka.unknown"),
        *("registry.unreachable", "registry.unknown", "sink.unreachable", "sink.unknown", "sink.free_space"),
        *("spark.memory", "spark.unknown"),
    }
)
"""Errors with which a merge job runs: those of the producer, those that may pass while it retries, and what is not known."""


class MergeStart:
    """The checks of one start. They begin with the object; `errors` waits for them."""

    def __init__(self, settings: Settings, sinks: Sequence[str]) -> None:
        names = sinks or [sink.name for sink in settings.sinks]
        self._settings = replace(settings, sinks=tuple(sink for sink in settings.sinks if sink.name in names))
        areas: dict[str, AreaCheck] = {"kafka": kafka_of_merge_job, "registry": partial(registry_findings, subjects=False)}
        areas |= {f"sink {sink.name}": sink_findings(sink, is_start=True) for sink in self._settings.sinks}
        self._asked = asked(areas, settings)

    def errors(self, with_jars: Settings, stop: threading.Event) -> list[Finding]:
        """Return what keeps the job from running, nothing once it is stopped; the rest is logged.

        `with_jars` are the settings that Spark is started with. Of several sinks only errors of all of them keep it: one that
        cannot be written to ends alone. Waits for up to `AREA_S`.
        """
        threads = [*self._asked, *asked({"spark": spark_findings}, with_jars)]
        until_s = time.monotonic() + AREA_S
        if not (has_answers(self._asked, until_s, stop) and has_answers(threads, until_s, stop, turn_s=0.01)):
            return []
        found = gathered(threads, until_s).findings
        blocked = {thread.area for thread in self._asked if any(keeps_from_running(one) for one in thread.findings)}
        sinks = {f"sink {sink.name}" for sink in self._settings.sinks}
        ends_sinks = sinks <= blocked
        errors = [one for one in found if keeps_from_running(one) and (ends_sinks or not _is_of_one_sink(one))]
        for one in found:
            if one not in errors:
                log.warning("merge.finding", code=one.code, severity=str(one.severity), finding=one.text)
        return errors


def exit_code(errors: Sequence[Finding]) -> int:
    """Return 2 if something has to be changed in the settings, 1 otherwise."""
    return 2 if any(one.code in _OF_THE_SETTINGS for one in errors) else 1


def keeps_from_running(found: Finding) -> bool:
    """Return whether no merge job can run with this; of several sinks, whether that one cannot be written to."""
    return found.is_error and found.code not in _OF_OTHERS


def _is_of_one_sink(found: Finding) -> bool:
    return found.code.startswith("sink.")
