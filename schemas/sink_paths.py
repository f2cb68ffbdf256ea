"""The folder that a sink path names: a path of a local or mounted file system, or a `file:` URI of one."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

from schemas.errors import ConfigError

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_MISREAD: Final = re.compile(r"[\[\]{}*?^|\\]|%[0-9A-Fa-f]{2}")
"""Patterns of names to Spark, no address to delta-rs (`[]^|`), or another folder (`\\` is `/`, `%20` a space)."""


def local_path(path: str, key: str = "sinks.0.path") -> str:
    """Return the path of a folder, as given or out of `file:///...`.

    `ConfigError` for any other URI: taken for a path it would be a local folder called `s3a:`, and the bucket would stay empty.
    Likewise for a folder whose name Spark or delta-rs take for another one, or for a pattern of names.
    """
    found = _folder(path, key)
    misread = list(dict.fromkeys(_MISREAD.findall(found)))
    if misread:
        message = f"{key}: {found}: Spark and delta-rs misread {' '.join(misread)} in a path: give a folder without it"
        raise ConfigError(message)
    return found


def _folder(path: str, key: str) -> str:
    if not path.strip():
        raise ConfigError(f"{key}: is empty: give the folder of the sink")
    found = _URI.match(path)
    if found is None:
        return path
    if found.group(1).lower() != "file":
        message = (
            f"{key}: {found.group(1)}: is not supported yet, got {path}: give a folder of a local or mounted file system "
            "(an object store can be mounted), as a path or as file:///..."
        )
        raise ConfigError(message)
    parts = urlsplit(path)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        message = f"{key}: {path} does not name a folder of this machine: write file:///folder, or the path alone"
        raise ConfigError(message)
    return unquote(parts.path)
