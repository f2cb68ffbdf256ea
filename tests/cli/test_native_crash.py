"""A process of ours that crashes in native code says where Python was; one that failed ends before OpenSSL is cleaned up."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

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


FAILS = """
import atexit, ctypes, sys, threading, time
import confluent_kafka
from tidemark import cli

libc = ctypes.CDLL(None)
libc.strdup.restype = ctypes.c_void_p
libc.__cxa_atexit(libc.puts, ctypes.c_void_p(libc.strdup(b"cleaned up")), None)
atexit.register(print, "exit function")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
cli._executed = lambda _arguments: CODE
sys.argv = ["tidemark", "version"]
sys.exit(cli.main())
"""


@pytest.mark.parametrize(("code", "said"), [(0, "thread\nexit function\ncleaned up\n"), (1, "thread\nexit function\n")])
def test_a_failure_ends_the_process_before_libraries_are_cleaned_up_that_threads_of_kafka_use(code: int, said: str) -> None:
    """Threads of Python are waited for, and its exit functions called."""
    script = FAILS.replace("CODE", str(code))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert (done.returncode, done.stdout) == (code, said), done.stderr
