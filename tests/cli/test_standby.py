"""Who leads, asked of a real broker."""

from __future__ import annotations

import threading

from schemas.settings import from_mapping
from tests.support.servers import unique_name
from tidemark.embedded import Kafka
from tidemark.standby import run_when_leading


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
