"""Manifests of a changelog in files: what the newest ones name counts, whatever else is in the folders.

A batch has one manifest, `_manifests/<batch>.json`, which is replaced as a whole. Each one also says how far every source table was
appended until then, so that the newest alone is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from schemas.errors import SinkError
from schemas.json_codec import Form, encode, json_field
from spark_jobs.sinks.changelog_events import VERSIONED, Appended, read_versioned
from spark_jobs.sinks.contract import REMEDY
from spark_jobs.store.files import LocalFiles

FOLDER: Final = "_manifests"
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class EventFile:
    """A file of events: its path below the target, and its size."""

    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class ManifestPart:
    """The files of one source table in one batch, and how many events they have."""

    source: str
    events: int
    files: tuple[EventFile, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a batch has appended to a target, and how far each source table is appended after it."""

    JSON: ClassVar[Form] = VERSIONED
    query_id: str
    batch_id: int
    format: str
    parts: tuple[ManifestPart, ...] = json_field((), required=True)
    appended: Mapping[str, Appended] = json_field(factory=dict, required=True)
    stamp: Mapping[str, Any] = json_field(factory=dict, required=True)


class Manifests:
    """The manifests of one target."""

    def __init__(self, target: Path) -> None:
        self._files = LocalFiles(target)
        self.target = target

    def newest(self) -> Manifest | None:
        """Return the manifest of the newest batch; None if there is none. `SinkError` for one that cannot be read."""
        names = self._names()
        return self._read(names[-1]) if names else None

    def all(self) -> Iterator[Manifest]:
        """Yield all manifests, in the order of their batches: what a reader of the changelog goes by."""
        for name in self._names():
            yield self._read(name)

    def write(self, manifest: Manifest) -> None:
        """Have what a manifest names count from now on."""
        text = json.dumps(encode(manifest), indent=1, ensure_ascii=False)
        self._files.write(f"{FOLDER}/{manifest.batch_id:0{_DIGITS}}.json", text)

    def _names(self) -> list[str]:
        return sorted(name for name in self._files.names(FOLDER) if name.endswith(".json") and name[0].isdigit())

    def _read(self, name: str) -> Manifest:
        path = f"{FOLDER}/{name}"
        try:
            return read_versioned(Manifest, self._files.read(path))
        except (OSError, ValueError, KeyError, TypeError) as error:
            message = f"cannot read the manifest {self._files.location(path)}: {error}; {REMEDY}"
            raise SinkError(message) from error
