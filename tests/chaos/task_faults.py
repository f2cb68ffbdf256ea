"""Faults of a task, its target and its sources, and events that people cause at the same time."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Final

from schemas import signals
from schemas.members import SourcePhase
from spark_jobs.replicate.destination import target_of
from spark_jobs.replicate.task_pause import asked_by
from tests.chaos import faults
from tests.chaos.machine import step_clock
from tests.chaos.peers import silent
from tests.chaos.proxy import Proxy
from tests.chaos.sink_servers import restart
from tests.chaos.task_world import TASK, Member, TaskScene
from tests.chaos.world import RUN, World
from tidemark.api.group_members import GroupMembers, Operator
from tidemark.api.sending import produce
from tidemark.process.config import load_task

Fault = Callable[[TaskScene], None]
_STARTS_S: Final = 180.0


# ---- the task


def kill_task(scene: TaskScene) -> None:
    """Kill a process of the task, and start it again."""
    verb = scene.rng.choice(scene.task.verbs)
    scene.task.check()
    scene.task.kill(verb)
    scene.kills += 1
    scene.pause(0, 1.5)
    scene.task.start(verb)


def kill_task_twice(scene: TaskScene) -> None:
    """Kill it again while it starts, or soon after."""
    kill_task(scene)
    scene.pause(0, 4)
    kill_task(scene)


def stop_task(scene: TaskScene) -> None:
    """SIGTERM ends it in order."""
    verb = scene.rng.choice(scene.task.verbs)
    scene.task.check()
    status = scene.task.stop(verb)
    is_early = status == 128 + signal.SIGTERM and scene.task.is_silent(verb)
    assert status == 0 or is_early, f"the task ended with {status} after SIGTERM:\n{scene.task.log_tail(verb)}"
    scene.pause(0, 1)
    scene.task.start(verb)


def freeze_task(scene: TaskScene) -> None:
    """SIGSTOP for a while, in which another process may take over."""
    scene.shaken.add("second")
    verb = scene.rng.choice(scene.task.verbs)
    scene.task.check()
    scene.task.freeze(verb)
    scene.pause(2, 20)
    scene.task.thaw(verb)


def second_task(scene: TaskScene) -> None:
    """A second process takes over while the first is frozen: one of them ends as fenced. With `--standby` one waits."""
    if len(scene.task.verbs) > 1:
        freeze_task(scene)
        return
    scene.shaken.add("second")
    task = scene.task
    task.check()
    task.freeze(TASK)
    scene.serial += 1
    second = f"{TASK}{scene.serial}"
    task.start_second(TASK, second)
    task.wait_for_line(second, '"task.started"', _STARTS_S)
    scene.pause(0, 3)
    task.thaw(TASK)
    ended = task.wait_until_one_ended((TASK, second), _STARTS_S)
    tail = task.log_tail(ended)
    assert "another process" in tail or "fenced" in tail.lower(), f"{ended} ended without a reason:\n{tail}"
    task.adopt(TASK, second, ended)


def pause_task(scene: TaskScene) -> None:
    """Somebody pauses the task, and resumes it."""
    scene.wait_until_begun()
    settings = load_task(str(scene.task.file))
    for change in (asked_by("chaos", "a fault"), lambda _: None):
        with closing(target_of(settings)) as target:
            target.attach()
            target.change_pause(change)
        scene.pause(0, 6)


# ---- the target


def kill_target(scene: TaskScene) -> None:
    """Kill -9 of the server, and a start on its data."""
    scene.target.server.kill()
    scene.kills += 1
    scene.pause(0.2, 4)
    restart(scene.target.server)


def freeze_target(scene: TaskScene) -> None:
    """The server answers nothing for a while."""
    with silent(scene.target.server.pid):
        time.sleep(scene.rng.uniform(2, 12))


def copy_target(scene: TaskScene) -> None:
    """Take a copy of its data, in which the task has begun: a later start would load tables whose parents change."""
    scene.wait_until_begun()
    scene.target.copy()


def put_target_back(scene: TaskScene) -> None:
    """Kill the server, and start it on an older copy of its data; half of the time another process of the task starts meanwhile."""
    if not scene.target.has_copy:
        copy_target(scene)
        scene.pause(1, 8)
    with_kill = scene.rng.random() < 0.5
    if with_kill:
        verb = scene.rng.choice(scene.task.verbs)
        scene.task.check()
        scene.task.kill(verb)
    scene.kills += 1 + with_kill
    scene.forget_views()
    scene.target.put_back()
    if with_kill:
        scene.task.start(verb)


# ---- connections


@dataclass(frozen=True, slots=True)
class DrawnLine:
    """A connection to be disturbed."""

    proxy: Proxy
    rng: random.Random
    pause: Callable[[float, float], None]


def _disturb_target(scene: TaskScene, fault: Callable[[faults.Line], None]) -> None:
    fault(DrawnLine(scene.target.proxy, scene.rng, scene.pause))


def _disturb_kafka(scene: TaskScene, fault: Callable[[faults.Line], None]) -> None:
    """The way to the broker of a source, or of the task."""
    job = scene.rng.choice([TASK, *(member.job for member in scene.members if member.is_running)])
    fault(DrawnLine(scene.kafka.proxies[job], scene.rng, scene.pause))


# ---- members of the group


def join(scene: TaskScene) -> None:
    """A source whose producer did not run yet joins; there may be none."""
    for member in scene.members:
        if not member.is_running and not member.late:
            member.pipeline.start(RUN)
            return


def pause_source(scene: TaskScene) -> None:
    """Pause and resume, as asked by Kafka."""
    member = scene.draw()
    _send(member, signals.PAUSE_SOURCE)
    scene.pause(1, 6)
    if scene.rng.random() < 0.3:
        scene.wait(f"{member.job} is paused", lambda: _phase(member) is SourcePhase.PAUSED)  # or the next start would be asked to
        member.pipeline.kill(RUN)
        member.kills += 1
        member.pipeline.start(RUN)  # which resumes it, too
    else:
        _send(member, signals.RESUME_SOURCE)


def close_source(scene: TaskScene) -> None:
    """Close it under load: its producer ends when the task has released everything. Then it is started again, and joins."""
    member = scene.draw()
    first = member.last_number()
    _wait_until_online(scene, member)
    _send(member, signals.CLOSE_SOURCE)
    status, log = _ended(scene, member)
    assert status == 0, f"the closed source {member.job} ended with {status}:\n{log[-3000:]}"
    scene.pause(0, 3)
    _join_again(scene, member, first)


def force_offline(scene: TaskScene) -> None:
    """Put it offline by force while its producer runs, which ends as fenced. Then it is started again, and joins."""
    member = scene.draw()
    first = member.last_number()
    _wait_until_online(scene, member)
    GroupMembers.of(member.pipeline.settings).put_source_offline(member.pipeline.name, Operator("chaos", "a fault"))
    status, log = _ended(scene, member)
    assert status != 0, f"the source {member.job} that was forced offline ended with 0:\n{log[-3000:]}"
    assert "fenced" in log.lower() or "another" in log, f"{member.job} ended without a reason:\n{log[-3000:]}"
    scene.pause(0, 3)
    _join_again(scene, member, first)


def _send(member: Member, kind: str) -> None:
    member.serial += 1
    produce(member.pipeline.settings, f"{member.job}-{kind}-{member.serial}", kind, json.dumps({}))


def _wait_until_online(scene: TaskScene, member: Member) -> None:
    """A source that is forced offline while it joins is not one that publishes."""
    scene.wait(f"{member.job} is online", lambda: _phase(member) is SourcePhase.ONLINE)


def _phase(member: Member) -> SourcePhase | None:
    source = GroupMembers.of(member.pipeline.settings).read().sources.get(member.pipeline.name)
    return None if source is None else source.state


def _ended(scene: TaskScene, member: Member) -> tuple[int | None, str]:
    """Wait until the producer of a source ends by itself; return its status and its log."""
    child = member.pipeline.give_away(RUN)
    try:
        scene.wait(f"the producer of {member.job} ends", lambda: child.status is not None)
    finally:
        child.kill()
    return child.status, member.pipeline.said(RUN)


def _join_again(scene: TaskScene, member: Member, first: int) -> None:
    member.pipeline.start(RUN)
    _wait_until_online(scene, member)
    member.late.append((range(first, member.last_number() + 1), time.time()))


# ---- of a source, as in rounds of one source


def _of_a_source(fault: Callable[[World], None]) -> Fault:
    def hit(scene: TaskScene) -> None:
        fault(scene.draw())

    return hit


def drop_and_create(scene: TaskScene) -> None:
    """A table that is dropped while it is loaded ends the task, as it should: so it is dropped later."""
    scene.wait_until_loaded()
    faults.drop_and_create(scene.draw())


def step_clocks(scene: TaskScene) -> None:
    """The clock of all our processes jumps, and jumps back."""
    step_clock(scene.draw())


def _of_sources(*names: str) -> dict[str, Fault]:
    return {name: _of_a_source(faults.ALL[name]) for name in names}


KILLS: Final[Mapping[str, Fault]] = {
    "kill task": kill_task,
    "kill task twice": kill_task_twice,
    "kill target": kill_target,
    "put target back": put_target_back,
    **_of_sources("kill producer", "kill producer twice", "kill kafka", "kill database", "kill registry"),
}
FAULTS: Final[Mapping[str, Fault]] = {
    "stop task": stop_task,
    "freeze task": freeze_task,
    "second task": second_task,
    "pause task": pause_task,
    "freeze target": freeze_target,
    **{f"{name} target": partial(_disturb_target, fault=fault) for name, fault in faults.ON_LINES.items()},
    **{f"{name} kafka": partial(_disturb_kafka, fault=fault) for name, fault in faults.ON_LINES.items()},
    "step clock": step_clocks,
    **_of_sources(
        "stop producer", "freeze producer", "second producer", "cut connections", "stall connections", "slow connections",
        "refuse connections", "fill disk of kafka", "fill disk of producer", "silent source", "silent broker", "silent registry",
    ),
}  # fmt: skip
MEMBERS: Final[Mapping[str, Fault]] = {
    "join": join,
    "pause source": pause_source,
    "close source": close_source,
    "force offline": force_offline,
}
EVENTS: Final[Mapping[str, Fault]] = {
    "drop and create": drop_and_create,
    "copy target": copy_target,
    **_of_sources(
        "flush logs", "purge logs", "truncate", "alter", "change types", "pause and resume", "snapshot again", "large transaction",
        "idle",
    ),
}  # fmt: skip
"""Not faults: people cause them at the same time."""
ALL: Final[Mapping[str, Fault]] = {**KILLS, **FAULTS, **MEMBERS, **EVENTS}
