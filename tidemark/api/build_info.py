"""What runs: the version of this package and of the Python it runs in."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

_PACKAGE = "tidemark"


def build_labels(command: str) -> dict[str, str]:
    """Return the labels of `tidemark_build_info`; the version is "unknown" where the package is not installed."""
    try:
        number = version(_PACKAGE)
    except PackageNotFoundError:
        number = "unknown"
    return {"command": command, "version": number, "python": platform.python_version()}
