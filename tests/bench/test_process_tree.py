"""A process and everything below it is stopped and continued as a whole."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from bench import process_tree

PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


def wait_for(pids: list[int], states: str) -> None:
    deadline = time.monotonic() + 20
    while not all(state_of(pid) in states for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_frozen_tree_is_stopped_and_continues_when_it_is_thawed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT]) as parent:
        try:
            deadline = time.monotonic() + 20
            while len(pids := process_tree.pids_of(parent.pid)) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.01)

            process_tree.freeze(parent.pid)
            wait_for(pids, "T")

            process_tree.thaw(parent.pid)
            wait_for(pids, "RS")
            assert process_tree.worker_peak_mib(parent.pid) == 0.0
        finally:
            for pid in reversed(process_tree.pids_of(parent.pid)):
                subprocess.run(["kill", "-9", str(pid)], check=True)
