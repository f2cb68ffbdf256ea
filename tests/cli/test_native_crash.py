"""A process of ours that crashes in native code says where Python was."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

CRASH = """
import ctypes, sys
from tidemark import cli

def read_nothing(_arguments):
    ctypes.string_at(0)

cli._executed = read_nothing
sys.argv = ["tidemark", "version"]
cli.main()
"""


def test_a_crash_in_native_code_leaves_the_stack_of_python() -> None:
    done = subprocess.run([sys.executable, "-c", CRASH], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert "in read_nothing" in done.stderr
