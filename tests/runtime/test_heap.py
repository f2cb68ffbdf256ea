"""Threads of the producer share heaps of the C library, unless the environment says how many there are."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
THREADS_THAT_ALLOCATE = """
import ctypes, sys, threading
from tidemark.process.heap import share_heaps

share_heaps()
c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
c.fopen.restype, c.fclose.argtypes, c.malloc_info.argtypes = ctypes.c_void_p, [ctypes.c_void_p], [ctypes.c_int, ctypes.c_void_p]
together = threading.Barrier(12)

def work():
    together.wait()
    c.malloc(5000)
    together.wait()

threads = [threading.Thread(target=work) for _ in range(12)]
for one in threads:
    one.start()
for one in threads:
    one.join()
out = c.fopen(sys.argv[1].encode(), b"w")
c.malloc_info(0, out)
c.fclose(out)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has no such heaps")
@pytest.mark.parametrize(("given", "heaps"), [({}, 2), ({"MALLOC_ARENA_MAX": "3"}, 3), ({"GLIBC_TUNABLES": "glibc.malloc.arena_max=4"}, 4)])
def test_a_dozen_threads_share_two_heaps_or_as_many_as_the_environment_says(tmp_path: Path, given: dict[str, str], heaps: int) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in {"MALLOC_ARENA_MAX", "GLIBC_TUNABLES"}}
    command = [sys.executable, "-c", THREADS_THAT_ALLOCATE, str(tmp_path / "heaps.xml")]
    subprocess.run(command, cwd=ROOT, env={**environment, **given}, check=True)
    assert (tmp_path / "heaps.xml").read_text(encoding="utf-8").count("<heap nr=") == heaps
