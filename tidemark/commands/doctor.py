"""`tidemark doctor`: everything that is wrong with the set-up, each with what was seen and what mends it. Nothing is written."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Final

from schemas.findings import Remedy, Severity
from schemas.json_codec import encode
from schemas.readable import counted
from tidemark.commands.action import add_output, add_sink, emit, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.findings import Finding
    from tidemark.doctor.examination import Examination

HELP: Final = "list everything that is wrong with source, Kafka, registry, Spark and sinks, each with a fix; nothing is written"
_WHERE: Final = {
    Remedy.SOURCE_SQL: "as an administrator of the source",
    Remedy.SINK_SQL: "as an administrator of the sink's database",
    Remedy.SHELL: "in a shell",
    Remedy.SETTING: "in the environment, or the same key in the file",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Form, and which sink."""
    add_sink(parser)
    add_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Print what is found; 1 where something is an error. Warnings alone are no failure."""
    settings = settings_of(arguments)
    from tidemark.doctor.examination import examine

    found = examine(settings)
    emit(arguments, encode(found), as_text(found), indent=2)
    return 1 if found.has_errors else 0


def as_text(found: Examination) -> str:
    """Return the findings, errors first, then a line for each area that could not be asked, and a summary."""
    lines = [line for one in found.findings for line in _lines(one)]
    lines += [f"not checked: {area}: {reason}" for area, reason in found.unchecked.items()]
    counts = Counter(one.severity for one in found.findings)
    checked = ", ".join(found.checked) or "nothing"
    summary = f"{counted(counts[Severity.ERROR], 'error')}, {counted(counts[Severity.WARNING], 'warning')}; checked: {checked}"
    return "\n".join([*lines, summary])


def _lines(one: Finding) -> Iterator[str]:
    yield f"{one.severity:<8} {one.code}"
    yield f"    {one.evidence}: {one.what}"
    if one.fix:
        yield f"    fix, {_WHERE[one.remedy]}:"
        yield f"        {one.fix}"
    if one.advice:
        yield f"    {one.advice}"
