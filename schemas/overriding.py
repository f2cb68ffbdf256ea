"""`override`, which marks a method that implements or replaces one of its base class (`typing.override`, Python 3.12)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import override
elif sys.version_info >= (3, 12):
    from typing import override
else:

    def override(method):  # noqa: ANN001, ANN201
        """Return the method."""
        return method


__all__ = ["override"]
