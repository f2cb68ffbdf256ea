"""A shared library that is missing is found by name, or the error says which one to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from devservers import DevServerError, packages


def test_missing_libraries_are_found_by_name(tmp_path: Path) -> None:
    assert packages.missing_libraries(Path("/bin/sh")) == []
    library = tmp_path / "libabsent.so.1"
    library.touch()
    with pytest.raises(DevServerError, match=r"libunheard\.so\.7"):
        packages.library("libunheard.so.7", print)
