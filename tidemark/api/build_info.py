"""What runs: the version of this package and of the Python it runs in."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

DISTRIBUTION: Final = "tidemark-cdc"
"""The name on the package index, where `tidemark` is another project."""


def build_labels(command: str) -> dict[str, str]:
    """Return the labels of `tidemark_build_info`; the version is "unknown" where the package is not installed."""
    try:
        number = version(DISTRIBUTION)
    except PackageNotFoundError:
        number = "unknown"
    return {"command": command, "version": number, "python": platform.python_version()}
