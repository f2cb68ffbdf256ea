"""One examination of a system: areas are asked one after the other, and what could not be asked is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from schemas.errors import TidemarkError
from schemas.findings import Finding, Severity
from schemas.settings import Settings
from tidemark.doctor.registry_checks import registry_findings
from tidemark.doctor.sink_checks import sink_findings, spark_findings
from tidemark.doctor.unchecked import UncheckedError


def _source(settings: Settings) -> Iterator[Finding]:
    from tidemark.doctor.source_checks import source_findings_of

    return source_findings_of(settings)


def _kafka(settings: Settings) -> Iterator[Finding]:
    from tidemark.doctor.kafka_checks import kafka_findings

    return kafka_findings(settings)


_OF_ALL: Final[Mapping[str, Callable[[Settings], Iterator[Finding]]]] = {
    "source": _source,
    "kafka": _kafka,
    "registry": registry_findings,
    "spark": spark_findings,
}
_OURS: Final = frozenset({"producer", "spark_jobs", "schemas", "tidemark"})


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


def examine(settings: Settings) -> Examination:
    """Ask every area of the settings. No error leaves: an area that cannot be asked to its end is `unchecked`."""
    areas = dict(_OF_ALL)
    for sink in settings.sinks:
        areas[f"sink {sink.name}"] = sink_findings(sink)
    findings: list[Finding] = []
    checked: list[str] = []
    unchecked: dict[str, str] = {}
    for area, look in areas.items():
        try:
            findings += look(settings)
            checked.append(area)
        except UncheckedError as reason:
            findings += reason.findings
            unchecked[area] = str(reason)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] in _OURS:
                raise
            unchecked[area] = f"{error.name} is not installed here"
        except TidemarkError as error:
            findings.append(failed(area, error))
            unchecked[area] = str(error)
    return Examination(tuple(sorted(findings, key=lambda one: not one.is_error)), tuple(checked), unchecked)


def failed(area: str, error: TidemarkError) -> Finding:
    """Return the finding of an area whose questions ended with an error."""
    code = f"{area.partition(' ')[0]}.unknown"
    return Finding(code, Severity.ERROR, str(error), "the checks behind this one could not be made")
