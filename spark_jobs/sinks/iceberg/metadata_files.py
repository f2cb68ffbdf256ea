"""The metadata files of an Iceberg table: the folder of the table enters, the file that counts leaves. No Spark.

A table of a Hadoop catalog has its metadata in `metadata/v<number>.metadata.json`; the highest number counts (Iceberg's
specification, "File system tables").
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

METADATA: Final = "metadata"
"""The folder of a table that has its metadata."""

_FILE: Final = re.compile(r"v(\d+)(\.gz)?\.metadata\.json")


def newest_metadata(table: Path) -> Path | None:
    """Return the metadata file of the highest number; None where there is no table: a first write that was cut off leaves none."""
    folder = table / METADATA
    try:
        names = [item.name for item in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return None
    numbered = [(int(found[1]), name) for name in names if (found := _FILE.fullmatch(name))]
    return folder / max(numbered)[1] if numbered else None
