"""Peers that fall silent: they keep their connections and answer nothing; and a registry that loses its memory."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from tests.chaos.world import MERGE, RUN, ChaosError, World

_SAYS_WITHIN_S: Final = 30
_ENDS_WITHIN_S: Final = 30
"""Five seconds are promised; a machine with all these servers on it stands still now and then."""


@contextmanager
def silent(pid: int) -> Iterator[None]:
    """SIGSTOP, then SIGCONT: connections stay, and are accepted by the system."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def silent_source(world: World) -> None:
    """The producer starts at a server that accepts and sends nothing; it says so and ends when asked to."""
    world.proxy.stall()
    try:
        world.pipeline.kill(RUN)
        world.kills += 1
        world.pipeline.start(RUN)
        _require_a_word(world, RUN)
        _require_end(world, RUN)
    finally:
        world.proxy.heal()
    world.pipeline.start(RUN)


def silent_broker(world: World) -> None:
    """The broker answers nothing for a while; half of the time the processes are asked to end meanwhile."""
    world.shaken.add("kafka")
    with silent(world.servers.kafka.pid):
        world.wait(2, 15)
        ends = [verb for verb in (RUN, MERGE) if world.rng.random() < 0.5 and world.pipeline.running(verb)]
        for verb in ends:
            _require_end(world, verb)
    world.pipeline.start(*ends)


def silent_registry(world: World) -> None:
    """The registry answers nothing; the producer may need it at its start only."""
    world.shaken.add("registry")
    with silent(world.servers.registry.pid):
        world.pause(0.5, 3)
        if world.pipeline.running(RUN):
            world.pipeline.kill(RUN)
            world.kills += 1
            world.pipeline.start(RUN)
            _require_a_word(world, RUN)
            _require_end(world, RUN)
            world.pipeline.start(RUN)
        world.wait(1, 5)


def registry_loses_everything(world: World) -> None:
    """As one that keeps its schemas in memory does at each restart."""
    world.shaken.add("registry")
    world.forgot = True
    registry = world.servers.registry
    registry.kill()
    world.kills += 1
    shutil.rmtree(registry.folder / "data", ignore_errors=True)
    world.pause(0.2, 2)
    registry.restart()


def _require_a_word(world: World, verb: str) -> None:
    """The process names what it waits for."""
    deadline = time.monotonic() + _SAYS_WITHIN_S
    while world.pipeline.is_silent(verb):
        if time.monotonic() > deadline:
            raise ChaosError(f"{verb} has said nothing for {_SAYS_WITHIN_S} s while a peer is silent")
        time.sleep(0.2)


def _require_end(world: World, verb: str) -> None:
    began = time.monotonic()
    world.pipeline.stop(verb)
    seconds = time.monotonic() - began
    if seconds > _ENDS_WITHIN_S:
        raise ChaosError(f"{verb} took {seconds:.0f} s to end while a peer was silent:\n{world.pipeline.log_tail(verb)}")


Fault = Callable[[World], None]
WITH_SILENCE: Final[Mapping[str, Fault]] = {
    "silent source": silent_source,
    "silent broker": silent_broker,
    "silent registry": silent_registry,
    "registry loses everything": registry_loses_everything,
}
