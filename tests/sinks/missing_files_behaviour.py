"""What a sink does whose tables are data files in folders, when files are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import SinkError
from tests.sinks.behaviour import FIRST, Batch, Lab, change


class MissingFilesBehaviour:
    """The suite."""

    def test_a_file_that_a_batch_named_and_that_is_not_there_is_an_error_of_the_next_batch(self, lab: Lab) -> None:
        """The batch was set aside after its commit, or another one has named the file: a reader fails at it."""
        record = lab.play(FIRST)
        path = Path(lab.target(lab.open()).location())
        for file in path.rglob("*.parquet"):
            if "_delta_log" not in file.parts:
                file.unlink()
        with pytest.raises(SinkError, match=r"the driver sees no such file .* Then rebuild the target \(tidemark rebuild\)"):
            lab.play(Batch(1, [change(4, 200, 4)]), record)
