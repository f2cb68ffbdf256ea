"""Iceberg tables as pyiceberg reads them: by the newest metadata in their folder, without a catalog and without Java."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table import StaticTable


def open_iceberg(path: Path | str) -> StaticTable:
    """Return a table of a Hadoop catalog as it is now."""
    from pyiceberg.table import StaticTable

    files = {int(found[1]): file for file in Path(path, "metadata").iterdir() if (found := re.match(r"v(\d+)\.", file.name))}
    return StaticTable.from_metadata(str(files[max(files)]))  # of a URI pyiceberg would not decode escapes
