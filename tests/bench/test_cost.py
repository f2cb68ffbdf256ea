"""What a process tree costs, with real processes: nothing is forgotten when one of them ends, and nothing is counted twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.cost import CostMeter

_BURNED_S = 0.3
_PARENT = """
import os, signal, sys, time
if sys.argv[1] == "ignores":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
child = os.fork()
if child == 0:
    while time.process_time() < %s:
        pass
    print("burned", flush=True)
    time.sleep(60)
sys.stdin.readline()
os.kill(child, signal.SIGKILL)
try:
    os.waitpid(child, 0)
except ChildProcessError:
    pass
print("ended", flush=True)
time.sleep(60)
""" % _BURNED_S  # noqa: UP031 - the program has braces of its own


@contextmanager
def _parent(kind: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _PARENT, kind], stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("kind", ["ignores", "waits"])
@pytest.mark.parametrize("is_before", [True, False], ids=["burned before", "burned since"])
def test_a_process_that_ends_counts_once_with_what_it_used_since_the_meter_began(kind: str, is_before: bool) -> None:
    with _parent(kind) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        meter = None if is_before else CostMeter(process.pid)
        assert process.stdout.readline() == "burned\n"
        if meter is None:
            meter = CostMeter(process.pid)
        meter.look()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ended\n"
        meter.look()
        cpu_s = meter.cost().cpu_s
    expected = 0.0 if is_before else _BURNED_S
    assert cpu_s == pytest.approx(expected, abs=0.2)
