"""What a JVM writes while it runs: it comes out as it is written, and little of it is kept."""

from __future__ import annotations

import select
import subprocess
import sys
from pathlib import Path
from typing import Final

READS: Final = """
import subprocess, sys
from spark_jobs.jobs.jvm_start import JvmOutput
process = subprocess.Popen(["bash", "-c", sys.argv[1]], stdout=subprocess.PIPE)
output = JvmOutput(process.stdout)
output.start()
output.join()
print(output.last_lines(), output.has_failed.is_set())
"""


def read_of(script: str) -> subprocess.Popen[bytes]:
    """Start a process that reads the output of a shell."""
    root = str(Path(__file__).parents[2])
    return subprocess.Popen([sys.executable, "-c", READS, script], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_progress_bar_without_a_line_end_is_shown_at_once() -> None:
    """Spark's progress bar has carriage returns alone (`spark.ui.showConsoleProgress`)."""
    child = read_of(r"printf '\r[Stage 1:> (0 + 1) / 1]'; read -r")
    try:
        assert child.stderr is not None
        assert select.select([child.stderr], [], [], 20)[0]
        assert child.stderr.read(10) == b"\r[Stage 1:"
    finally:
        child.communicate(timeout=30)


def test_output_without_a_line_end_is_passed_on_and_not_kept() -> None:
    out, err = read_of("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo next").communicate(timeout=60)
    assert len(err) == 3_000_006
    assert out.decode().strip() == f"{['x' * 300, 'next']} False"


def test_an_exception_of_the_main_thread_is_noticed_and_the_last_line_needs_no_end() -> None:
    script = r"""echo before; echo 'Exception in thread "main" java.io.IOException: File too large'; printf '\tat a.b\nlast'"""
    out, err = read_of(script).communicate(timeout=60)
    assert out.decode().strip() == """['Exception in thread "main" java.io.IOException: File too large', 'last'] True"""
    assert err.endswith(b"\tat a.b\nlast")


def test_a_line_of_each_start_is_no_news() -> None:
    _, err = read_of("echo one; echo 'WARNING: Using incubator modules: jdk.incubator.vector'; echo two").communicate(timeout=60)
    assert err == b"one\ntwo\n"
