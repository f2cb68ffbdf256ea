"""Manifests of a changelog in files: what the newest ones name counts, whatever else is in the folders.

A batch has one manifest, `_manifests/<batch>.json`, which is replaced as a whole. Each one also says how far every source table was
appended until then, so that the newest alone is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from schemas.errors import SinkError
from spark_jobs.sinks.changelog_events import Appended
from spark_jobs.sinks.changelog_only import appended_document, appended_of
from spark_jobs.sinks.contract import REMEDY
from spark_jobs.store.files import LocalFiles

FOLDER: Final = "_manifests"
_VERSION: Final = 1
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class Part:
    """The files of one source table in one batch: their folder and names, below the target, and how many events they have."""

    table: str
    files: tuple[tuple[str, int], ...]
    events: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a batch has appended to a target, and how far each source table is appended after it."""

    query_id: str
    batch_id: int
    format: str
    parts: tuple[Part, ...] = ()
    appended: Mapping[str, Appended] = field(default_factory=dict)
    stamp: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The JSON text that `parsed` reads."""
        document = {
            "v": _VERSION,
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "format": self.format,
            "parts": [
                {"source": one.table, "events": one.events, "files": [{"path": path, "bytes": size} for path, size in one.files]}
                for one in self.parts
            ],
            "appended": appended_document(self.appended),
            "stamp": dict(self.stamp),
        }
        return json.dumps(document, indent=1, ensure_ascii=False)


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
        self._files.write(f"{FOLDER}/{manifest.batch_id:0{_DIGITS}}.json", manifest.text)

    def _names(self) -> list[str]:
        return sorted(name for name in self._files.names(FOLDER) if name.endswith(".json") and name[0].isdigit())

    def _read(self, name: str) -> Manifest:
        path = f"{FOLDER}/{name}"
        try:
            return parsed(json.loads(self._files.read(path)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            message = f"cannot read the manifest {self._files.location(path)}: {error}; {REMEDY}"
            raise SinkError(message) from error


def parsed(document: Mapping[str, Any]) -> Manifest:
    """Return the manifest of its JSON; `KeyError`, `TypeError` or `ValueError` if it is none."""
    if document["v"] != _VERSION:
        raise ValueError(f"it has version {document['v']}, this job knows {_VERSION}: upgrade it")
    parts = tuple(
        Part(one["source"], tuple((file["path"], int(file["bytes"])) for file in one["files"]), int(one["events"]))
        for one in document["parts"]
    )
    appended = appended_of(document["appended"])
    return Manifest(document["query_id"], int(document["batch_id"]), document["format"], parts, appended, document["stamp"])
