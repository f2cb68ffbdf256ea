"""Whom the faults on processes hit: a fault that hits the wrong one says nothing of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.machine import is_worker_daemon

WAITS = "print('there', flush=True); input()"


@pytest.mark.parametrize(("arguments", "is_it"), [(("-m", "worker_daemon"), True), (("-c", WAITS, "spark.daemon=worker_daemon"), False)])
def test_the_launcher_of_the_jvm_is_not_taken_for_the_daemon_of_workers(
    tmp_path: Path, arguments: tuple[str, ...], is_it: bool
) -> None:
    (tmp_path / "worker_daemon.py").write_text(WAITS, "utf-8")
    with subprocess.Popen([sys.executable, *arguments], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"there\n"  # the system has its arguments by now
            assert is_worker_daemon(process.pid) is is_it
        finally:
            process.kill()
    assert not is_worker_daemon(process.pid)
