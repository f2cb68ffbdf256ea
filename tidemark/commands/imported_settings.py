"""What the importers print: settings as YAML with what is left to do on top, and the findings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from tidemark.importers.debezium import ImportFinding, Translation


def deliver(translation: Translation, verb: str, output: str | None) -> None:
    """Write the settings to the file or standard output, and the findings to standard error."""
    settings = to_yaml(translation, verb)
    if output is None:
        sys.stdout.write(settings)
    else:
        try:
            Path(output).write_text(settings, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--output: {output} cannot be written: {error.strerror}") from None
    sys.stderr.write(report(translation))


def to_yaml(translation: Translation, verb: str) -> str:
    """Return the settings as a file to be read by people; what is left to do is on top."""
    head = [f"# Written by `tidemark {verb}`. Left to do:"]
    head += [f"#   {_line(finding)}" for finding in translation.findings]
    body: str = yaml.safe_dump(translation.settings, sort_keys=False, allow_unicode=True, width=110)
    return "\n".join(head if translation.findings else head[:1]) + "\n" + body


def report(translation: Translation) -> str:
    """Return what a person has to look at, and what is not needed any more."""
    lines = [_line(finding) for finding in translation.findings]
    if translation.not_needed:
        lines.append(f"not needed: {', '.join(translation.not_needed)}")
    return "".join(f"{line}\n" for line in lines)


def _line(finding: ImportFinding) -> str:
    value = f" = {finding.value}" if finding.value else ""
    return " ".join(f"{finding.name}{value}: {finding.what}".split())


def text_of(path: str) -> str:
    """Return the text of a file; `ConfigError` where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
