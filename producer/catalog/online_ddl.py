"""Tables that online schema change tools make beside a table and swap in for it, by their names.

gh-ost: `_t_gho` (the new table), `_t_ghc` (its journal), `_t_del` (the old one). pt-online-schema-change: `_t_new`, `_t_old`,
more underscores in front where such a table existed, and triggers `pt_osc_...` that make all changes in the new table, too.
People call tables `_t_new` as well, and put only some of the rows into them: without those triggers it is nobody's copy.
"""

from __future__ import annotations

import re
from typing import Final

_NEW: Final = re.compile(r"(?:_(?P<gho>.+)_gho|_+(?P<new>[^_].*)_new)")
_TRIGGERS: Final = "pt_osc_"


def real_table(table: str) -> str | None:
    """Return the table that a shadow table is made to replace; None for a name that is none of a shadow."""
    match = _NEW.fullmatch(table)
    return None if match is None else match["gho"] or match["new"]


def is_kept_up(shadow: str) -> bool:
    """Return whether the name of a shadow alone says that all rows of the table come to be in it: gh-ost reads the log."""
    return shadow.endswith("_gho")


def keeps_up(trigger: str) -> bool:
    """Return whether a trigger of that name makes the changes of its table in a shadow, too."""
    return trigger.startswith(_TRIGGERS)
