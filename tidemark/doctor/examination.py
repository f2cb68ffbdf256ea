"""One examination of a system: areas are asked side by side, each for a limited time, and what could not be asked is named."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import structlog

from schemas.errors import TidemarkError
from schemas.findings import Finding, Severity
from schemas.overriding import override
from schemas.settings import Settings
from tidemark.doctor.area_findings import UncheckedError
from tidemark.doctor.registry_checks import registry_findings
from tidemark.doctor.sink_checks import sink_findings, spark_findings

log = structlog.get_logger(__name__)

AREA_S: Final = 12.0
"""How long the areas have. Single questions give up after 10 s: this is for a peer that answers some of them slowly."""


def _source(settings: Settings) -> Iterator[Finding]:
    from tidemark.doctor.source_checks import source_findings_of

    return source_findings_of(settings)


def _kafka(settings: Settings) -> Iterator[Finding]:
    from tidemark.doctor.kafka_checks import kafka_findings

    return kafka_findings(settings)


def kafka_of_merge_job(settings: Settings) -> Iterator[Finding]:
    """Yield what is wrong with Kafka, without the rights of the producer."""
    from tidemark.doctor.kafka_checks import kafka_findings

    return kafka_findings(settings, of_producer=False)


S = TypeVar("S")
AreaCheck = Callable[[Settings], Iterator[Finding]]
OF_ALL: Final[Mapping[str, AreaCheck]] = {
    "source": _source,
    "kafka": _kafka,
    "registry": registry_findings,
    "spark": spark_findings,
}
_OURS: Final = frozenset({"producer", "spark_jobs", "schemas", "tidemark"})
"""Packages that no extra installs: that one of them is missing is a defect."""


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found, which areas were asked to the end, and why others were not."""

    findings: tuple[Finding, ...]
    checked: tuple[str, ...]
    unchecked: Mapping[str, str]

    @property
    def has_errors(self) -> bool:
        """Whether something keeps the system from running, or loses rows."""
        return any(found.is_error for found in self.findings)


class AskedArea(threading.Thread, Generic[S]):
    """The questions to one area, on a thread of their own. `findings` grows while it runs; `unchecked` says why it ended early.

    Whatever exception ends the questions, the area is `unchecked`, and has the finding `<area>.unknown`: none is raised.
    The thread is left behind where a peer is silent for too long: it ends with the peer's connection, or with the process.
    """

    def __init__(self, area: str, check: Callable[[S], Iterator[Finding]], settings: S) -> None:
        super().__init__(name=f"doctor-{area}", daemon=True)
        self.area = area
        self._check, self._settings = check, settings
        self.findings: list[Finding] = []
        self.unchecked: str | None = None

    @override
    def run(self) -> None:
        try:
            for found in self._check(self._settings):
                self.findings.append(found)
        except UncheckedError as reason:
            self.findings += reason.findings
            self.unchecked = str(reason)
        except TidemarkError as error:
            self._failed(str(error))
        except BaseException as error:  # nobody else sees what ends this thread
            module = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
            if module and module.partition(".")[0] not in _OURS:
                self.unchecked = f"{module} is not installed here"
                return
            log.exception("doctor.area_failed", area=self.area)
            self._failed(f"the checks of {self.area} failed: {error!r}")

    def _failed(self, why: str) -> None:
        self.findings.append(failed(self.area, why))
        self.unchecked = why

    def result(self, until_s: float) -> tuple[list[Finding], str | None]:
        """Return the findings, and why there may be more, None if there are not; waits up to a time of the monotonic clock."""
        self.join(max(0.0, until_s - time.monotonic()))
        if self.is_alive():
            silence = f"{self.area}: the questions have no answer within {AREA_S:g} s"
            return [*self.findings, failed(self.area, silence)], silence
        return self.findings, self.unchecked


def examine(settings: Settings) -> Examination:
    """Ask every area of the settings, within `AREA_S`. An area that cannot be asked to its end is `unchecked`, and no error."""
    areas: dict[str, AreaCheck] = dict(OF_ALL)
    for sink in settings.sinks:
        areas[f"sink {sink.name}"] = sink_findings(sink)
    return gathered(asked(areas, settings), time.monotonic() + AREA_S)


def asked(areas: Mapping[str, Callable[[S], Iterator[Finding]]], settings: S) -> list[AskedArea[S]]:
    """Begin to ask these areas."""
    threads = [AskedArea(area, check, settings) for area, check in areas.items()]
    for thread in threads:
        thread.start()
    return threads


def has_answers(threads: Sequence[AskedArea[Any]], until_s: float, stop: threading.Event, turn_s: float = 0.05) -> bool:
    """Wait until all areas have answered, or a time of the monotonic clock; return False as soon as `stop` is set."""
    while any(thread.is_alive() for thread in threads) and time.monotonic() < until_s:
        if stop.wait(turn_s):
            return False
    return True


def gathered(threads: Sequence[AskedArea[Any]], until_s: float) -> Examination:
    """Return what areas have answered, errors first; waits for them up to a time of the monotonic clock."""
    findings: list[Finding] = []
    checked: list[str] = []
    unchecked: dict[str, str] = {}
    for thread in threads:
        found, reason = thread.result(until_s)
        findings += found
        if reason is None:
            checked.append(thread.area)
        else:
            unchecked[thread.area] = reason
    return Examination(tuple(sorted(findings, key=lambda one: not one.is_error)), tuple(checked), unchecked)


def failed(area: str, why: str) -> Finding:
    """Return the finding of an area whose questions ended with an error."""
    code = f"{area.partition(' ')[0]}.unknown"
    return Finding(code, Severity.ERROR, why, "the checks behind this one could not be made")
