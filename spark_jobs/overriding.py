"""`override`: the mark of a method whose docstring is the one of the interface. `typing` has it from Python 3.12 on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import override
else:

    def override(method):  # noqa: ANN001, ANN201 - as typing_extensions has it
        """Return the method as it is."""
        return method


__all__ = ["override"]
