"""The bundles of files that the development servers are made of, named in `artifacts.lock` beside this module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidemark.runtime import artifacts
from tidemark.runtime.artifacts import Artifact
from tidemark.runtime.ivy import ivy_download

LOCK_FILE: Final = Path(__file__).with_name("artifacts.lock")


def bundle_entries(bundle: str) -> tuple[Artifact, ...]:
    """Return the files of one bundle. Raises ArtifactError for a name that the lock file does not have."""
    return artifacts.bundle_entries(bundle, LOCK_FILE)


def bundle_files(bundle: str, say: Callable[[str], None] | None = None) -> list[Path]:
    """Return the paths of a bundle in the cache; raises as `artifacts.bundle_files`."""
    return artifacts.bundle_files(bundle, say, LOCK_FILE, ivy_download)
