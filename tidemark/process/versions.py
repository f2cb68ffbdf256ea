"""The versions of this package and of others that are installed here."""

from __future__ import annotations

from importlib import metadata
from typing import Final

DISTRIBUTION: Final = "tidemark-cdc"
"""The name on the package index, on which `tidemark` is another project."""


def version_of(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
