"""Runs one server and never lets it outlive the Python process that asked for it.

Started by path, isolated (`python -I -S _guard.py PARENT_PID LOG_FILE COMMAND...`), so it imports nothing of
ours. A separate process because Linux's own parent-death signal fires when the *thread* that spawned a child
ends, which would kill a server started from a worker thread; `getppid` changes only when the whole process is
gone. The guard has one thread, so there the signal is safe: it covers the death of the guard itself.

What the server started and left behind (Spark's JVM outlives its Python by a second or two) becomes the
guard's child: it has a few seconds to end by itself and is killed then.

Writes the server's pid to stdout as one line, passes SIGTERM on, and ends with the server's status
(128 + signal number if a signal ended it), when nothing of it is left.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ORPHANS_SECONDS = 5.0
POLL_SECONDS = 0.25
WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}


def run_server(guard: int, log_file: str, command: list[str]) -> None:
    """In the forked child: become the server. Does not return."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:
            os._exit(125)
        log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        os.execvpe(command[0], command, os.environ)  # noqa: S606
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def children_of(pid: int) -> list[int]:
    """Return the processes whose parent is `pid`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.name))
    return found


def outlive_orphans(seconds: float) -> None:
    """Wait until no child is left; kill what still runs after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        if time.monotonic() > deadline:
            for orphan in children_of(os.getpid()):
                os.kill(orphan, signal.SIGKILL)
        time.sleep(0.02)


def main(arguments: list[str]) -> int:
    """Start, report the pid, wait for the end of the server or of the parent."""
    parent, log_file, command = int(arguments[0]), arguments[1], arguments[2:]
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    guard = os.getpid()
    if os.getppid() != parent:
        return 125
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    server = os.fork()
    if server == 0:
        run_server(guard, log_file, command)
    try:
        os.write(1, f"{server}\n".encode())
    except BrokenPipeError:
        os.kill(server, signal.SIGKILL)
    os.close(1)
    while True:
        done, status = os.waitpid(server, os.WNOHANG)
        if done:
            outlive_orphans(ORPHANS_SECONDS if os.getppid() == parent else 0.0)
            return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if os.getppid() != parent:
            os.kill(server, signal.SIGKILL)
        received = signal.sigtimedwait(WATCHED, POLL_SECONDS)
        if received is not None and received.si_signo != signal.SIGCHLD:
            os.kill(server, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
