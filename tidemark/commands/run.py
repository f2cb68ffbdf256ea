"""`tidemark run`: the producer, from the log and the tables of one source into Kafka, until it is stopped.

SIGHUP has it take `source.tables` and `source.exclude_tables` from the file again (`tidemark reload` asks for the same).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
from contextlib import ExitStack
from types import FrameType
from typing import TYPE_CHECKING, Final, Self

from schemas.json_codec import encode
from tidemark.process import config
from tidemark.process.heap import share_heaps
from tidemark.process.shutdown import stop_on_signals

if TYPE_CHECKING:
    from producer.app import Producer
    from producer.reloads import Reloads
    from schemas.settings import Settings
    from tidemark.api.service import Service

HELP: Final = "copy the source's log, and its tables when asked, to Kafka until stopped"


def configure(parser: argparse.ArgumentParser) -> None:
    """Alone, or one of several."""
    parser.add_argument(
        "--standby",
        action="store_true",
        help="be one of several producers of this name, all started so: one runs, the others take over when it ends "
        "or dies; without this, a second producer takes over at once",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; the exit code is 0 then."""
    environment = dict(os.environ)
    settings = config.load(arguments.config, environment)
    share_heaps()
    stop = threading.Event()
    with ExitStack() as stack:
        stack.enter_context(stop_on_signals(stop))
        hangups = stack.enter_context(Hangups())
        from producer import app  # takes seconds, in which a signal is an orderly end, too
        from producer.reloads import Reloads

        reloads = stack.enter_context(Reloads(settings, lambda: config.load(arguments.config, environment)))
        hangups.give_to(reloads)
        service = _serve(settings, stack) if settings.service.port else None
        if arguments.standby:
            from tidemark.process.leadership import Leadership, run_when_leading

            def lead(term: threading.Event) -> None:
                if service is not None:
                    service.leads()
                try:
                    run_producer(settings, term, service, reloads)
                finally:
                    if service is not None:
                        service.note_standby()

            if service is not None:
                service.note_standby()
            app.warm_up()
            run_when_leading(Leadership.of_producer(settings, stop), lead)
        else:
            run_producer(settings, stop, service, reloads)
    return 0


class Hangups:
    """SIGHUP while entered: the tables are taken from the file again, also while the producer waits or stands by.

    One that comes before there is somebody to ask is not lost. For the main thread.
    """

    def __init__(self) -> None:
        self._reloads: Reloads | None = None
        self._came = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGHUP, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGHUP, self._before)

    def give_to(self, reloads: Reloads) -> None:
        """Have each SIGHUP, also one that came already, ask for a reload."""
        self._reloads = reloads
        if self._came:
            reloads.ask()

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._came = True
        if self._reloads is not None:
            self._reloads.ask()


def run_producer(
    settings: Settings, stop: threading.Event, service: Service | None, reloads: Reloads | None = None
) -> None:
    """Run a producer that leaves liveness records; the endpoint and the liveness records show what it does."""
    from producer import app
    from producer.sign import LivenessWriter

    with LivenessWriter(settings) as sign:
        watchers: list[LivenessWriter | Service] = [sign] if service is None else [sign, service]

        def watch(producer: Producer) -> None:
            for one in watchers:
                one.watch(producer)

        def waits(reason: str) -> None:
            for one in watchers:
                one.waits(reason)

        app.run(settings, stop, watch, waits, reloads)


def _serve(settings: Settings, stack: ExitStack) -> Service:
    """Return the HTTP endpoint, until the stack ends: it wants to know of each start of the producer, and why it waits."""
    from tidemark.api import sending
    from tidemark.api.group_members import GroupMembers
    from tidemark.api.observe import Observer
    from tidemark.api.observer_loop import LagWatch
    from tidemark.api.service import Service
    from tidemark.api.source_log import seen
    from tidemark.commands import status

    def insert(signal_id: str, kind: str, data: str | None) -> None:
        sending.send(sending.lasting(settings), settings, signal_id, kind, data)

    def describe() -> str:
        with Observer(settings) as observer:
            now = observer.settled_each()
        return status.as_json_of_sinks(now, now, seen(settings, service.head_room))

    def describe_group() -> str:
        return json.dumps(encode(GroupMembers.read_status(settings.kafka, GroupMembers.group_of(settings))))

    def problem() -> str:
        return seen(settings, service.head_room).problem

    lags = stack.enter_context(LagWatch(settings, problem, lambda: service.is_standby))
    group = None if settings.order.group is None else describe_group
    service = Service(settings.service, insert, describe, lambda: lags.latest, settings.name, group)
    return stack.enter_context(service)
