"""Threads that write into a server while a test does something else."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pymysql.cursors

from tests.support.producers import Source

Step = Callable[[pymysql.cursors.Cursor, random.Random, int], float]
"""Writes something with a cursor and the dice of a thread, the number of which is given; returns the seconds until the next time."""


@contextmanager
def writing_threads(source: Source, step: Step, count: int = 1) -> Iterator[None]:
    """Threads that repeat a step, each on a connection of its own, until the block ends; their first error fails the test."""
    stop, failures = threading.Event(), list[BaseException]()

    def write(number: int) -> None:
        dice = random.Random(number)
        try:
            with source.server.connect(database=source.schema) as connection, connection.cursor() as cursor:
                while not stop.is_set():
                    stop.wait(step(cursor, dice, number))
        except BaseException as error:  # noqa: BLE001 - raised by the test
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert not failures, failures
