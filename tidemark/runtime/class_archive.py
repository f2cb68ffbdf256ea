"""Class archives: a Java server that has run once starts with half the work.

A run that is started for it records the classes that it loads and writes them when it is stopped; later runs map that
file. Recording costs a few seconds at the start and at the end, so only those do it who will start the server
often: the tests, and `fetch --warm`. Java checks the archive itself and ignores one that does not fit.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tidemark.runtime.artifacts import cache_folder, staging

_QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


class ClassArchive:
    """The archive of one server: `options()` for its next start, `adopt()` after it ended by itself."""

    __slots__ = ("_cached", "_new", "_record")

    def __init__(self, name: str, java: Path, jars: Sequence[Path], folder: Path, *, record: bool) -> None:
        facts = [str(java.resolve()), *map(str, jars)]
        for path in (java.parent.parent / "lib" / "modules", *jars):
            with contextlib.suppress(OSError):
                facts.append(str(path.stat().st_mtime_ns))
        digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
        self._cached = cache_folder() / "classes" / f"{name}-{digest}.jsa"
        self._record = record
        self._new = folder / "classes.jsa"

    @property
    def location(self) -> Path:
        """Where the archive is, or will be."""
        return self._cached

    @property
    def is_there(self) -> bool:
        """Whether there is an archive to use."""
        return self._cached.is_file()

    def options(self) -> list[str]:
        """For the Java command: use the archive, or record one, or neither."""
        if self._cached.is_file():
            return [f"-XX:SharedArchiveFile={self._cached}", *_QUIET]
        if not self._record:
            return []
        return [f"-XX:ArchiveClassesAtExit={self._new}", *_QUIET]

    def adopt(self) -> None:
        """Keep what the run wrote. Not after a kill: half an archive could crash the next run."""
        if self._new.is_file() and not self._cached.is_file():
            with staging("classes") as folder:
                shutil.copyfile(self._new, folder / self._cached.name)
                self._cached.parent.mkdir(exist_ok=True)
                (folder / self._cached.name).replace(self._cached)
        self._new.unlink(missing_ok=True)

    def discard(self) -> None:
        """After a kill."""
        self._new.unlink(missing_ok=True)
