"""How a command ends: what Python has to do at the end is done, and no library ends it in another way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import atexit, ctypes, sys, tempfile, threading, time
{imports}
from tidemark.process import shutdown
shutdown.guard_process()
libc = ctypes.CDLL(None)
libc.__cxa_atexit(ctypes.cast(libc.abort, ctypes.c_void_p), None, None)  # as a library of C++ does that fails at the end
atexit.register(print, "atexit")
folder = tempfile.TemporaryDirectory(prefix="tidemark-end-")
print(folder.name)
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
sys.exit(shutdown.leave({code}))
"""


@pytest.mark.parametrize(
    ("imports", "code"),
    [("import pyarrow", 0), ("import pyarrow", 3), ("import confluent_kafka", 3)],
    ids=["arrow", "arrow-fails", "kafka-fails"],
)
def test_a_command_ends_as_it_says_and_after_its_threads_and_folders(imports: str, code: int) -> None:
    script = SCRIPT.format(imports=imports, code=code)
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    folder, *said = ended.stdout.splitlines()
    assert (ended.returncode, said) == (code, ["thread", "atexit"]), ended.stderr
    assert not Path(folder).exists()


def test_a_failing_library_is_what_the_script_says_it_is() -> None:
    """Without a library that is taken care of, the process does end like that: the test above can fail."""
    script = SCRIPT.format(imports="", code=0)
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, timeout=60, check=False).returncode == -6
