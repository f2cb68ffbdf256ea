"""Who leads, asked of a real broker."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

from schemas.settings import from_mapping
from tests.support.servers import unique_name
from tidemark.embedded import Kafka
from tidemark.standby import run_when_leading

ROOT = Path(__file__).parents[2]
PRODUCER = """
import sys, threading
from schemas.errors import SourceError
from schemas.settings import from_mapping
from tidemark.standby import run_when_leading

def run(term):
    print("leads", flush=True)
    sys.stdin.readline()
    raise SourceError("another reader uses the server id")

document = {"name": sys.argv[1], "source": {"tables": ["a.b"]}, "kafka": {"bootstrap_servers": sys.argv[2]}}
run_when_leading(from_mapping(document), threading.Event(), run)
"""


def producer(name: str, kafka: Kafka) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PRODUCER, name, kafka.bootstrap_servers]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def comes_to_lead(process: subprocess.Popen[str]) -> bool:
    """False when it ends instead."""
    assert process.stdout is not None
    return any(line == "leads\n" for line in process.stdout)


def test_a_frozen_leader_that_the_source_turns_away_waits_for_its_turn_again(kafka: Kafka) -> None:
    """The source serves the new leader only, and says so before Kafka does: that is no reason to end."""
    name = unique_name("standby")
    with ExitStack() as stack:
        first = stack.enter_context(producer(name, kafka))
        stack.callback(first.kill)
        assert comes_to_lead(first)
        first.send_signal(signal.SIGSTOP)
        second = stack.enter_context(producer(name, kafka))
        stack.callback(second.kill)
        assert comes_to_lead(second)
        assert first.stdin is not None
        first.stdin.write("an error\n")
        first.stdin.flush()
        first.send_signal(signal.SIGCONT)
        second.kill()
        assert comes_to_lead(first)


def test_a_producer_that_is_done_is_not_started_again(kafka: Kafka) -> None:
    """`snapshot.mode: initial_only` ends its own term: there is nothing left to lead."""
    document = {
        "name": unique_name("standby"),
        "source": {"tables": ["a.b"]},
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
    }
    starts: list[threading.Event] = []
    stop = threading.Event()

    def run(term: threading.Event) -> None:
        starts.append(term)
        term.set()
        if len(starts) > 1:
            stop.set()

    run_when_leading(from_mapping(document), stop, run)
    assert len(starts) == 1
