"""The same kernels as plain Python: the suite of this folder again, smaller, with NUMBA_DISABLE_JIT=1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
CHOICE = "not mysql57 and not mysql97 and not test_compilation"
"""Two servers are enough: what the others write goes through the same kernels."""


@pytest.mark.slow
@pytest.mark.timeout(1900)
def test_all_codec_tests_pass_without_the_jit() -> None:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
        return  # this is that run
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", CHOICE, str(FOLDER)],
        cwd=FOLDER.parent.parent,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert " passed" in run.stdout
    assert "skipped" not in run.stdout
