from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tidemark.demo.stack import RunFolder

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120.0


def processes_naming(*texts: str) -> list[str]:
    """Command lines of running processes, ours excepted, that hold one of the texts."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if any(text in line for text in texts):
                found.append(line)
    return found


def none_left(seconds: float, *texts: str) -> bool:
    deadline = time.monotonic() + seconds
    while processes_naming(*texts):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def start_demo(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tidemark", "demo", "--rows", "2000", "--folder", str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def demo(tmp_path: Path) -> subprocess.Popen[str]:
    """A demo that has just started its merge job; stopped by the test."""
    process = start_demo(tmp_path / "data")
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "starting `tidemark merge`" in line:
            return process
    raise AssertionError(f"the demo ended with {process.wait()}:\n{''.join(lines)}")


def test_a_terminated_demo_leaves_no_process_and_no_folder(
    demo: subprocess.Popen[str], tmp_path: Path
) -> None:
    mark = f"tidemark-demo-{demo.pid}-"
    assert len(processes_naming(mark, str(tmp_path))) >= 4

    demo.terminate()
    demo.communicate(timeout=PATIENCE_S)

    assert demo.returncode == 130
    assert none_left(PATIENCE_S, mark, str(tmp_path))
    assert not list(Path(tempfile.gettempdir()).glob(f"{mark}*"))


def test_a_demo_interrupted_while_its_servers_start_leaves_nothing_either(tmp_path: Path) -> None:
    demo = start_demo(tmp_path / "data")
    mark = f"tidemark-demo-{demo.pid}-"
    deadline = time.monotonic() + PATIENCE_S
    while not processes_naming(mark):
        assert time.monotonic() < deadline
        time.sleep(0.02)

    demo.send_signal(signal.SIGINT)
    demo.communicate(timeout=PATIENCE_S)

    assert demo.returncode == 130
    assert none_left(PATIENCE_S, mark, str(tmp_path))
    assert not list(Path(tempfile.gettempdir()).glob(f"{mark}*"))


def test_a_killed_demo_takes_its_processes_along_and_the_next_removes_its_folder(
    demo: subprocess.Popen[str], tmp_path: Path
) -> None:
    mark = f"tidemark-demo-{demo.pid}-"

    demo.kill()
    demo.communicate(timeout=PATIENCE_S)

    assert none_left(PATIENCE_S, mark, str(tmp_path))
    assert list(Path(tempfile.gettempdir()).glob(f"{mark}*"))
    RunFolder().close()
    assert not list(Path(tempfile.gettempdir()).glob(f"{mark}*"))


def test_the_folder_of_a_running_demo_is_left_alone() -> None:
    first = RunFolder()
    try:
        with pytest.raises(FileExistsError):
            RunFolder()
        assert first.path.exists()
    finally:
        first.close()
    assert not first.path.exists()
