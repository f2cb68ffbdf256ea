"""Tables that online schema change tools make beside a table and swap in for it, by their names.

gh-ost: `_t_gho` (the new table), `_t_ghc` (its journal), `_t_del` (the old one). pt-online-schema-change: `_t_new`, `_t_old`,
more underscores in front where such a table existed.
"""

from __future__ import annotations

import re
from typing import Final

_NEW: Final = re.compile(r"(?:_(?P<gho>.+)_gho|_+(?P<new>[^_].*)_new)")


def real_table(table: str) -> str | None:
    """The table that a shadow table is made to replace; None for a name that is none of a shadow."""
    match = _NEW.fullmatch(table)
    return None if match is None else match["gho"] or match["new"]
